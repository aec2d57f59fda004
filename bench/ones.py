"""Elastic sizes by evolution: `python -m bench.ones`.

`--part compare`: 50 jobs on 16 nodes of 4 GPUs under `ones` (as published), `ones-goodput` (ours), an Optimus-like
greedy, Tiresias-L, LAS and SRTF, with default options and the costs of the simulator; on jobs drawn after the trace of
ONES (`ones-like`) and on its jobs as its artifact recorded them (`ones-recorded`). `--part causes`: where the gain over
Tiresias of the paper (45.6 %) and of the artifact's result files (57.3 %) appears: one thing is switched at a time, in
the truth, the costs, the load or the policy, and then all that help together. `--part given`: figures of the artifact
whose inputs are known, beside ours, and what the recorded jobs say of those whose inputs are not; exit status 1 where
one is more than 10 % apart. `--part steps`: the time of a whole decision. Without `--part` all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.goodput import linear_batch
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.policies.ones import evolving
from cotenant.policies.ones.deploy import Deployment
from cotenant.policies.ones.scaling import scaled_down
from cotenant.policies.ones.throughput import sruf, throughputs
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.elastic import BY_NAME, RECORDED, ElasticModel
from cotenant.workload.generators import generate

WORKLOADS = ("ones-like:jobs=50", "ones-recorded:jobs=50")
# (policy, mean JCT in seconds of the artifact's result files)
POLICIES = (
    ("ones", 214.0), ("ones-goodput", None), ("tiresias-l", 501.7), ("las", None), ("srtf", None), ("optimus", 452.9),
)  # fmt: skip
CLUSTER = "16x4"
# golden examples of the specification, from the artifact's code: (GPUs or medians of run time, figure)
RATES = ((2, 1066.67), (8, 3866.67))
SCORES = ((1, 200.0), (4, 240.0), (8, 320.0))
BATCHES = ((8, 32), (16, 32), (32, 16), (24, 21))
LIMITS = ((3, 16), (2, 22))
LINEAR = {"a_r": 1e-12, "b_r": 1e-12, "a_n": 1e-12, "b_n": 1e-12}
PARTS = ("evolving and scoring", "placing", "deploying")
DECISIONS, LONGEST_S = 30, 400  # timed, and seconds of simulated time in which they come


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ones", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=("compare", "causes", "given", "steps"))
    options = parser.parse_args()
    parts: dict[str, Callable[[], bool | None]] = {
        "compare": lambda: compare(options.seeds), "causes": lambda: causes(options.seeds), "given": given,
        "steps": steps,
    }  # fmt: skip
    held = [part() is not False for name, part in parts.items() if options.part in (None, name)]
    sys.exit(0 if all(held) else 1)


def played(workload: str, policy: str, seeds: int, costs: str = "default") -> list[Outcome]:
    """One run per seed."""
    found = []
    for seed in range(seeds):
        work = generate(Spec.parse(f"{workload},seed={seed}"), 64)
        experiment = Experiment(work, Cluster.parse(CLUSTER), policy, seed=seed, costs=costs, compiled=False)
        found.append(simulate(experiment))
    return found


def compare(seeds: int) -> None:
    """Mean JCT by seed, queueing, goodput and stops of each policy."""
    for workload in WORKLOADS:
        heads = (
            *(f"seed {k}" for k in range(seeds)),
            "mean JCT s",
            "artifact s",
            "queue s",
            "goodput",
            "stops",
            "cpu s",
        )
        print(f"{workload:<24}" + "".join(f"{head:>12}" for head in heads), flush=True)
        for policy, known in POLICIES:
            began = time.process_time()
            runs = played(workload, policy, seeds)
            jct = [float(run.jct_s.mean()) for run in runs]
            queue, good, stops = (
                np.mean([run.summary[key] for run in runs]) for key in ("avg_queue_s", "goodput", "preemptions")
            )
            cells = (
                *(f"{value:,.1f}" for value in jct), f"{np.mean(jct):,.1f}", "-" if known is None else f"{known:,.1f}",
                f"{queue:,.1f}", f"{good:.2f}", f"{stops:.1f}", f"{time.process_time() - began:.1f}",
            )  # fmt: skip
            print(f"{policy:<24}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that differs from the first row: of the workload, the costs, the policy `ones`, or the true models."""

    what: str
    workload: str = WORKLOADS[0]
    costs: str = "default"
    ones: str = "ones"
    model: Callable[[ElasticModel], ElasticModel] = lambda model: model


def _free_batches(model: ElasticModel) -> ElasticModel:
    """Larger batches train as much per sample."""
    return replace(model, noise=1e15)


def _linear(model: ElasticModel) -> ElasticModel:
    """Twice the GPUs, twice the samples per second: nothing to send, and no largest batch."""
    return replace(model, step=replace(model.step, **LINEAR), max_lr=1e6 * model.base_lr)


def _ideal(model: ElasticModel) -> ElasticModel:
    return _linear(_free_batches(model))


def _long_epochs(model: ElasticModel) -> ElasticModel:
    return replace(model, epoch_size=8 * model.epoch_size)


SETTINGS = (
    Setting("as in the table"),
    Setting("changes and stops cost nothing", costs="none"),
    Setting("half the load", "ones-like:jobs=50,gap=60"),
    Setting("jobs ask for 2 or 4", "ones-like:jobs=50,mix=[2:0.5/4:0.5]"),
    Setting("jobs of 10 min ask for 1 or 2, half the load", "ones-like:jobs=50,gap=60,median=600,mix=[1:0.5/2:0.5]"),
    Setting("a generation every second", ones="ones:interval=1"),
    Setting("no epoch gate", ones="ones:gate=0"),
    Setting("epochs 8 times as long", model=_long_epochs),
    Setting("progress not drawn, but its mean", ones="ones:progress=mean"),
    Setting("larger batches train as well", model=_free_batches),
    Setting("throughput linear in GPUs", model=_linear),
    Setting("linear, batches free", model=_ideal),
    Setting("linear, batches free, no costs", costs="none", model=_ideal),
    Setting("the same at half the load", "ones-like:jobs=50,gap=60", "none", model=_ideal),
    Setting("the same, jobs ask for 2 or 4", "ones-like:jobs=50,mix=[2:0.5/4:0.5]", "none", model=_ideal),
)


def causes(seeds: int) -> None:
    """Gains of `ones` over Tiresias-L when one thing is different, on `ones-like`."""
    heads = ("tiresias-l", "ones", "gain %", "queue s", "goodput", "stops")
    print(f"{'what is different':<46}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for setting in SETTINGS:
        with _truth(setting.model):
            first, mine = (
                played(setting.workload, policy, seeds, setting.costs) for policy in ("tiresias-l", setting.ones)
            )
        known, jct = (float(np.mean([run.jct_s.mean() for run in runs])) for runs in (first, mine))
        queue, good, stops = (
            np.mean([run.summary[key] for run in mine]) for key in ("avg_queue_s", "goodput", "preemptions")
        )
        cells = (
            f"{known:,.1f}", f"{jct:,.1f}", f"{100 * (1 - jct / known):.1f}", f"{queue:,.1f}", f"{good:.2f}",
            f"{stops:.1f}",
        )  # fmt: skip
        print(f"{setting.what:<46}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


@contextmanager
def _truth(model: Callable[[ElasticModel], ElasticModel]) -> Iterator[None]:
    with patch.dict(BY_NAME, {name: model(known) for name, known in BY_NAME.items()}):
        yield


def given() -> bool:
    """The artifact's figures on inputs that the specification gives."""
    seen = np.full(9, np.nan)
    seen[[1, 4]] = 600.0, 2000.0
    rate = throughputs(seen, 8)
    left = np.array([40_000 * (1 / 0.25 - 1)])
    score = sruf(np.where(np.arange(9) == 8, 3000.0, rate)[None, :], left)[0]
    rows = [(f"samples per second on {n} GPUs, seen on 1 and 4", known, rate[n]) for n, known in RATES]
    rows += [(f"score of 120,000 samples on {n} GPUs, GPU-s", known, score[n]) for n, known in SCORES]
    rows += [(f"samples per GPU on {n} GPUs", known, linear_batch(32, 0.0005, 0.008, n)[0]) for n, known in BATCHES]
    rows += [(f"limit of 32 GPUs after {n} medians", known, scaled_down(32, n, 1.0)) for n, known in LIMITS]
    print(f"{'on given inputs':<52}{'artifact':>12}{'ours':>12}")
    for what, known, ours in rows:
        print(f"{what:<52}{known:>12,.2f}{ours:>12,.2f}")
    first_s = [2 * job.model.epoch_size / float(job.model.step.throughput(job.model.batch, 1)) for job in RECORDED]
    print(
        f"recorded jobs on one GPU need {np.mean(first_s):,.0f} s (median {np.median(first_s):,.0f}) for the two epochs"
        " before they may grow; the artifact's 50 result rows have a mean JCT of 214 s (median 139) and name no inputs"
    )
    return all(abs(ours / known - 1) <= 0.1 for _, known, ours in rows)


def steps() -> bool:
    """Processor time of whole decisions, and of their parts; whether every part was timed."""
    sizes = ((64, 64), (128, 64), (256, 128), (1024, 64), (1024, 512))
    timed = [whole_decision(gpus, jobs) for gpus, jobs in sizes]
    print("artifact, placing its 48 candidates alone: 5.7 s at 64 GPUs and 64 jobs, 17.2 s at 128 and 64")
    return all(timed)


def whole_decision(gpus: int, jobs: int) -> bool:
    """From the view to the plan: learning, scoring, evolution, placing of the winner, deploying. True if all were."""
    spent: dict[str, float] = {}

    def timed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            began = time.process_time()
            found = function(*args, **more)
            spent[name] = spent.get(name, 0.0) + time.process_time() - began
            return found

        return call

    work = generate(Spec.parse(f"ones-like:jobs={jobs},gap=0,median=2000"), gpus)
    run = Simulation(Experiment(work, Cluster.parse(f"{gpus // 4}x4"), "ones", compiled=False))
    whole = []
    with (
        patch.object(evolving, "generation", timed(PARTS[0], evolving.generation)),
        patch.object(evolving, "place_sizes", timed(PARTS[1], evolving.place_sizes)),
        patch.object(Deployment, "sizes", timed(PARTS[2], Deployment.sizes)),
        patch.object(run.policy, "decide", timed("whole", run.policy.decide)),
    ):
        run.advance(30.0)
        for second in range(31, 31 + LONGEST_S):
            spent.clear()
            run.advance(float(second))
            if "whole" in spent:  # there is a decision every `interval`
                whole.append(dict(spent))
            if len(whole) == DECISIONS:
                break
    said = ", ".join(
        f"{name} {1000 * np.median([one.get(name, 0.0) for one in whole]):.1f}" for name in whole[0] if name != "whole"
    )
    total = [1000 * one["whole"] for one in whole]
    print(
        f"whole decision at {gpus:,} GPUs and {jobs} jobs: median {np.median(total):.1f} ms, largest of {len(total)} "
        f"{max(total):.1f} ms of processor time (of it {said})",
        flush=True,
    )
    return all(name in one for one in whole for name in PARTS)


if __name__ == "__main__":
    main()
