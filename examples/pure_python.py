"""A training script without any dependency: paced steps that fold numbers into a state.

    python examples/pure_python.py --steps 100 --step-time 0.05 --out result.json

Each step lasts --step-time seconds, computation included. The state depends on every step, so that a run which was
stopped, or killed, and started again can be compared with an undisturbed one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

from cotenant import runtime


def main() -> None:
    """Run the steps, print the digest and, if asked, write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-time", type=float, default=0.05, help="seconds per step")
    parser.add_argument("--out", type=Path, help="file for the result")
    args = parser.parse_args()
    state = {"digest": ""}

    with runtime.job() as job:
        job.save(lambda path: (path / "state.json").write_text(json.dumps(state)))
        job.restore(lambda path: state.update(json.loads((path / "state.json").read_text())))
        for step in job.steps(args.steps):
            ends = time.monotonic() + args.step_time
            state["digest"] = hashlib.sha256(f"{state['digest']} {step}".encode()).hexdigest()
            time.sleep(max(0.0, ends - time.monotonic()))
            job.report(loss=1 / (step + 1))

        result = {"steps": args.steps, "digest": state["digest"]}
        print(json.dumps(result))
        if args.out:
            args.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
