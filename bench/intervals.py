"""Whether 95 % intervals hold what they promise: how often those of paired differences hold the truth.

    python -m bench.intervals [--only seeds|others|log]

Seeds: a pool of generated comparisons (two policies, one workload per seed) is the truth; a repetition draws ten seeds
from it and asks for the interval of the mean difference, a thousand times: of jobs that come all at once, whose
differences are near normal, and of a light load, where a few seeds make most of the difference (skewness -3.3). Others:
the same of workloads on which no limit is set, with Student's t beside it. Log: each repetition is one generated log,
whose interval comes from the moving block bootstrap over its jobs; the truth is the mean over all logs. Exits with 1
where a share is outside its limits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.core.workload import Floats
from cotenant.report.paired import block_bootstrap, over_seeds
from cotenant.report.stats import estimate
from cotenant.sim.driver import Experiment, simulate
from cotenant.sim.sweep import default_workers
from cotenant.sim.workers import in_processes
from cotenant.workload.generators import generate

POOL, REPETITIONS, SEEDS = 1000, 1000, 10


class Pool(NamedTuple):
    """Comparisons of two policies; `{seed}` of the workload is one of many."""

    workload: str
    cluster: str = "1x4"
    policies: tuple[str, str] = ("fifo", "srsf")


GAVEL = "gavel-like:jobs={jobs},seed={{seed}},load={load},multi=false"
POOLS = {
    "all at once": Pool(GAVEL.format(jobs=40, load="inf")),
    "light load": Pool(GAVEL.format(jobs=40, load="0.6")),
}
OTHERS = {
    "light load, easy and las": Pool(GAVEL.format(jobs=40, load="0.6"), policies=("easy", "las")),
    "gavel-like, 200 jobs, load 0.6": Pool(GAVEL.format(jobs=200, load="0.6")),
    "gavel-like, 100 jobs, load 0.9": Pool(GAVEL.format(jobs=100, load="0.9")),
    "helios-like, 80 jobs, load 0.8": Pool("helios-like:jobs=80,seed={seed},load=0.8", "2x8"),
    "philly-like, 60 jobs, all at once": Pool("philly-like:jobs=60,seed={seed},load=inf", "1x8"),
    "philly-like, 60 jobs, load 0.7": Pool("philly-like:jobs=60,seed={seed},load=0.7", "1x8"),
    "helios-like, 60 jobs, load 1, sjf and las": Pool("helios-like:jobs=60,seed={seed},load=1", "1x8", ("sjf", "las")),
    "gavel-like, 60 jobs, load 0.8": Pool(GAVEL.format(jobs=60, load="0.8")),
}
LOG = Pool(GAVEL.format(jobs=3000, load="0.6"))
LOGS = 200
SEED_LIMITS, LOG_LIMITS = (0.93, 0.97), (0.90, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.intervals", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=("seeds", "others", "log"), default="")
    only = parser.parse_args().only
    held = True
    for name, pool in POOLS.items() if only in ("", "seeds") else ():
        held &= _tell(f"over {SEEDS} seeds, {name}", *coverage_over_seeds(pool), SEED_LIMITS)
    if only == "others":
        print("| workload | Student's t | ours |\n|---|---|---|")
        for name, pool in OTHERS.items():
            plain, ours = (100 * share for share in _coverages(pool, POOL, REPETITIONS))
            print(f"| {name} | {plain:.1f} % | {ours:.1f} % |", flush=True)
    if only in ("", "log"):
        held &= _tell("block bootstrap over 3000 jobs", *coverage_over_logs(), LOG_LIMITS)
    sys.exit(0 if held else 1)


def _tell(what: str, share: float, count: int, limits: tuple[float, float]) -> bool:
    low, high = limits
    good = low <= share <= high
    wanted = f"{100 * low:.0f} to {100 * high:.0f} wanted"
    print(f"{what}: {100 * share:.1f} % of {count} intervals hold the truth ({wanted}){'' if good else ' FAILED'}")
    return good


def coverage_over_seeds(pool: Pool, count: int = POOL, repetitions: int = REPETITIONS) -> tuple[float, int]:
    """The share of repetitions whose interval holds the mean difference of the whole pool."""
    return _coverages(pool, count, repetitions)[1], repetitions


def _coverages(pool: Pool, count: int, repetitions: int) -> tuple[float, float]:
    """The same for Student's t and for the intervals of `compare`."""
    means = np.array([[float(np.mean(ours)), float(np.mean(theirs))] for ours, theirs in _played(pool, count)])
    truth = float((means[:, 1] - means[:, 0]).mean())
    rng = np.random.default_rng(1)
    held = np.zeros(2)
    for _ in range(repetitions):
        drawn = rng.choice(count, SEEDS, replace=False)
        rows = [
            {"policy": policy, "seed": int(seed), "avg_jct_s": means[seed, at]}
            for seed in drawn
            for at, policy in enumerate(pool.policies)
        ]
        plain = estimate(means[drawn, 1] - means[drawn, 0])
        held[0] += plain is not None and abs(plain.mean - truth) <= (plain.half_width or 0.0)
        made = over_seeds(rows, pool.policies[0], "avg_jct_s")[pool.policies[1]]
        held[1] += made.low <= truth <= made.high
    plainly, ours = (held / repetitions).tolist()
    return plainly, ours


def coverage_over_logs(logs: int = LOGS, pool: Pool = LOG) -> tuple[float, int]:
    """The share of logs whose interval holds the mean difference per job over all logs."""
    changes = [theirs - ours for ours, theirs in _played(pool, logs)]
    truth = float(np.mean([change.mean() for change in changes]))
    held = 0
    for change in changes:
        mean, half, _ = block_bootstrap(change)
        held += half is not None and abs(mean - truth) <= half
    return held / logs, logs


def _played(pool: Pool, count: int) -> list[tuple[Floats, Floats]]:
    """Completion times of every job under both policies, one workload per seed."""
    run = _runner(pool)
    run(0)  # loads what is compiled, once for all processes
    batch = 25  # a process for each would cost more than its runs
    parts = dict(
        in_processes(lambda at: [run(seed) for seed in range(at * batch, min((at + 1) * batch, count))],
                     range(-(-count // batch)), default_workers())
    )  # fmt: skip
    return [pair for at in sorted(parts) for pair in parts[at]]


def _runner(pool: Pool) -> Callable[[int], tuple[Floats, Floats]]:
    def run(seed: int) -> tuple[Floats, Floats]:
        cluster = Cluster.parse(pool.cluster)
        work = generate(Spec.parse(pool.workload.format(seed=seed)), cluster.gpus, None)
        made: list[Outcome] = [
            simulate(Experiment(work, cluster, policy, costs="none", compiled=True)) for policy in pool.policies
        ]
        return made[0].jct_s, made[1].jct_s

    return run


if __name__ == "__main__":
    main()
