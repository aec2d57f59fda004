"""Where a process that was started ahead of its GPUs waits for them: the service says `go` when they are its own.

COTENANT_HOLD names the place: `job` is the entry of `runtime.job()`, where no GPU was used yet, `steps` the first step,
when all is built and the model is in the GPU's memory. Other processes do not wait.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

log = logging.getLogger("cotenant.runtime")

JOB, STEPS = "job", "steps"
_FIRST_WORD_S = 30.0  # after so long it says that it waits, then less and less often
_LAST_WORD_S = 3600.0
_UNKNOWN = ("jax", "tensorflow", "cupy")  # libraries that do not tell whether they have used a GPU


class Barrier:
    """Waits once, at its place; a service that goes away and comes back is waited for too."""

    def __init__(self) -> None:
        self.place = os.environ.get("COTENANT_HOLD", "")
        self._go = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether somebody has still to say `go`."""
        return bool(self.place) and not self._go.is_set()

    def open(self) -> None:
        """The GPUs are there."""
        self._go.set()

    def wait(self, place: str, connected: Callable[[], bool]) -> None:
        """Wait here, if this is the place; never for long without a word."""
        if place != self.place:
            return
        began, word_s = time.monotonic(), _FIRST_WORD_S
        while not self._go.wait(word_s):
            away = "" if connected() else "; the service does not answer, end this process if it never comes back"
            log.warning("started ahead, waits for its GPUs for %.0f s%s", time.monotonic() - began, away)
            word_s = min(2 * word_s, _LAST_WORD_S)


def untouched() -> bool:
    """Whether this process has certainly not used a GPU yet."""
    if any(name in sys.modules for name in _UNKNOWN):
        return False
    started: Callable[[], bool] | None = getattr(
        getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None
    )
    return started is None or not started()
