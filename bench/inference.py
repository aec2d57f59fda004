"""A service with a day's requests beside training: how many requests are in time, and how much training is gained.

`python -m bench.inference [--jobs 120] [--policies "sjf-bsbf antman"] [--seed 0] [--live [SECONDS]]`. One service
(25 ms a request alone, 150 ms allowed for 99 of 100, one to three replicas, 3 to 45 requests per second over the day)
on 8 GPUs (2x4:h200), for one day, with jobs of the eight models of the H200 on one or two GPUs, two to six hours long:
about twice as many as fit. Training may join its GPUs (`beside`), or not (`alone`: dedicated GPUs); the pairs are those
of the H200 under MPS for the service's model. Requests arrive at random and are played one by one; whoever decides
knows the curve and a formula (docs/inference.md). `gained` are GPU-hours of training done on the GPUs of replicas, `of
a GPU` that against as many dedicated GPU-hours; `in all` is the training of the whole cluster. `--live` serves the
example HTTP server beside training on virtual GPUs for so long (300 s). Exit status 1 unless 99 % of the requests are
within target under every policy and training is gained under each.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.serving import InferenceService
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.observe import done_by
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.profiles import measured
from cotenant.workload.services import services_of

DAY_S = 86400.0
WITHIN = 0.99
SERVICE = {
    "target_ms": 150,
    "service_ms": 25,
    "model": "bert",
    "gib": 8,
    "replicas": [1, 3],
    "rate": {0: 6, 4: 3, 8: 15, 11: 40, 14: 45, 18: 30, 22: 10},
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.inference", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--policies", default="sjf-bsbf antman", help="separated by blanks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--live", type=float, nargs="?", const=300.0, help="seconds of the live example instead")
    options = parser.parse_args()
    if options.live is not None:
        from bench.inference_live import play

        sys.exit(play(options.live))
    (service,) = services_of({"chat": SERVICE}, "bench.inference", Path())
    work = training(options.jobs, options.seed)
    print(f"service model {service.model}; {len(work)} jobs, a day on 2x4:h200, seed {options.seed}\n")
    print("| policy | training | requests | within target | p99 ms | replica GPU-hours | gained | of a GPU | in all |")
    print("|---|---|---|---|---|---|---|---|---|")
    good = [
        _row(work, policy, one, options.seed)
        for policy in options.policies.split()
        for one in (replace(service, alone=True), service)
    ]
    sys.exit(0 if all(good) else 1)


def training(count: int, seed: int) -> Workload:
    """Jobs that come all day long."""
    draw = np.random.default_rng([seed, 11])
    models = sorted({model for model, _ in measured.steps()})
    return make_workload(
        "training of the H200's models",
        np.sort(draw.uniform(0, DAY_S, count)).round(),
        draw.choice([1, 1, 1, 2], count),
        draw.uniform(2 * 3600, 6 * 3600, count).round(),
        model=Codes.of(draw.choice(models, count).tolist()),
    )


def _row(work: Workload, policy: str, service: InferenceService, seed: int) -> bool:
    """One run, as a row; whether it keeps what is promised."""
    until_s = float(work.submit_s[0]) + DAY_S
    options = {"profile": "h200", "services": (service,), "until_s": until_s, "seed": seed}
    run = Simulation(Experiment(work, Cluster.parse("2x4:h200"), policy, **options))  # type: ignore[arg-type]
    run.advance(until_s)
    outcome = run.outcome()
    done_s = [done_by(run.state, row, until_s) for row in range(len(work))]
    trained = float(np.dot(done_s, work.gpus)) / 3600
    found = {name: float(str(value)) for name, value in outcome.summary.items() if "service" in name}
    share, gained, held = (
        found[name] for name in ("service_chat_within_target", "beside_services_gpu_hours", "service_gpu_hours")
    )
    late = f"{found['service_chat_p99_s'] * 1000:.0f}"
    how = "alone" if service.alone else "beside"
    counts = f"{found['service_chat_requests']:,.0f} | {share:.3%} | {late} | {held:.1f} | {gained:.1f}"
    print(f"| `{policy}` | {how} | {counts} | {gained / held:.2f} | {trained:.1f} |", flush=True)
    return share >= WITHIN and (service.alone or gained > 0)


if __name__ == "__main__":
    main()
