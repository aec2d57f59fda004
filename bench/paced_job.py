"""The script that `bench.fidelity` runs: timed waits and nothing else, so that busy cores do not make it longer.

python bench/paced_job.py --start 0.8 --steps 50 --pace 0.1 --save 0.05

Starting ends `--start` seconds after the process began, however long Python took to load; step k of an attempt ends k
paces after that; a checkpoint takes `--save` seconds. Cotenant's runtime does the rest, as in any training script.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from cotenant import runtime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--start", type=float, default=0.8, help="seconds from the start of the process to the first step"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--pace", type=float, default=0.1, help="seconds per step")
    parser.add_argument("--save", type=float, default=0.05, help="seconds per checkpoint")
    args = parser.parse_args()
    state = {"sum": 0}

    def save(path: Path) -> None:
        ends = time.monotonic() + args.save
        (path / "state.json").write_text(json.dumps(state))
        _sleep_until(ends)

    with runtime.job() as job:
        job.save(save)
        first = job.restore(lambda path: state.update(json.loads((path / "state.json").read_text())))
        began = time.monotonic() - _age_s() + args.start
        _sleep_until(began)
        for step in job.steps(args.steps):
            _sleep_until(began + (step + 1 - first) * args.pace)
            state["sum"] += step
    assert state["sum"] == args.steps * (args.steps - 1) // 2, "a step was lost or done twice"


def _age_s() -> float:
    """Seconds since the kernel made this process."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    main()
