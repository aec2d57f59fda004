"""What attempts leave in the world: processes to end, records to remove."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from cotenant.backends.base import Backend, BackendError


class Cleanup:
    """Clears away, without any lock: all of it may take a while, and all of it may be repeated."""

    def __init__(self, backend: Backend, hook: Callable[[str], None]) -> None:
        self._backend, self._hook = backend, hook

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
        """Let the backend remove the traces of an ended attempt, but its output."""
        self._hook("before:forget")
        with contextlib.suppress(BackendError):  # still dying; the next look sees it again
            self._backend.forget(key, keep_log=True)
        self._hook("after:forget")
