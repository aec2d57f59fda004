"""Ends the jobs of a node that is lost, also where only what held it has died there: they are started anew elsewhere.

    python -m cotenant.backends.agent.leash RECORDS HOME NODE HOLDER TICKS

It sleeps until the process HOLDER is gone, kills what the records name, keeps the output at HOME, and removes the rest.
One is enough for each life of a node.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import sys
import time
from pathlib import Path

_GIVE_UP_S = 600.0
_LOOK_S = 30.0


def main(records: Path, home: Path, node: str, holder: int, ticks: int) -> None:
    """In a process of its own, which whoever called this one does not wait for."""
    lock = os.open(records / "leash", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # there is one already
    if await_end(holder, ticks, records):
        end_all(records, home, node)


def await_end(pid: int, ticks: int, records: Path) -> bool:
    """Sleep until this very process is gone; False if the records are gone before, which nobody needs any more."""
    from cotenant.backends.local import procs

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    while procs.is_process(pid, ticks) and not select.select([handle], [], [], _LOOK_S)[0]:
        if not records.exists():
            return False
    os.close(handle)
    return True


def end_all(records: Path, home: Path, node: str) -> None:
    """Kill, keep the output, remove."""
    from cotenant.backends.base import BackendError
    from cotenant.backends.local import LocalBackend

    backend, give_up = LocalBackend(records, None, ["gpu"], name=node, home=home), time.monotonic() + _GIVE_UP_S
    while (found := backend.observe()) and time.monotonic() < give_up:
        for one in found:
            try:
                if one.alive:
                    backend.kill(one.key)
                else:
                    backend.forget(one.key, keep_log=True)
            except BackendError:
                continue  # it is still dying
        backend.wait_change(0.1)
    backend.close()
    shutil.rmtree(records, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
