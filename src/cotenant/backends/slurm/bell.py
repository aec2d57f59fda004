"""A wait for news through a shared folder: keepers on any node touch one file, and whoever asks in between wakes it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_LOOK_S = 0.05


class Bell:
    """One thread waits; the rest may ring. No node tells us when a file changes, so its time is looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(0o600)
        self._rung = threading.Event()
        self._seen = self._mark()

    def _mark(self) -> int:
        try:
            return os.stat(self.path).st_mtime_ns
        except OSError:
            return 0

    def wake(self) -> None:
        """End a wait, the present or the next one."""
        self._rung.set()

    def wait(self, timeout_s: float | None) -> bool:
        """True when there was something."""
        until_s = time.monotonic() + timeout_s if timeout_s is not None else None
        while True:
            mark = self._mark()
            if mark != self._seen:
                self._seen = mark
                return True
            left_s = _LOOK_S if until_s is None else min(_LOOK_S, until_s - time.monotonic())
            if self._rung.wait(max(left_s, 0.0)):
                self._rung.clear()
                return True
            if left_s <= 0:
                return False
