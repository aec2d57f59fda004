"""Slow policies get so many seconds per decision; an answer that comes late counts for the next one.

One decision is in the making at a time. When time is up the service goes on with what it has; the worker is not
interrupted (a thread cannot be), and its answer is taken when it is there. Until then nothing is told to the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cotenant.core.decision import Decision


class Budget:
    """Runs decisions in a thread of its own, for at most `seconds` per question."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._work: _Work | None = None

    @property
    def busy(self) -> bool:
        """Whether an answer is still to come."""
        return self._work is not None

    def decide(self, think: Callable[[], Decision] | None = None) -> Decision | None:
        """The answer, to an earlier question if there is one; None when time is up."""
        if self._work is None:
            assert think is not None
            self._work = _Work(think)
        work = self._work
        if not work.done.wait(self.seconds):
            return None
        self._work = None
        if work.error is not None:
            raise work.error
        return work.decision


class _Work:
    def __init__(self, think: Callable[[], Decision]) -> None:
        self.done = threading.Event()
        self.decision: Decision | None = None
        self.error: BaseException | None = None
        self._think = think
        threading.Thread(target=self._run, name="decision", daemon=True).start()

    def _run(self) -> None:
        try:
            self.decision = self._think()
        except BaseException as error:  # told to whoever asks for the decision
            self.error = error
        self.done.set()
