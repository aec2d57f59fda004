"""A training script without any dependency whose steps take CPU time and waiting time, each as much as told.

    python examples/cpu_steps.py --steps 200 --cpu 0.02 --wait 0.01

The CPU part stands for preparing input, the waiting part for the GPU: a step with little CPU time runs as fast with a
twentieth of a core as with a whole one, a step that is all CPU time does not.
"""

from __future__ import annotations

import argparse
import hashlib
import time

from cotenant import runtime

_BLOCK = bytes(1 << 14)


def work(seconds: float) -> None:
    """Use this much CPU time of one core."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        hashlib.sha256(_BLOCK).digest()


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--cpu", type=float, default=0.02, help="CPU seconds per step")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds of waiting per step")
    args = parser.parse_args()
    with runtime.job() as job:
        for step in job.steps(args.steps):
            work(args.cpu)
            time.sleep(args.wait)
            job.report(loss=1 / (step + 1))


if __name__ == "__main__":
    main()
