"""SJF-BSBF on a philly-like workload with the pairs measured on an H200.

`python -m bench.bsbf [--jobs 2000] [--seeds 5] [--loads 1.0,1.25,1.5]`. 64 GPUs (8x8:h200), models by a seeded hash.
Average JCT in seconds over seeds, and against tiresias-l and sjf-ffs; every policy with its default options unless
named (`queue_aware=false` is the paper's rule). `noise` rows believe slowdowns that are wrong by a log-normal factor;
the truth stays the table. `refused` counts pairs that the pair test refuses at their start: it must be 0. Sharing is
under MPS unless --sharing says otherwise.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

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
    "srtf",
    "sjf",
    "sjf-ffs",
    "sjf-ffs:consolidate=true",
    "sjf-bsbf",
    "sjf-bsbf:noise=0.2",
    "sjf-bsbf:noise=0.5",
    "sjf-bsbf:consolidate=true",
    "sjf-bsbf:queue_aware=false",
    "sjf-bsbf:queue_aware=false,noise=0.2",
    "sjf-bsbf:queue_aware=false,noise=0.5",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bsbf", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--loads", default="1.0,1.25,1.5")
    parser.add_argument("--sharing", default="mps", choices=("mps", "time-sliced"))
    parser.add_argument("--policies", default="", help="separated by blanks")
    options = parser.parse_args()
    policies = options.policies.split() or list(POLICIES)
    _pairs(options.sharing)
    for load in options.loads.split(","):
        table: dict[str, list[tuple[float, float, int]]] = {policy: [] for policy in policies}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            spec = Spec.parse(f"philly-like:jobs={options.jobs},load={load},seed={seed}")
            work = hashed_models(generate(spec, 64, None), seed)
            for policy in policies:
                table[policy].append(_one(work, policy, f"h200:sharing={options.sharing}", seed))
        _print(load, options, table)


def _pairs(sharing: str) -> None:
    """How much there is to refuse: the pair test over all measured pairs, first the new job, then its host."""
    slow = [(max(1 / a, 1.0), max(1 / b, 1.0)) for a, b in measured.pairs(sharing).values()]
    longer = np.mean([not pays(1e6, 1.0, a, b) for a, b in slow])
    least = [2 * a - a / b - 1 for a, b in slow]
    print(f"{len(slow)} pairs, {sharing}: refused if the new job outlives its host {100 * longer:.0f} %; a shorter one")
    print(f"needs a host {np.median(least):.1f} times as long as itself (median), {max(least):.1f} at most")


def hashed_models(work: Workload, seed: int) -> Workload:
    """Models of the H200 by a hash of the job ids, in place of those that the generator drew: only these have pairs."""
    nothing = Codes(np.zeros(len(work), np.int64), ("",))
    return assign_models(replace(work, model=nothing), f"h200:seed={seed}", "")


def _one(work: Workload, policy: str, profile: str, seed: int) -> tuple[float, float, int]:
    """Average and median JCT, and pairs made that the test refuses."""
    run = Simulation(
        Experiment(
            work, Cluster.parse("8x8:h200"), policy, profile=profile, seed=seed, skip_infeasible=True, compiled=True
        )
    )
    refused = [0]
    if isinstance(run.policy, SjfBsbf) and run.policy.tests:
        _watch(run.policy, refused)
    run.advance(np.inf)
    found = run.outcome().summary
    return float(str(found["avg_jct_s"])), float(str(found["p50_jct_s"])), refused[0]


def _watch(policy: SjfBsbf, refused: list[int]) -> None:
    """Repeat the pair test, as the policy believes it, for every pair of every plan."""
    inner = policy.decide

    def decide(view: View) -> Plan:
        plan = inner(view)
        if plan.run:
            left, slow, site = policy._left_s(view), policy._slowdowns(view), view.site
            together = view.facts.together
            for row, places in plan.run.items():
                kind = view.kind[view.at(row)]
                pace = 1.0 if together is None else float(together.pace[kind, plan.terms[row].level])
                for node, _, mask in places:  # type: ignore[misc]
                    first = int(site.gpu_first[node])
                    for gpu in range(first, int(site.gpu_first[node + 1])):
                        host = int(site.users[gpu, 0])
                        if (mask >> (gpu - first)) & 1 and host >= 0:
                            other = view.kind[view.at(host)]
                            a, b = float(slow[kind, other, 0]), float(slow[other, kind, 0])
                            refused[0] += not pays(float(left[view.at(row)]) / pace, float(left[view.at(host)]), a, b)
        return plan

    policy.decide = decide  # type: ignore[method-assign]


def _print(load: str, options: argparse.Namespace, table: dict[str, list[tuple[float, float, int]]]) -> None:
    print(f"\nphilly-like, {options.jobs} jobs, load {load}, {options.seeds} seeds, sharing {options.sharing}")
    print(f"{'policy':46} {'avg JCT s':>10} {'median':>8} {'vs tiresias-l %':>16} {'vs sjf-ffs %':>14} {'refused':>8}")
    means = {policy: np.array([row[0] for row in rows]) for policy, rows in table.items()}
    base = means.get("tiresias-l")
    ffs = means.get("sjf-ffs")
    for policy, rows in table.items():
        cells = []
        for other in (base, ffs):
            if other is None:
                cells.append(" " * 14)
                continue
            change = 100 * (means[policy] / other - 1)
            cells.append(f"{change.mean():6.1f} ({change.min():.0f}..{change.max():.0f})")
        median = np.mean([row[1] for row in rows])
        print(
            f"{policy:46} {means[policy].mean():10,.0f} {median:8,.0f} {cells[0]:>16} {cells[1]:>14} "
            f"{sum(row[2] for row in rows):8}",
            flush=True,
        )


if __name__ == "__main__":
    main()
