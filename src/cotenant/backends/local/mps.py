"""NVIDIA's Multi-Process Service: processes on one GPU run side by side instead of by turns.

One control daemon per state directory, with a pipe directory of its own, so that two services do not meet. It is
started with the service and outlives it, as the jobs do that speak to it; the next start finds it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from cotenant.core.errors import InputError

CONTROL = "nvidia-cuda-mps-control"
_PATIENCE_S = 20.0


def start(folder: Path, gpu: str) -> dict[str, str]:
    """Start the daemon unless it runs; what to set for jobs, so that they find it."""
    if gpu != "nvml":
        raise InputError("--share mps needs real GPUs; with virtual ones leave it out")
    if shutil.which(CONTROL) is None:
        raise InputError(f"--share mps needs {CONTROL}, which is not on the PATH: install it, or leave the option out")
    pipe, log = folder / "pipe", folder / "log"
    for path in (pipe, log):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}
    if not _answers(env):
        done = _call([CONTROL, "-d"], env)
        if done is None or done.returncode != 0:
            why = done.stderr.strip() if done is not None else f"no answer in {_PATIENCE_S:g} s"
            raise InputError(f"--share mps: {CONTROL} did not start: {why or 'it does not say why'}; see {log}")
    return {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}


def stop(folder: Path) -> None:
    """End the daemon of a folder that is about to go; the processes that speak to it must be gone."""
    pipe, log = folder / "pipe", folder / "log"
    if pipe.is_dir():
        _call([CONTROL], {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}, "quit\n")


def memory_limit(gpus: int, mem_gib: float) -> str:
    """What a client may take of each of its GPUs, which it counts from 0."""
    return ",".join(f"{index}={int(mem_gib * 1024)}M" for index in range(gpus))


def _answers(env: dict[str, str]) -> bool:
    done = _call([CONTROL], env, "get_server_list\n")
    return done is not None and done.returncode == 0


def _call(argv: list[str], env: dict[str, str], text: str = "") -> subprocess.CompletedProcess[str] | None:
    try:
        around = {**os.environ, **env}
        return subprocess.run(
            argv, env=around, input=text, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
