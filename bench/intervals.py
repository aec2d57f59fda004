"""Whether 95 % intervals hold what they promise: how often those of paired differences hold the truth.

    python -m bench.intervals [--only seeds|log]

Seeds: a pool of generated comparisons (two policies, one workload per seed) is the truth; a repetition draws ten seeds
from it and asks for the interval of the mean difference, a thousand times. Log: each repetition is one generated log,
whose interval comes from the moving block bootstrap over its jobs; the truth is the mean over all logs. Exits with 1
where a share is outside its limits.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.core.workload import Floats
from cotenant.report.paired import block_bootstrap, over_seeds
from cotenant.sim.driver import Experiment, simulate
from cotenant.sim.sweep import default_workers
from cotenant.sim.workers import in_processes
from cotenant.workload.generators import generate

CLUSTER, POLICIES = "1x4", ("fifo", "srsf")
POOL, REPETITIONS, SEEDS = 1000, 1000, 10
POOL_JOBS, POOL_LOAD = 40, "inf"  # all at once: differences are not lopsided, as Student's t has it
LOGS, LOG_JOBS, LOG_LOAD = 200, 3000, "0.6"
SEED_LIMITS, LOG_LIMITS = (0.93, 0.97), (0.90, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.intervals", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("seeds", "log"), default="")
    only = parser.parse_args().only
    held = True
    if only != "log":
        held &= _tell("paired t over 10 seeds", *coverage_over_seeds(), SEED_LIMITS)
    if only != "seeds":
        held &= _tell(f"block bootstrap over {LOG_JOBS} jobs", *coverage_over_logs(), LOG_LIMITS)
    sys.exit(0 if held else 1)


def _tell(what: str, share: float, count: int, limits: tuple[float, float]) -> bool:
    low, high = limits
    good = low <= share <= high
    wanted = f"{100 * low:.0f} to {100 * high:.0f} wanted"
    print(f"{what}: {100 * share:.1f} % of {count} intervals hold the truth ({wanted}){'' if good else ' FAILED'}")
    return good


def coverage_over_seeds(pool: int = POOL, repetitions: int = REPETITIONS) -> tuple[float, int]:
    """The share of repetitions whose interval holds the mean difference of the whole pool."""
    pairs = _played(pool, POOL_JOBS, POOL_LOAD)
    means = np.array([[float(np.mean(ours)), float(np.mean(theirs))] for ours, theirs in pairs])
    truth = float((means[:, 1] - means[:, 0]).mean())
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(repetitions):
        drawn = rng.choice(pool, SEEDS, replace=False)
        rows = [
            {"policy": policy, "seed": int(seed), "avg_jct_s": means[seed, at]}
            for seed in drawn
            for at, policy in enumerate(POLICIES)
        ]
        made = over_seeds(rows, POLICIES[0], "avg_jct_s")[POLICIES[1]]
        held += made.low <= truth <= made.high
    return held / repetitions, repetitions


def coverage_over_logs(logs: int = LOGS, jobs: int = LOG_JOBS) -> tuple[float, int]:
    """The share of logs whose interval holds the mean difference per job over all logs."""
    changes = [theirs - ours for ours, theirs in _played(logs, jobs, LOG_LOAD)]
    truth = float(np.mean([change.mean() for change in changes]))
    held = 0
    for change in changes:
        mean, half, _ = block_bootstrap(change)
        held += half is not None and abs(mean - truth) <= half
    return held / logs, logs


def _played(count: int, jobs: int, load: str) -> list[tuple[Floats, Floats]]:
    """Completion times of every job under both policies, one workload per seed."""

    def run(seed: int) -> tuple[Floats, Floats]:
        spec = Spec.parse(f"gavel-like:jobs={jobs},seed={seed},load={load},multi=false")
        work, cluster = generate(spec, 4, None), Cluster.parse(CLUSTER)
        made: list[Outcome] = [
            simulate(Experiment(work, cluster, policy, costs="none", compiled=True)) for policy in POLICIES
        ]
        return made[0].jct_s, made[1].jct_s

    run(0)  # loads what is compiled, once for all processes
    batch = 25  # a process for each would cost more than its runs
    parts = dict(
        in_processes(lambda at: [run(seed) for seed in range(at * batch, min((at + 1) * batch, count))],
                     range(-(-count // batch)), default_workers())
    )  # fmt: skip
    return [pair for at in sorted(parts) for pair in parts[at]]


if __name__ == "__main__":
    main()
