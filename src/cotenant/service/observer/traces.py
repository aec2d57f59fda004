"""What attempts leave in the world: processes to end, records to remove, output to keep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cotenant.backends.base import Backend, BackendError
from cotenant.service.observer.logs import Logs


class Traces:
    """Clears away, without any lock: all of it may take a while, and all of it may be repeated."""

    def __init__(self, backend: Backend, logs: Logs, hook: Callable[[str], None]) -> None:
        self._backend, self._logs, self._hook = backend, logs, hook

    def kill(self, key: str) -> None:
        """End every process of an attempt."""
        self._hook("before:kill")
        self._backend.kill(key)
        self._hook("after:kill")

    def suspend(self, key: str) -> None:
        """Have somebody stand still whose GPUs belong to others, or end him."""
        self._hook("before:suspend")
        if not self._backend.suspend(key):
            self.kill(key)
        self._hook("after:suspend")

    def forget(self, key: str) -> None:
        """Keep the logs of an ended attempt, then let the backend remove its traces."""
        self._hook("before:archive")
        self._logs.keep(key, self._backend.log_paths(key))
        self._hook("after:archive")
        with contextlib.suppress(BackendError):  # still dying; the next look sees it again
            self._backend.forget(key)
        self._hook("after:forget")
