"""Notices a run that goes on for ever: decisions follow each other, but every job is stopped before it has restored."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import State

MOST_DECISIONS = 2_000  # without progress of any job


class Stall:
    """Looks at a run now and then. While jobs arrive or finish that is two comparisons."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._next_look = int(state.x[col.N_DECISIONS]) + MOST_DECISIONS
        self._came_and_went = self._counts()
        self._done: tuple[float, ...] | None = None
        self._since_s, self._stops = 0.0, 0

    def _counts(self) -> tuple[int, int]:
        return int(self._state.x[col.NEXT_ARRIVAL]), int(self._state.x[col.N_FINISHED])

    def _work_done(self) -> tuple[float, ...]:
        """Two numbers of which one moves whenever any job gets on."""
        f, i, now = self._state.f, self._state.i, float(self._state.t[col.NOW])
        since = np.maximum(f[:, col.WARM], f[:, col.RATED])
        runs = (i[:, col.STATE] == col.RUNNING) & (since < now)
        done = f[:, col.DONE].sum() + ((now - since[runs]) * f[runs, col.SPEED]).sum()
        return float(i[:, col.ATTEMPT].sum()), float(done)

    def at(self) -> int:
        """The row of a job that is stopped again and again, where nobody has got on for long; else -1.

        For so many decisions, and for longer than any start takes: whoever had been left alone would be further.
        """
        state, counts = self._state, self._counts()
        if state.x[col.N_DECISIONS] < self._next_look:
            return -1
        self._next_look = int(state.x[col.N_DECISIONS]) + MOST_DECISIONS
        if counts != self._came_and_went:
            self._came_and_went, self._done = counts, None
            return -1
        done, stops = self._work_done(), int(state.i[:, col.PREEMPTS].sum())
        if done != self._done:
            self._done, self._since_s, self._stops = done, float(state.t[col.NOW]), stops
            return -1
        active = np.flatnonzero(np.isin(state.i[:, col.STATE], (col.WAITING, col.RUNNING)))
        passed_s = float(state.t[col.NOW]) - self._since_s
        longest_s = (state.f[active, col.RESTORE] + state.f[active, col.START_UP]).max(initial=0.0)
        if not len(active) or stops == self._stops or passed_s <= longest_s:
            return -1
        return int(active[np.argmax(state.i[active, col.PREEMPTS])])
