"""One process per file. The lock belongs to the process, so the system frees it however the process ends.

A POSIX record lock, unlike `flock`, is not inherited by a forked child: jobs that outlive the service do not
keep its journal. Such a lock does not keep out its own process; the set of held paths does that.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from cotenant.journal.errors import JournalBusy

_held: dict[str, tuple[int, int]] = {}
_guard = threading.Lock()


class FileFence:
    """Exclusive hold of a lock file, which stays behind: deleting it would let two processes in."""

    def __init__(self, path: Path) -> None:
        self._path = os.path.realpath(path)

    def acquire(self, what: str) -> None:
        """Take the lock or raise `JournalBusy`, naming `what` and its holder; never waits."""
        with _guard:
            if _held.get(self._path, (0, 0))[0] == os.getpid():
                raise JournalBusy(f"{what} is already open in this process: close it first")
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
                os.close(lock)
                if not isinstance(error, BlockingIOError | PermissionError):
                    raise
                raise JournalBusy(
                    f"{what} is in use by process {holder}: stop that service or choose another"
                ) from None
            os.truncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
            _held[self._path] = os.getpid(), lock

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        with _guard:
            pid, lock = _held.get(self._path, (0, 0))
            if pid == os.getpid():
                del _held[self._path]
                os.close(lock)
