"""Processes by their lasting names: pid with start time, marks in the environment, descent from a keeper.

Signals go through a pidfd that was opened before the process was checked, so they never reach a stranger that has
got the same number since.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from cotenant.backends.local.keeper_files import start_ticks, text_of

PROC = Path("/proc")


def boot_id() -> str:
    """The name of this run of the kernel; start times of another one mean nothing."""
    return text_of("/proc/sys/kernel/random/boot_id").strip()


def is_process(pid: int, ticks: int) -> bool:
    """Whether this very process still exists and is not merely a zombie."""
    try:
        return state_of(pid) not in "ZX" and start_ticks(pid) == ticks
    except (IndexError, ValueError):
        return False


def state_of(pid: int) -> str:
    """The one-letter state of proc(5); 'X' when there is no such process."""
    return (text_of(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["X"])[0]


def group_of(pid: int) -> int:
    """The process group of a process, -1 when there is none."""
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def descendants(root: int) -> set[int]:
    """All processes below one, by the kernel's own list of children."""
    found: set[int] = set()
    ahead = [root]
    while ahead:
        pid = ahead.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                for child in map(int, text_of(f"/proc/{pid}/task/{task}/children").split()):
                    if child not in found:
                        found.add(child)
                        ahead.append(child)
    return found


def marked(mark: bytes) -> set[int]:
    """Every process whose environment we may read and that carries the mark.

    In the middle of an exec a process shows no environment at all, so those without any are looked at again.
    """
    found: set[int] = set()
    ahead = {int(name) for name in os.listdir(PROC) if name.isdigit()}
    for pause_s in (0.0, 0.002, 0.01):
        if not ahead:
            break
        select.select([], [], [], pause_s)
        seen = {pid: _environ(pid) for pid in ahead}
        found |= {pid for pid, entries in seen.items() if mark in entries.split(b"\0")}
        ahead = {pid for pid, entries in seen.items() if not entries and _is_program(pid)}
    return found


def _environ(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def environment(pid: int) -> dict[str, str]:
    """With what a process was started; nothing where we may not know."""
    parts = (part.partition(b"=") for part in _environ(pid).split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, sep, value in parts if sep}


def _is_program(pid: int) -> bool:
    """Not one of the kernel's own threads, and ours to read."""
    try:
        return bool(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False


def send(pid: int, number: signal.Signals, check: Callable[[int], bool]) -> bool:
    """Signal a process that passes the check; False when it is gone or somebody else."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not check(pid):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def set_affinity(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Bind every thread of the processes. Two rounds: a thread made during the first inherits from its maker."""
    wanted = set(cores)
    for _ in range(2):
        for pid in pids:
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(int(task), wanted)


def await_end(pid: int, timeout_ms: float) -> None:
    """Sleep until a process has ended, or the time is over."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        poller.poll(timeout_ms)
    finally:
        os.close(handle)
