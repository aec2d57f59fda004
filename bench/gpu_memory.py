"""`python -m bench.gpu_memory --state DIR [--model gpt2] [--steps 60]`: memory that gives, on one real GPU.

Two training jobs whose peaks are two thirds of the GPU each, by the command line alone; everything that was measured is
kept in DIR/memory.json:

0 a few steps with two small batches: from these the batch whose peak is two thirds of the GPU
1 one job alone without a limit: its speed and its peak
2 the same with three quarters of its peak: optimizer state and activations on the host; its speed gives the curve
3 both under `serve --policy sjf-ffs --oversubscribe 1.5`: granted in part, side by side, until both have ended
4 both under `serve --policy sjf-ffs`: peaks must fit, so one after the other

Shown: the time until both have ended, side by side against one after the other; that neither ran out of memory; that
losses of both are those of the job alone. Exit code 1 where a job failed or a loss differs. `--stand-in` tries it
without a GPU (virtual GPUs, tiny models): that it works, not what it is worth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from bench.gpu_mix_live import Shell, serving

ROOT = Path(__file__).resolve().parent.parent
TRAIN = ROOT / "examples" / "train"
PEAK = (
    "import runpy, sys, torch; sys.argv = sys.argv[1:]; sys.path.insert(0, sys.argv[0].rsplit('/', 1)[0]);"
    "runpy.run_path(sys.argv[0], run_name='__main__');"
    "print('peak_gib', torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 1.0)"
)
CONTEXT_GIB = 0.6  # of CUDA itself
LATEST_S = 500.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--size", default="large")
    parser.add_argument("--batch", type=int, default=0, help="else as large as step 0 says")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    if options.stand_in:
        options.size, options.batch, options.steps, options.model = "tiny", 4, 600, "lstm"
    options.state = options.state.absolute()
    options.state.mkdir(parents=True, exist_ok=True)
    options.batch = options.batch or large_batch(options)
    alone = by_itself(options, {})
    part_gib = 0.75 * alone["peak_gib"]
    limits = {"COTENANT_GPU_MEM_GIB": f"{part_gib:g}", "COTENANT_GPU_MEM_PEAK_GIB": f"{alone['peak_gib']:g}"}
    squeezed = by_itself(options, limits)
    found: dict[str, Any] = {"alone": alone, "squeezed": squeezed, "batch": options.batch, "stand_in": options.stand_in}
    speeds = {round(part_gib, 2): round(min(alone["took_s"] / squeezed["took_s"], 1.0), 3)}
    # The bus guard knows the steps of the profile's batch, not of this one: what swapping costs was just measured.
    for name, more in (("side by side", ["--oversubscribe", "1.5@100000"]), ("one after the other", [])):
        found[name] = both(options, name, more, alone["peak_gib"], speeds)
    (options.state / "memory.json").write_text(json.dumps(found) + "\n")
    sys.exit(0 if table(found) else 1)


def large_batch(options: argparse.Namespace) -> int:
    """The batch at which a job needs two thirds of this GPU, by a line through two small ones."""
    import torch

    total_gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    sizes = 16, 64
    steps, options.steps = options.steps, 4
    peaks = []
    for options.batch in sizes:
        peaks.append(by_itself(options, {})["peak_gib"])
    options.steps = steps
    slope = (peaks[1] - peaks[0]) / (sizes[1] - sizes[0])
    return int((0.66 * total_gib - peaks[0]) / slope) + sizes[0]


def words(options: argparse.Namespace) -> list[str]:
    """The training command without the interpreter."""
    asked = {"--size": options.size, "--steps": options.steps, "--batch": options.batch}
    return [str(TRAIN / f"{options.model}.py"), *(str(word) for pair in asked.items() for word in pair)]


def by_itself(options: argparse.Namespace, limits: dict[str, str]) -> dict[str, Any]:
    """One job outside of any service: seconds, GiB at its peak and its last loss."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, *words(options)], env={**os.environ, **limits, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"{options.model}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines() if line.startswith("peak_gib"))
    loss = next(json.loads(line)["loss"] for line in ran.stdout.splitlines() if line.startswith("{"))
    return {"took_s": time.monotonic() - began, "peak_gib": float(said["peak_gib"]) + CONTEXT_GIB, "loss": loss}


def both(
    options: argparse.Namespace, name: str, more: list[str], peak_gib: float, speeds: dict[float, float]
) -> dict[str, Any]:
    """Two such jobs under the service, on a GPU that has 1.5 times what one needs."""
    folder = options.state / name.replace(" ", "-")
    if options.stand_in:
        os.environ["COTENANT_VIRTUAL_GPU_MEM"] = f"{1.5 * peak_gib:.2f}"
    jobs = {
        "run": " ".join([sys.executable, *words(options)]), "gpus": 1, "model": options.model, "expected": 60,
        "gpu_mem": round(peak_gib, 2), "gpu_mem_min": round(0.7 * peak_gib, 2), "gpu_mem_speeds": speeds,
        "env": {"PYTHONPATH": str(ROOT / "src")},
    }  # fmt: skip
    file = options.state / "job.yaml"
    file.write_text(yaml.safe_dump(jobs))
    start = ["--policy", "sjf-ffs", "--profile", "h200", *(["--gpus", "1"] if options.stand_in else []), *more]
    with serving(folder / "home", start) as shell:
        began = time.monotonic()
        ids = [shell.ask("submit", str(file))["ids"][0][0] for _ in range(2)]
        seen, took_s = watched(shell, ids, began)
        outputs = [shell.run("logs", job) for job in ids]
    losses = [json.loads(line)["loss"] for text in outputs for line in text.splitlines() if line.startswith("{")]
    return {"took_s": took_s, "states": seen["states"], "granted": seen["granted"], "losses": losses}


def watched(shell: Shell, ids: list[str], began: float) -> tuple[dict[str, Any], float]:
    """Wait for the end of all; the reasons that told of memory meanwhile."""
    granted: set[str] = set()
    while True:
        jobs = [shell.ask("show", job) for job in ids]
        granted |= {job["reason"] for job in jobs if "granted" in (job["reason"] or "")}
        states = [job["state"] for job in jobs]
        if all(job["ended_s"] is not None for job in jobs) or time.monotonic() - began > LATEST_S:
            return {"states": states, "granted": sorted(granted)}, time.monotonic() - began
        time.sleep(0.5)


def table(found: dict[str, Any]) -> bool:
    """Print it; whether nothing is wrong."""
    alone, squeezed = found["alone"], found["squeezed"]
    print(
        f"alone {alone['took_s']:.1f} s at {alone['peak_gib']:.1f} GiB; with three quarters {squeezed['took_s']:.1f} s"
    )
    good = True
    for name in ("side by side", "one after the other"):
        one = found[name]
        print(f"{name}: {one['took_s']:.1f} s; {one['states']}; {'; '.join(one['granted']) or 'all memory granted'}")
        right = one["states"] == ["succeeded"] * 2 and all(abs(loss - alone["loss"]) < 1e-4 for loss in one["losses"])
        good &= right and len(one["losses"]) == 2
    return good and abs(squeezed["loss"] - alone["loss"]) < 1e-4


if __name__ == "__main__":
    main()
