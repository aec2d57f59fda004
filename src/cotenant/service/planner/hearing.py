"""What running jobs say of themselves, taken into the tables many at a time; when those begin that have not said it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import repeat

import numpy as np

from cotenant.beliefs.duration import DurationGuess, with_progress
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.lifecycle import JobState
from cotenant.core.workload import Floats, Ints
from cotenant.engine.live_rows import LiveRows
from cotenant.service.observer.said import LEFT, MEAN, SAVES, SPREAD, TOTAL
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob

_LOG, _WEIGHT, _EXIT, _TOTAL, _SAVES = range(5)
"""Logarithm and weight of a step as thought before the job showed it; its exit; steps in all, and whether it saves."""


class Hearing:
    """Which rows speak, and what was thought of them before they did.

    `look` looks at a job anew, by name, and gives its row if its place in line may have changed.
    """

    def __init__(
        self, book: Book, tables: LiveRows, beliefs: LiveBeliefs, types: dict[str, str],
        look: Callable[[str, float], int | None],
    ) -> None:  # fmt: skip
        self._book, self._tables, self._beliefs, self._types, self._look = book, tables, beliefs, types, look
        self._rows: dict[str, int] = {}  # of running jobs that were looked at
        self._before = np.full((1, 5), np.nan)  # of them by row: what does not change while they only report
        self._cold: dict[int, str] = {}  # those that have not made their first step

    def forget(self, name: str, row: int) -> None:
        """A job is over."""
        self._rows.pop(name, None)
        self._cold.pop(row, None)

    def doubt(self, names: Iterable[str]) -> None:
        """More was learned of the like of these jobs: when they speak next, they are looked at anew."""
        for name in names:
            self._rows.pop(name, None)

    def listen(self, job: LiveJob, row: int, now_s: float) -> DurationGuess | None:
        """What its reports mean from here on, and when its start is, or was, over; a step as thought before."""
        report = self._beliefs.reports.of(job.id)
        if row >= len(self._before):
            more = np.zeros((max(len(self._tables.state.f), row + 1) - len(self._before), 5))
            self._before = np.concatenate([self._before, more])
        total, saves, begun = (None, False, False) if report is None else (report.total, report.saves, report.has_begun)
        each = self._beliefs.step_before(job, total, self._types) if total else None
        thought = (np.nan, 0.0, 0.0)
        if each is not None:
            thought = float(np.log(each.seconds)), each.spread**-2, self._beliefs.exit_s(job)
        self._before[row] = *thought, -1.0 if total is None else total, saves if begun else np.nan
        self._rows[job.id] = row
        if job.state in (JobState.STARTING, JobState.RUNNING) and not job.last.suspensions:
            self._cold[row] = job.id
            self.warm(now_s, [row])
        else:
            self._cold.pop(row, None)
        return each

    def warm(self, now_s: float, rows: Iterable[int] | None = None) -> None:
        """Tell the tables when running jobs begin to make progress, of which that is not known yet."""
        state = self._tables.state
        for row in list(self._cold) if rows is None else rows:
            job = self._book.jobs.get(self._cold[row])
            if job is None or self._beliefs.is_ready(job, now_s):
                del self._cold[row]
            runs = state.i[row, col.STATE] in (col.RUNNING, col.PINNED) and not state.i[row, col.PROMISED]
            warm_s = self._beliefs.warm_s(job, now_s) if job is not None and runs and job.attempts else np.nan
            if warm_s == warm_s and warm_s != state.f[row, col.WARM]:
                state.f[row, col.WARM] = warm_s
                state.x[col.EPOCH] += 1

    def heard(self, names: Collection[str], now_s: float) -> list[Event]:
        """Take in what running jobs say of themselves, and nothing else; one event if that changes any belief.

        All of them speak several times a second, so this is done for many at a time. While a job is cold, or has just
        got other company, what is believed of it stays.
        """
        names = list(names)
        rows = np.fromiter(map(self._rows.get, names, repeat(-1)), np.int64, len(names))
        said, before = self._beliefs.reports.said(names), self._before[rows]
        same = (rows >= 0) & (before[:, _TOTAL] == said[:, TOTAL]) & (before[:, _SAVES] == said[:, SAVES])
        looked = [self._look(names[at], now_s) for at in np.flatnonzero(~same).tolist()]
        changed = [row for row in looked if row is not None]
        told = same & (said[:, LEFT] == said[:, LEFT])
        if told.any():
            changed += self._blend(rows[told], before[told], said[told], now_s)
        return [Event(Kind.CHANGED, row) for row in changed[:1]]

    def _blend(self, rows: Ints, before: Floats, said: Floats, now_s: float) -> list[int]:
        """Write what is believed of jobs by what was thought before and what they say; one whose belief has changed."""
        f = self._tables.state.f
        measured = np.log(said[:, MEAN] * f[rows, col.SPEED])
        logs, _ = with_progress(before[:, _LOG], before[:, _WEIGHT], measured, said[:, SPREAD])
        belief_s = self._done_s(rows, now_s) + np.maximum(said[:, LEFT], 0.0) * np.exp(logs) + before[:, _EXIT]
        changed: list[int] = rows[belief_s != f[rows, col.BELIEF]][:1].tolist()
        f[rows, col.BELIEF] = belief_s
        return changed

    def _done_s(self, rows: Ints, now_s: float) -> Floats:
        """Work that jobs have done by now: what they say is left comes on top of it."""
        f, i = self._tables.state.f, self._tables.state.i
        runs = (i[rows, col.STATE] == col.RUNNING) & (i[rows, col.PROMISED] == 0)
        ran_s = np.maximum(now_s - np.maximum(f[rows, col.WARM], f[rows, col.RATED]), 0.0)
        return np.asarray(f[rows, col.DONE] + np.where(runs, ran_s * f[rows, col.SPEED], 0.0))
