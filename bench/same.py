"""Does the live service do what the simulator says? `python -m bench.same`.

Plays a generated workload per policy through the simulator and through the live service on the fake world in virtual
time, with one truth, the same beliefs, options and seeds, under two cost tables: today's, where nothing holds GPUs
beyond the price of restoring, and one in which saving, suspending and starting hold them for seconds. The streams of
transitions have to be equal, exact GPUs included, and completion times within 1e-6 s; otherwise the first difference is
printed and the exit status is 1. `--policy NAME` plays some, `--costs NAME` one table, `--jobs` and `--seed` others.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from cotenant.core import jit
from cotenant.testing.same import Sameness, compare
from cotenant.testing.same_rows import COSTS, Row, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policy", default="", help="only policies whose text begins with this")
    parser.add_argument("--costs", choices=tuple(COSTS), help="only this cost table")
    parser.add_argument("--jobs", type=int, default=0, help="another number of jobs than usual")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jit.enable = lambda: None  # small runs: plain kernels start sooner
    print(f"{'policy':42} {'costs':8} {'transitions':>11} {'apart_s':>9} {'wall_s':>6}  result")
    failed = 0
    for row in rows():
        for costs in [options.costs] if options.costs else COSTS:
            if row.policy.startswith(options.policy):
                failed += not _play(row, costs, options.jobs, options.seed)
    print("all equal" if not failed else f"{failed} differ")
    sys.exit(1 if failed else 0)


def _play(row: Row, costs: str, jobs: int, seed: int) -> bool:
    began = time.perf_counter()
    with TemporaryDirectory() as home:
        try:
            found = compare(row.experiment(costs, jobs, seed), Path(home))
        except Exception as error:
            found = Sameness(0, float("nan"), f"{type(error).__name__}: {error}")
    name = row.policy + (" (elastic)" if row.elastic else "") + (" --defrag" if row.defrag else "")
    wall_s = time.perf_counter() - began
    said = found.difference or "equal"
    print(f"{name:42} {costs:8} {found.transitions:11} {found.apart_s:9.2g} {wall_s:6.1f}  {said}", flush=True)
    return not found.difference


if __name__ == "__main__":
    main()
