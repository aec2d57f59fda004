"""What `bench.gpu_mix --stand-in` runs in the place of a training script: timed waits that behave like one on a GPU.

    python bench/stand_in_job.py --start 1.5 --steps 100 --host 0.01 --gpu 0.04 --busy-dir DIR

Starting takes a while, the first steps are cold, and the GPU part of a step is longer while others, whose marks in
`--busy-dir` are fresh, use the GPU too. A suspended job leaves no fresh mark. The loss depends on the steps alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

from cotenant import runtime

COLD = (8.0, 3.0, 1.5)  # how many times longer the first steps of an attempt are
FRESH_S = 0.5
SAVE_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=float, default=1.5, help="seconds before the first step")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--host", type=float, default=0.01, help="seconds of a step in which the GPU has nothing to do")
    parser.add_argument("--gpu", type=float, default=0.04, help="seconds of a step on the GPU, alone")
    parser.add_argument("--batch", type=int, default=0, help="samples per step, for what the runtime is told")
    parser.add_argument("--busy-dir", type=Path, required=True, help="where those that use the GPU leave marks")
    parser.add_argument("--times", action="store_true", help="print when each step was done, Unix seconds")
    parser.add_argument("--no-save", action="store_true", help="it cannot save, and is suspended instead")
    args = parser.parse_args()
    busy = args.gpu / (args.host + args.gpu)
    mark = args.busy_dir / f"{os.getpid()}-{busy:.3f}"
    state = {"loss": 1.0}

    def save(path: Path) -> None:
        time.sleep(SAVE_S)
        (path / "state.json").write_text(json.dumps(state))

    with runtime.job(batch_size=max(args.batch, 1)) as job:
        if not args.no_save:
            job.save(save)
            job.restore(lambda path: state.update(json.loads((path / "state.json").read_text())))
        time.sleep(args.start)
        first, times = job.step, []
        for step in job.steps(args.steps):
            mark.touch()
            cold = COLD[step - first] if step - first < len(COLD) else 1.0
            wait(args.host + cold * args.gpu * (1 + others(args.busy_dir, mark)))
            state["loss"] += math.sin(step) / (step + 1)
            job.report(loss=state["loss"])
            times.append(round(time.time(), 3))
        mark.unlink(missing_ok=True)
        said = {"steps": args.steps, "loss": state["loss"]}
        print(json.dumps(said | ({"times": times} if args.times else {})), flush=True)


def wait(seconds: float) -> None:
    """Be held for so long: time in which the process is suspended does not count."""
    while seconds > 0:
        began = time.monotonic()
        time.sleep(min(seconds, 0.02))
        seconds -= min(time.monotonic() - began, 0.05)


def others(folder: Path, mark: Path) -> float:
    """What share of the time others want the GPU, all together."""
    total, now = 0.0, time.time()
    for path in folder.iterdir():
        if path != mark:
            try:
                fresh = now - path.stat().st_mtime < FRESH_S
            except FileNotFoundError:
                continue
            total += float(path.name.rpartition("-")[2]) if fresh else 0.0
    return total


if __name__ == "__main__":
    main()
