"""Slow policies get so many seconds per decision; an answer that comes late counts for the next one.

One decision is in the making at a time. When time is up the service goes on with its last plan; the worker is
not interrupted (a thread cannot be), and its answer is taken when it is there. The service checks every answer
against the present before it acts, so a late one is at worst not the best.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cotenant.service.planner.live import Verdict


class Budget:
    """Runs decisions in a thread of its own, for at most `seconds` per question."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._work: _Work | None = None

    def decide(self, think: Callable[[], Verdict]) -> Verdict | None:
        """The verdict, perhaps of an earlier question; None when time is up."""
        if self._work is None:
            self._work = _Work(think)
        work = self._work
        if not work.done.wait(self.seconds):
            return None
        self._work = None
        if work.error is not None:
            raise work.error
        return work.verdict


class _Work:
    def __init__(self, think: Callable[[], Verdict]) -> None:
        self.done = threading.Event()
        self.verdict = Verdict()
        self.error: BaseException | None = None
        self._think = think
        threading.Thread(target=self._run, name="decision", daemon=True).start()

    def _run(self) -> None:
        try:
            self.verdict = self._think()
        except BaseException as error:  # told to whoever asks for the verdict
            self.error = error
        self.done.set()
