"""Who is to wait at the barrier of its start, and which jobs have said that they would."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cotenant.runtime.protocol import Built, Go, Hello, JobMessage

JOB, STEPS = "job", "steps"  # places, as in COTENANT_HOLD


class StartBarrier:
    """Asked and told from any thread. Nobody in here hears `go`, not even after a restart of the service.

    `say(job, message)` reaches the processes of a job that are connected.
    """

    def __init__(self) -> None:
        self.say: Callable[[str, Go], object] = lambda job, message: None
        self._lock = threading.Lock()
        self._waits: set[str] = set()
        self._said: dict[str, set[str]] = {}

    def hold(self, job: str) -> None:
        """Its process waits until it is released."""
        with self._lock:
            self._waits.add(job)

    def go(self, job: str) -> None:
        """Its GPUs are its own: whoever waits for them in its start goes on, now or when it connects."""
        self.release(job)
        self.say(job, Go())

    def release(self, job: str) -> None:
        """Its process need not wait any more, or is gone."""
        with self._lock:
            self._waits.discard(job)

    def lets_go(self, hello: Hello) -> bool:
        """Whether somebody who asks is to be told `go`."""
        with self._lock:
            return hello.waits and hello.job not in self._waits

    def hear(self, hello: Hello, message: JobMessage) -> None:
        """Note at which places a job would wait."""
        place = JOB if isinstance(message, Hello) and message.untouched else STEPS if isinstance(message, Built) else ""
        if place:
            with self._lock:
                self._said.setdefault(hello.job, set()).add(place)

    def said(self) -> dict[str, set[str]]:
        """What jobs have said since this was asked last."""
        with self._lock:
            found, self._said = self._said, {}
            return found
