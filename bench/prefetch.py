"""A chain of jobs on one GPU, with and without `--prefetch-starts`: `python -m bench.prefetch`.

Real processes on a virtual GPU: each imports and builds for a while (asleep, the GPU idle), then makes its steps.
With the option the start of each but the first is hidden behind the one before; the first one tells that its kind
waits for `go`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import cotenant
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Options
from cotenant.service.run import Site, open_service
from cotenant.testing.live import running

ME = Caller("bench", Role.ADMIN)
LIMIT_S = 300.0


def play(options: argparse.Namespace, prefetch: bool) -> dict[str, float]:
    """Makespan and the mean time from having the GPU to the first step, in seconds."""
    half = options.start_up / 2
    with tempfile.TemporaryDirectory(prefix="cotenant-prefetch-") as folder:
        trail = Path(folder, "trail")
        run = (
            f"{sys.executable} {Path(__file__).with_name('ahead_job.py')} --import {half} --build {half}"
            f" --step-time {options.step_time} --trail {trail} --steps"
        )
        env = {"PYTHONPATH": str(Path(cotenant.__file__).parents[1])}
        works = [options.work * (1 + options.vary * (k % 3 - 1)) for k in range(options.jobs)]
        jobs = [
            {"run": f"{run} {round(work / options.step_time)}", "expected": options.start_up + work, "env": env}
            for work in works
        ]
        settings = Options(Path(folder, "home"), 5.0, policy="fifo", prefetch_starts=prefetch)
        with running(open_service(settings, Site(gpus=options.gpus))) as service:
            began = time.time()
            service.desk.submit(ME, [parse_job({**job, "gpu_mem": options.gpu_mem}) for job in jobs])
            seq = 0
            while service.store.book.active:
                if time.time() > began + LIMIT_S:
                    raise SystemExit("the jobs have not ended in time")
                seq = service.store.wait_beyond(seq, 0.25)
            done = list(service.store.book.jobs.values())
            firsts = [line.split() for line in trail.read_text().splitlines() if line.startswith("first ")]
        wall = time.time() - time.monotonic()
        steps_at = {key.rpartition("-")[0]: wall + float(at) for _, key, at in firsts}
        idle = [steps_at[one.id] - (one.started_s or 0.0) for one in done][options.gpus :]
        return {
            "makespan_s": round(max(one.ended_s or 0.0 for one in done) - began, 2),
            "first_step_after_s": round(sum(idle) / max(len(idle), 1), 2),
            "ahead": sum(bool(one.last.ahead_s) for one in done),
            "in_vain": sum(attempt.holds for one in done for attempt in one.attempts),
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.prefetch", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--start-up", type=float, default=2.0, help="seconds of imports and building")
    parser.add_argument("--work", type=float, default=3.0, help="seconds of steps")
    parser.add_argument("--vary", type=float, default=0.0, help="by which part of it jobs differ")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--step-time", type=float, default=0.05)
    parser.add_argument("--gpu-mem", type=float, default=10.0, help="GiB; above 40 they wait before they build")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: play(options, name == "prefetch") for name in ("plain", "prefetch")}
    if options.json:
        print(json.dumps(found))
        return 0
    print(
        f"{options.jobs} jobs of {options.start_up:g} s start-up and {options.work:g} s of steps on {options.gpus} GPUs"
    )
    for name, row in found.items():
        print(f"{name:<10}" + "".join(f"{key} {value:>7g}   " for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
