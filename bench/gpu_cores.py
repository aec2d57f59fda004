"""Two CPU-hungry and two light jobs on the cores of a GPU machine: `python -m bench.gpu_cores [--out FILE.json]`.

As `bench.synergy_live`, but the jobs use the GPU (`bench/cores_job.py`), all four the same one: each has a virtual GPU
that stands for a share of it. How busy it is in all is told by the driver. Missed, with exit code 1, if that is 60 % or
more, or if the simulator foretells a mean completion time wrong by more than 5 %. Without a GPU: `--device cpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from bench.synergy_live import Case, compare
from cotenant.backends.local.machine import parse_gpus

SCRIPT = Path(__file__).with_name("cores_job.py")
RULES = ("proportional", "synergy-tune")
STEPS = {"hungry": 500, "light": 500}
WITHIN, BUSY = 0.05, 0.60


def of_machine(cores: int, device: str, scale: float) -> Case:
    """A hungry job has workers for five of sixteen cores, each with twenty milliseconds of CPU time per step;
    a step of a light job takes two in all. Equal parts starve the hungry ones, and the light ones waste theirs."""
    workers = max(cores * 5 // 16, 1)

    def command(name: str, steps: int) -> list[str]:
        hungry = name == "hungry"
        cpu_s, threads, products, wait_s = (0.02 * workers, workers, 2, 0.0) if hungry else (0.002, 1, 4, 0.04)
        times = ["--cpu", f"{cpu_s:g}", "--threads", f"{threads}", "--products", f"{products}", "--wait", f"{wait_s:g}"]
        return [sys.executable, str(SCRIPT), "--steps", str(steps), *times, "--device", device]

    jobs = tuple((name, max(round(STEPS[name] * scale), 20)) for name in ("hungry", "hungry", "light", "light"))
    return Case(jobs, float(cores), command, None, max(cores / 8, 0.1), parse_gpus("share:4"))


@contextmanager
def watching() -> Iterator[list[float]]:
    """How busy the GPU is, sampled while something runs; nothing without one."""
    found: list[float] = []
    over = threading.Event()
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]

    def look() -> None:
        while shutil.which("nvidia-smi") and not over.wait(1.0):
            found.append(
                float(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]) / 100
            )

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="per point of the profiles")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the steps")
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    case = of_machine(options.cores, options.device, options.scale)
    with watching() as busy:
        found = compare(case, RULES, options.runs, options.seconds)
    share = mean(busy) if busy else 0.0
    fine = share < BUSY and all(abs(one.off) <= WITHIN for one in found)
    print(f"the GPU was busy for {share:.0%} of the time (below {BUSY:.0%}), foretold within {WITHIN:.0%}: {fine}")
    if options.out:
        options.out.write_text(
            json.dumps({"busy": share, "allocators": [asdict(one) for one in found]}, indent=1) + "\n"
        )
    sys.exit(int(not fine))


if __name__ == "__main__":
    main()
