"""SJF-BSBF on a philly-like workload with the pairs measured on an H200.

`python -m bench.bsbf [--jobs 2000] [--seeds 5] [--loads 1.0,1.25,1.5]`. 64 GPUs (8x8:h200), models by a seeded hash.
Average JCT in seconds over seeds, and against las, srtf, tiresias-l and sjf-ffs; every policy with its default options
unless named. `noise` rows believe slowdowns that are wrong by a log-normal factor; the truth stays the table. `refused`
counts pairs that the pair test refuses at their start: it must be 0, else the exit status is 1. `shared` are starts
beside somebody, `cut` those whose batch was cut. Sharing is under MPS unless --sharing says otherwise.

`--cluster 8x8:v100,8x8:a10` (16 and 24 GiB) are GPUs that are short of memory, so that batches are cut (if
`sjf-bsbf-paper` cuts none, the exit status is 1); there models come in all measured batch sizes (`h200-batches`), jobs
take on these GPUs what the log says, and pairs and speeds are derived by the profile's formulas, as they are for
sub-batches everywhere.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import dataclass, replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.plan import Plan
from cotenant.core.spec import Spec
from cotenant.core.view import View
from cotenant.core.workload import Codes, Workload
from cotenant.policies.bsbf.pair_test import pays
from cotenant.policies.bsbf.policy import SjfBsbf
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.generators import generate
from cotenant.workload.model_sets import assign_models
from cotenant.workload.profiles import measured

POLICIES = (
    "tiresias-l",
    "las",
    "srtf",
    "sjf",
    "sjf-ffs",
    "sjf-ffs:consolidate=true",
    "sjf-bsbf",
    "sjf-bsbf:scale_sub_batch=false",
    "sjf-bsbf:noise=0.2",
    "sjf-bsbf:noise=0.5",
    "sjf-bsbf:consolidate=true",
    "sjf-bsbf:queue_aware=false",
    "sjf-bsbf-paper",
    "sjf-bsbf-paper:scale_sub_batch=false",
    "sjf-bsbf-paper:noise=0.2",
    "sjf-bsbf-paper:noise=0.5",
)
AGAINST = ("las", "srtf", "tiresias-l", "sjf-ffs")


@dataclass(slots=True)
class Pairs:
    """What was seen of the pairs that a policy made: those that the test refuses, all of them, and with a cut batch."""

    refused: int = 0
    made: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """One run: JCTs in seconds, and its pairs."""

    mean_s: float
    median_s: float
    pairs: Pairs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bsbf", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--loads", default="1.0,1.25,1.5")
    parser.add_argument("--sharing", default="mps", choices=("mps", "time-sliced"))
    parser.add_argument("--cluster", default="8x8:h200", help="separated by commas")
    parser.add_argument("--policies", default="", help="separated by blanks")
    options = parser.parse_args()
    policies = options.policies.split() or list(POLICIES)
    _pairs(options.sharing)
    held = [
        _table(spec, load, policies, options)
        for spec, load in itertools.product(options.cluster.split(","), options.loads.split(","))
    ]
    sys.exit(0 if all(held) else 1)


def _table(cluster_spec: str, load: str, policies: list[str], options: argparse.Namespace) -> bool:
    """Run and print one load on one cluster; whether the pair test was kept, and batches cut where memory is short."""
    cluster, profile = Cluster.parse(cluster_spec), f"h200:sharing={options.sharing}"
    models = "h200" if cluster_spec.endswith(":h200") else "h200-batches"
    table: dict[str, list[Result]] = {policy: [] for policy in policies}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        spec = Spec.parse(f"philly-like:jobs={options.jobs},load={load},seed={seed}")
        work = as_long_as_said(hashed_models(generate(spec, cluster.gpus, None), seed, models), cluster, profile)
        for policy in policies:
            table[policy].append(_one(work, cluster, policy, profile, seed))
    _print(cluster_spec, load, options, table)
    pairs = [one.pairs for found in table.values() for one in found]
    published = table.get("sjf-bsbf-paper", []) if models != "h200" else []
    cut = not published or any(one.pairs.cut for one in published)
    if not cut:
        print("no batch was cut, though memory is short")
    return cut and not any(one.refused for one in pairs)


def _pairs(sharing: str) -> None:
    """How much there is to refuse: the pair test over all measured pairs, first the new job, then its host."""
    slow = [(max(1 / a, 1.0), max(1 / b, 1.0)) for a, b in measured.pairs(sharing).values()]
    longer = np.mean([not pays(1e6, 1.0, a, b) for a, b in slow])
    least = [2 * a - a / b - 1 for a, b in slow]
    print(f"{len(slow)} pairs, {sharing}: refused if the new job outlives its host {100 * longer:.0f} %; a shorter one")
    print(f"needs a host {np.median(least):.1f} times as long as itself (median), {max(least):.1f} at most")


def hashed_models(work: Workload, seed: int, models: str = "h200") -> Workload:
    """Models of the H200 by a hash of the job ids, in place of those that the generator drew: only these have pairs."""
    nothing = Codes(np.zeros(len(work), np.int64), ("",))
    return assign_models(replace(work, model=nothing), f"{models}:seed={seed}", "")


def as_long_as_said(work: Workload, cluster: Cluster, profile: str) -> Workload:
    """The jobs that fit, with durations that are those of the log on this cluster's type and not on an H200."""
    run = Simulation(Experiment(work, cluster, "fifo", profile=profile, skip_infeasible=True, compiled=False))
    speed = run.state.speed[run.state.i[:, col.SPEED_ROW], 0, 0]
    attempts = {row: tuple(speed[row] * one for one in lengths) for row, lengths in run.work.attempts.items()}
    return replace(run.work, duration_s=run.work.duration_s * speed, attempts=attempts)


def _one(work: Workload, cluster: Cluster, policy: str, profile: str, seed: int) -> Result:
    run = Simulation(Experiment(work, cluster, policy, profile=profile, seed=seed, skip_infeasible=True, compiled=True))
    pairs = Pairs()
    if isinstance(run.policy, SjfBsbf):
        _watch(run.policy, pairs)
    run.advance(np.inf)
    found = run.outcome().summary
    return Result(float(str(found["avg_jct_s"])), float(str(found["p50_jct_s"])), pairs)


def _watch(policy: SjfBsbf, pairs: Pairs) -> None:
    """Repeat the pair test, as the policy believes it and with the sub-batches chosen, for every pair of every plan."""
    inner = policy.decide

    def decide(view: View) -> Plan:
        plan = inner(view)
        together = view.facts.together
        if not plan.run or together is None:
            return plan
        left, slow, eased = policy.left_s(view), policy.slowdowns(view), together.easing()
        for row, places in plan.run.items():
            at, level = view.at(row), plan.terms[row].level
            hosts = _hosts(view, places)  # type: ignore[arg-type]
            pairs.made += bool(hosts)
            pairs.cut += bool(hosts) and level > 0
            for host, gpu_type in hosts:
                there = view.at(host)
                a, b = view.kind[at], view.kind[there]
                part = float(eased[a, level] * eased[b, view.level[there]])
                xi_a, xi_b = (1 + part * float(slow[x, y, gpu_type] - 1) for x, y in ((a, b), (b, a)))
                length = float(left[at]) / float(together.pace[a, level])
                pairs.refused += policy.tests and not pays(length, float(left[there]), xi_a, xi_b)
        return plan

    policy.decide = decide  # type: ignore[method-assign]


def _hosts(view: View, places: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int]]:
    """Whoever is on these GPUs already, with the GPU type."""
    found = set()
    for node, _, mask in places:
        first, gpu_type = int(view.site.gpu_first[node]), int(view.site.node_type[node])
        for gpu in range(first, int(view.site.gpu_first[node + 1])):
            host = int(view.site.users[gpu, 0])
            if (mask >> (gpu - first)) & 1 and host >= 0:
                found.add((host, gpu_type))
    return sorted(found)


def _print(cluster: str, load: str, options: argparse.Namespace, table: dict[str, list[Result]]) -> None:
    print(f"\nphilly-like, {options.jobs} jobs, load {load}, {options.seeds} seeds, {cluster}, {options.sharing}")
    heads = "".join(f"{'vs ' + name + ' %':>18}" for name in AGAINST if name in table)
    print(f"{'policy':<38}{'avg JCT s':>10}{'median':>8}{heads}{'shared':>8}{'cut':>7}{'refused':>8}")
    means = {policy: np.array([one.mean_s for one in rows]) for policy, rows in table.items()}
    for policy, rows in table.items():
        cells = ""
        for name in AGAINST:
            if name in means:
                change = 100 * (means[policy] / means[name] - 1)
                cells += f"{f'{change.mean():.1f} ({change.min():.0f}..{change.max():.0f})':>18}"
        made, cut, refused = (sum(getattr(one.pairs, name) for one in rows) for name in ("made", "cut", "refused"))
        median = np.mean([one.median_s for one in rows])
        print(
            f"{policy:<38}{means[policy].mean():>10,.0f}{median:>8,.0f}{cells}{made:>8}{cut:>7}{refused:>8}", flush=True
        )


if __name__ == "__main__":
    main()
