"""The script that `bench.ffdl` kills: steps of a given pace, checkpoints, and a line per step in a trail."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from cotenant import runtime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trail", type=Path)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--pace", type=float, default=0.05, help="seconds per step")
    args = parser.parse_args()
    with runtime.job() as job, args.trail.open("a", buffering=1) as trail:
        job.save(lambda path: (path / "state").write_text("there is nothing to keep but the step\n"))
        job.restore(lambda path: (path / "state").read_text())
        for step in job.steps(args.steps):
            time.sleep(args.pace)
            trail.write(f"{os.getpid()} {step} {time.monotonic()}\n")


if __name__ == "__main__":
    main()
