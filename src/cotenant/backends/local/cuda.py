"""Move a CUDA process's GPU memory to the host and back, without its help (driver 570 and later).

Measured on an H200 (`suspend_resume`): 4 to 12 s out and 1 to 3 s in, against 12 to 21 s for a cold start. NVIDIA's
`cuda-checkpoint` tool is used where it is installed, else the same driver calls are made by a small helper process:
this file, run by path, so that a driver that crashes or hangs takes no service with it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

TIMEOUT_S = 120.0
_RUNNING, _LOCKED, _CHECKPOINTED = 0, 1, 2
_LOCK_TIMEOUT_MS = 10_000


def method() -> Literal["cuda-checkpoint", "driver", "none"]:
    """How GPU memory can be taken from a process here."""
    if shutil.which("cuda-checkpoint"):
        return "cuda-checkpoint"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "none"
    return "driver" if hasattr(driver, "cuCheckpointProcessCheckpoint") else "none"


def move(pids: Iterable[int], out: bool, how: str) -> bool:
    """Move the memory of those processes that use CUDA; the others are passed over. True when none failed."""
    verb = "out" if out else "in"
    done = True
    for pid in sorted(pids):
        done &= _tool(pid, out) if how == "cuda-checkpoint" else _helper(verb, pid)
    return done


def _run(*argv: str) -> tuple[int, str]:
    try:
        ran = subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return -1, ""
    return ran.returncode, ran.stdout.strip()


def _tool(pid: int, out: bool) -> bool:
    code, state = _run("cuda-checkpoint", "--get-state", "--pid", str(pid))
    if code != 0 or state not in ("running", "checkpointed") or (state == "checkpointed") == out:
        return True  # not a CUDA process, or already where it should be
    return _run("cuda-checkpoint", "--toggle", "--pid", str(pid))[0] == 0


def _helper(verb: str, pid: int) -> bool:
    return _run(sys.executable, "-I", "-S", str(Path(__file__).resolve()), verb, str(pid))[0] == 0


class _LockArgs(ctypes.Structure):
    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


def _main(verb: str, pid: int) -> int:
    """Drive one process to the wanted state from whichever it is in, so that a repeated or torn call is harmless."""
    driver = ctypes.CDLL("libcuda.so.1")
    if driver.cuInit(0) != 0:
        return 2
    state = ctypes.c_int(-1)
    if driver.cuCheckpointProcessGetState(pid, ctypes.byref(state)) != 0:
        return 0  # it does not use CUDA
    if verb == "out":
        if state.value == _RUNNING:
            lock = _LockArgs(timeout_ms=_LOCK_TIMEOUT_MS)
            if driver.cuCheckpointProcessLock(pid, ctypes.byref(lock)) != 0:
                return 3
            state.value = _LOCKED
        if state.value == _LOCKED and driver.cuCheckpointProcessCheckpoint(pid, None) != 0:
            driver.cuCheckpointProcessUnlock(pid, None)
            return 4
        return 0
    if state.value == _CHECKPOINTED:
        if driver.cuCheckpointProcessRestore(pid, None) != 0:
            return 5
        state.value = _LOCKED
    if state.value == _LOCKED and driver.cuCheckpointProcessUnlock(pid, None) != 0:
        return 6
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2])))
