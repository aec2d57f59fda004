"""The script that `bench.gavel_live` runs: steps that take as long as the GPU type says, by timed waits.

python bench/typed_job.py v100=0.05,p100=0.1,k80=0.25

The type is in COTENANT_GPU_TYPE. A checkpoint holds the seconds spent in steps, by type; writing it takes next to
nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from cotenant import runtime


def main() -> None:
    gpu_type = os.environ["COTENANT_GPU_TYPE"]
    pace_s = {name: float(pace) for name, _, pace in (part.partition("=") for part in sys.argv[1].split(","))}[gpu_type]
    worked_s: dict[str, float] = {}
    with runtime.job() as job:
        job.save(lambda path: (path / "worked.json").write_text(json.dumps(worked_s)))
        job.restore(lambda path: worked_s.update(json.loads((path / "worked.json").read_text())))
        for _ in job.steps():
            began = time.monotonic()
            time.sleep(pace_s)
            worked_s[gpu_type] = worked_s.get(gpu_type, 0.0) + time.monotonic() - began


def worked(checkpoints: Path) -> dict[str, float]:
    """Seconds in steps by type, from the newest checkpoint of a job."""
    files = sorted(checkpoints.glob("**/worked.json"), key=lambda path: path.stat().st_mtime)
    found: dict[str, float] = json.loads(files[-1].read_text()) if files else {}
    return found


if __name__ == "__main__":
    main()
