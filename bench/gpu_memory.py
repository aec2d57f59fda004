"""`python -m bench.gpu_memory --state DIR [--model gpt2] [--part 0.55]`: memory that gives, on one real GPU.

Two training jobs, each of which needs a little more than half of the GPU at its peak, by the command line alone:

0 a few steps with two small batches, both at once: from these the batch whose peak is `--part` of the GPU, and how many
  steps take `--work-s` seconds
1 one job alone without a limit: its time and its peak
2 the same with what it would be granted beside the other: what is missing waits on the host; its time gives the curve
3 both under `serve --policy sjf-ffs --oversubscribe 1.5`: granted in part, side by side, until both have ended
4 both under `serve --policy sjf-ffs`: peaks must fit, so one after the other

Shown: the time until both have ended, side by side against one after the other; that neither ran out of memory; that
losses of both are those of the job alone. Exit code 1 where a job failed or a loss differs. Everything is kept in
DIR/memory.json, and what is there is not done again. `--stand-in` tries it without a GPU (virtual GPUs, tiny models):
that it works, not what it is worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from bench.gpu_mix_live import Shell, serving
from cotenant.backends.local import gpus as devices

ROOT = Path(__file__).resolve().parent.parent
TRAIN = ROOT / "examples" / "train"
PEAK = (
    "import runpy, sys, torch; sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rsplit('/', 1)[0]);"
    "runpy.run_path(sys.argv[0], run_name='__main__');"
    "print('peak_gib', torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 1.0)"
)
CONTEXT_GIB = 0.6  # of CUDA itself
SMALL, FEW_STEPS = (16, 64), 12
GRANTED = 0.9  # of its peak: about what each has beside the other at the default part
LATEST_S = 300.0
Found = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--size", default="large")
    parser.add_argument("--part", type=float, default=0.55, help="of the GPU's memory that a job needs at its peak")
    parser.add_argument("--work-s", type=float, default=8.0, help="seconds of steps of one job, about")
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    if options.stand_in:
        options.size, options.model = "tiny", "lstm"
    options.state = options.state.absolute()
    options.state.mkdir(parents=True, exist_ok=True)
    found = measured(options)
    sys.exit(0 if table(found) else 1)


def measured(options: argparse.Namespace) -> Found:
    """All parts, those that are in the file already as they are there."""
    file = options.state / "memory.json"
    found: Found = json.loads(file.read_text()) if file.exists() else {"stand_in": options.stand_in}

    def part(name: str, do: Callable[[], Any]) -> Any:
        if name not in found:
            began = time.monotonic()
            found[name] = do()
            file.write_text(json.dumps(found) + "\n")
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
        return found[name]

    size = {"batch": 4, "steps": 600} if options.stand_in else part("size", lambda: large(options))
    job = Job(options, size["batch"], size["steps"])
    peak_gib = part("alone", lambda: by_itself(job, {}))["peak_gib"]
    granted_gib = round(GRANTED * peak_gib, 2)
    limits = {"COTENANT_GPU_MEM_GIB": f"{granted_gib:g}", "COTENANT_GPU_MEM_PEAK_GIB": f"{peak_gib:g}"}
    squeezed = part("squeezed", lambda: by_itself(job, limits))
    speeds = {granted_gib: round(min(found["alone"]["steps_s"] / squeezed["steps_s"], 1.0), 3)}
    # The bus guard knows the steps of the profile's batch, not of this one: what swapping costs was just measured.
    part("side by side", lambda: both(job, "soft", ["--oversubscribe", "1.5@100000"], peak_gib, speeds))
    part("one after the other", lambda: both(job, "hard", [], peak_gib, speeds))
    return found


class Job:
    """What is run: a training script of `examples/train`."""

    def __init__(self, options: argparse.Namespace, batch: int, steps: int) -> None:
        self.options = options
        asked = {"--size": options.size, "--steps": steps, "--batch": batch}
        more = [str(word) for pair in asked.items() for word in pair]
        self.words = [str(TRAIN / f"{options.model}.py"), *more, "--times"]


def large(options: argparse.Namespace) -> dict[str, int]:
    """The batch at which a job needs its part of this GPU, by a line through two small ones, and how many steps."""
    total_gib = devices.find()[0].mem_gib
    with ThreadPoolExecutor(len(SMALL)) as many:
        ran = list(many.map(lambda batch: by_itself(Job(options, batch, FEW_STEPS), {}), SMALL))
    slope = (ran[1]["peak_gib"] - ran[0]["peak_gib"]) / (SMALL[1] - SMALL[0])
    batch = int((options.part * total_gib - ran[0]["peak_gib"]) / slope) + SMALL[0]
    step_s = ran[1]["steps_s"] / (FEW_STEPS - 1) * batch / SMALL[1]
    return {"batch": batch, "steps": max(round(options.work_s / step_s), 8)}


def by_itself(job: Job, limits: dict[str, str]) -> dict[str, Any]:
    """One job outside of any service: seconds, seconds from its first step on, GiB at its peak and its last loss."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, *job.words], env={**os.environ, **limits, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"{job.words}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    lines = ran.stdout.splitlines()
    peak_gib = next(float(line.split()[1]) for line in lines if line.startswith("peak_gib"))
    said = next(json.loads(line) for line in lines if line.startswith("{"))
    return {
        "took_s": time.monotonic() - began, "steps_s": said["times"][-1] - said["times"][0],
        "peak_gib": peak_gib + CONTEXT_GIB, "loss": said["loss"],
    }  # fmt: skip


def both(job: Job, name: str, more: list[str], peak_gib: float, speeds: dict[float, float]) -> dict[str, Any]:
    """Two such jobs under the service."""
    options = job.options
    if options.stand_in:
        os.environ["COTENANT_VIRTUAL_GPU_MEM"] = f"{peak_gib / options.part:.2f}"
    path = os.pathsep.join(dict.fromkeys([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
    jobs = {
        "run": " ".join([sys.executable, *job.words]), "gpus": 1, "model": options.model, "expected": 60,
        "gpu_mem": round(peak_gib, 2), "gpu_mem_min": round(0.7 * peak_gib, 2), "gpu_mem_speeds": speeds,
        "env": {"PYTHONPATH": path},
    }  # fmt: skip
    file = options.state / "job.yaml"
    file.write_text(yaml.safe_dump(jobs))
    start = ["--policy", "sjf-ffs", "--profile", "h200", *(["--gpus", "1"] if options.stand_in else []), *more]
    with serving(options.state / f"{name}-{time.time():.0f}", start) as shell:
        began = time.monotonic()
        ids = [shell.ask("submit", str(file))["ids"][0][0] for _ in range(2)]
        states, granted = watched(shell, ids, began)
        took_s = time.monotonic() - began
        said = [line for one in ids for line in shell.run("logs", one).splitlines() if line.startswith("{")]
        errors = [shell.run("logs", one, "--stderr", check=False)[-1500:] for one in ids if states[one] != "succeeded"]
    losses = [json.loads(line)["loss"] for line in said]
    return {
        "took_s": took_s, "states": list(states.values()), "granted": granted, "losses": losses, "errors": errors,
    }  # fmt: skip


def watched(shell: Shell, ids: list[str], began: float) -> tuple[dict[str, str], list[str]]:
    """Wait for the end of all; their states, and the reasons that told of memory meanwhile."""
    granted: set[str] = set()
    while True:
        jobs = [shell.ask("show", job) for job in ids]
        granted |= {job["reason"] for job in jobs if "granted" in (job["reason"] or "")}
        if all(job["ended_s"] is not None for job in jobs) or time.monotonic() - began > LATEST_S:
            return {job["id"]: job["state"] for job in jobs}, sorted(granted)
        time.sleep(0.5)


def table(found: Found) -> bool:
    """Print it; whether nothing is wrong."""
    alone, squeezed = found["alone"], found["squeezed"]
    size = found.get("size", {})
    print(f"{size.get('steps', '')} steps at batch {size.get('batch', '')}, {alone['peak_gib']:.1f} GiB at the peak")
    print(f"alone: {alone['took_s']:.1f} s, steps {alone['steps_s']:.1f} s")
    print(f"alone, with {GRANTED:.0%} of that: {squeezed['took_s']:.1f} s, steps {squeezed['steps_s']:.1f} s")
    good = abs(squeezed["loss"] - alone["loss"]) < 1e-4
    for name in ("side by side", "one after the other"):
        one = found[name]
        print(f"{name}: {one['took_s']:.1f} s; {one['states']}; {'; '.join(one['granted']) or 'all memory granted'}")
        right = one["states"] == ["succeeded"] * 2 and all(abs(loss - alone["loss"]) < 1e-4 for loss in one["losses"])
        good &= right and len(one["losses"]) == 2
    return good


if __name__ == "__main__":
    main()
