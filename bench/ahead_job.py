"""A job for `bench.prefetch` and `bench.crash`: so many seconds of imports and building, then steps that sleep.

    python bench/ahead_job.py --import 1 --build 1 --steps 40 --step-time 0.05 [--trail FILE]

`--trail` gets a line for each thing that happens: word, key of the attempt, seconds of the monotonic clock.
"""

from __future__ import annotations

import argparse
import os
import time

from cotenant import runtime


def main() -> None:
    """Start up slowly, work a little."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--import", dest="import_s", type=float, default=1.0)
    parser.add_argument("--build", dest="build_s", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-time", type=float, default=0.05)
    parser.add_argument("--trail", default=os.devnull)
    parser.add_argument("--gate", default="", help="the steps end when this file is there")
    options = parser.parse_args()
    with open(options.trail, "a", buffering=1, encoding="utf-8") as trail:

        def say(word: str) -> None:
            trail.write(f"{word} {os.environ.get('COTENANT_KEY', '')} {time.monotonic():.3f}\n")

        say("begin")
        time.sleep(options.import_s)
        with runtime.job() as job:
            time.sleep(options.build_s)
            say("built")
            for step in job.steps(options.steps):
                say("step" if step else "first")
                time.sleep(options.step_time)
                while options.gate and not os.path.exists(options.gate):
                    time.sleep(0.02)
        say("end")


if __name__ == "__main__":
    main()
