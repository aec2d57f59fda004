"""Whose stages take turns with whose, as jobs were told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from cotenant.runtime.protocol import TakeTurns


class TurnLines:
    """Told from one thread, repeated from another. `say(job, message)` reaches the processes that are connected."""

    def __init__(self) -> None:
        self.say: Callable[[str, TakeTurns], object] = lambda job, message: None
        self._lock = threading.Lock()
        self._told: dict[str, TakeTurns] = {}

    def tell(self, wanted: Mapping[str, TakeTurns]) -> None:
        """From now on these take turns, and nobody else: jobs for which that is new hear it."""
        with self._lock:
            before, self._told = self._told, dict(wanted)
        if before == wanted:
            return
        for job in before.keys() | wanted.keys():
            if (message := wanted.get(job, TakeTurns())) != before.get(job):
                self.say(job, message)

    def of(self, job: str) -> TakeTurns:
        """What a job is to know that has just connected: it may have been told otherwise by an earlier service."""
        with self._lock:
            return self._told.get(job, TakeTurns())
