"""Our loop against the obvious one: `python -m bench.naive`.

The obvious loop is one compiled function, made by the same compiler as ours: at each event it brings all active jobs up
to date, sorts them (insertion sort: hardly anything moved) and gives GPUs out from the first on. It counts GPUs and
knows no costs. Ours is measured on the same terms, and with the defaults (consolidated placement, a cost per
preemption). CPU seconds of the loops alone, in turn, the best of some repetitions; both must agree on average
completion times to a second. Exits with 1 where a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant.core import jit, native
from cotenant.core.cache import cache_folder
from cotenant.core.cluster import Cluster
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.sim.driver import Experiment, Simulation
from cotenant.workload.readers import read

LOGS = {  # file, cluster, largest ratios: on the same terms, and with the defaults
    "philly": ("philly_109k.csv.gz", "128x8", 0.2, 0.35),
    "venus": ("helios_venus_125k.csv.gz", "80x8", 0.5, 0.7),
}
HEADINGS = ("log", "policy", "naive s", "ours s", "ratio", "limit", "defaults s", "ratio", "limit")


def naive(submit: Floats, gpus: Ints, left: Floats, finish: Floats, active: Ints, key: Floats,
          running: Ints, cluster_gpus: int, by_gpus: bool) -> int:  # fmt: skip
    """Play shortest remaining time (or service) first to the end; how many events there were."""
    jobs = submit.shape[0]
    count = arrived = events = 0
    now = 0.0
    while count > 0 or arrived < jobs:
        soonest = submit[arrived] if arrived < jobs else math.inf
        for k in range(count):
            if running[active[k]] == 1:
                soonest = min(soonest, now + left[active[k]])
        passed = soonest - now
        now = soonest
        kept = 0
        for k in range(count):
            job = active[k]
            if running[job] == 1:
                left[job] -= passed
            if running[job] == 1 and left[job] <= 1e-7:
                finish[job] = now
            else:
                active[kept] = job
                kept += 1
        count = kept
        while arrived < jobs and submit[arrived] <= now:
            active[count] = arrived
            count += 1
            arrived += 1
        for k in range(count):
            key[active[k]] = left[active[k]] * gpus[active[k]] if by_gpus else left[active[k]]
        for k in range(1, count):
            job = active[k]
            to = k
            while to > 0 and (
                key[job] < key[active[to - 1]] or (key[job] == key[active[to - 1]] and job < active[to - 1])
            ):
                active[to] = active[to - 1]
                to -= 1
            active[to] = job
        free = cluster_gpus
        for k in range(count):
            job = active[k]
            running[job] = 1 if gpus[job] <= free else 0
            free -= gpus[job] * running[job]
        events += 1
    return events


def main() -> None:
    options = _options()
    compiler = sorted(Path(native.__file__).parent.glob("*.py"))
    sources = [file.read_bytes() for file in (Path(__file__), *compiler)]
    loop = jit.alone(naive, cache_folder("naive", sources))
    jit.enable()
    data = Path(os.environ.get("COTENANT_DATA", "../shared/data")) / "traces"
    print("CPU seconds of the loops alone, best of", options.repeat)
    print("".join(f"{heading:>12}" for heading in HEADINGS), flush=True)
    good = True
    for log in options.logs.split(","):
        file, cluster, *limits = LOGS[log]
        work = read(data / file)
        for policy in ("srsf", "srtf"):
            good = _compare(loop, log, work, Cluster.parse(cluster), policy, limits, options.repeat) and good
    sys.exit(0 if good else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.naive", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--logs", default=",".join(LOGS), help="of these, separated by commas")
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


def _compare(
    loop: Callable[..., int], log: str, work: Workload, cluster: Cluster, policy: str, limits: list[Any], repeat: int
) -> bool:
    """One line of the table; whether it is within its limits."""
    same = Experiment(work, cluster, policy, placement="count", costs="none", compiled=True)
    usual = Experiment(work, cluster, policy, compiled=True)
    took = [math.inf] * 3
    for _ in range(repeat):
        theirs_s, theirs = _naive(loop, work, cluster.gpus, policy == "srsf")
        ours_s, ours = _ours(same)
        usual_s, _usual = _ours(usual)
        took = [min(pair) for pair in zip(took, (theirs_s, ours_s, usual_s), strict=True)]
        if abs(theirs - ours) > 1:
            sys.exit(f"{log}, {policy}: average completion time is {theirs:.1f} s naively, and {ours:.1f} s for us")
    ratios = [took[1] / took[0], took[2] / took[0]]
    cells = [
        log,
        policy,
        *(f"{one:.2f}" for one in (took[0], took[1], ratios[0], limits[0], took[2], ratios[1], limits[1])),
    ]
    print("".join(f"{cell:>12}" for cell in cells), flush=True)
    return all(ratio <= limit for ratio, limit in zip(ratios, limits, strict=True))


def _naive(loop: Callable[..., int], work: Workload, gpus: int, by_gpus: bool) -> tuple[float, float]:
    """CPU seconds, and the average completion time."""
    import numpy as np

    jobs = len(work)
    submit, left, finish = work.submit_s.astype(float), work.duration_s.astype(float), np.zeros(jobs)
    began = time.process_time()
    loop(submit, work.gpus.astype(np.int64), left, finish, np.zeros(jobs, np.int64), np.zeros(jobs),
         np.zeros(jobs, np.int64), gpus, by_gpus)  # fmt: skip
    return time.process_time() - began, float((finish - submit).mean())


def _ours(experiment: Experiment) -> tuple[float, float]:
    """The same."""
    run = Simulation(experiment)
    began = time.process_time()
    run.advance(math.inf)
    return time.process_time() - began, float(str(run.outcome().summary["avg_jct_s"]))


if __name__ == "__main__":
    main()
