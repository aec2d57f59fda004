"""What running jobs say of themselves, taken into the tables many at a time; when those begin that have not said it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import numpy as np

from cotenant.beliefs.duration import DurationGuess, with_progress
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.lifecycle import JobState
from cotenant.core.workload import Floats, Ints
from cotenant.engine.live_rows import LiveRows
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob


class _Speaker(NamedTuple):
    """A running job whose reports are taken in: its row, and what `_update` knew of it."""

    row: int
    saves: bool
    total: int | None
    begun: bool


class Hearing:
    """Which rows speak, and what was thought of them before they did.

    `look` looks at a job anew, by name, and gives its row if its place in line may have changed.
    """

    def __init__(
        self, book: Book, tables: LiveRows, beliefs: LiveBeliefs, types: dict[str, str],
        look: Callable[[str, float], int | None],
    ) -> None:  # fmt: skip
        self._book, self._tables, self._beliefs, self._types, self._look = book, tables, beliefs, types, look
        self._speaks: dict[str, _Speaker] = {}  # what does not change of running jobs while they only report
        self._before = np.zeros((0, 3))  # of them by row: logarithm and weight of a step as thought before; exit
        self._cold: dict[int, str] = {}  # those that have not made their first step

    def forget(self, name: str, row: int) -> None:
        """A job is over."""
        self._speaks.pop(name, None)
        self._cold.pop(row, None)

    def doubt(self, names: Iterable[str]) -> None:
        """More was learned of the like of these jobs: when they speak next, they are looked at anew."""
        for name in names:
            self._speaks.pop(name, None)

    def listen(self, job: LiveJob, row: int, now_s: float) -> DurationGuess | None:
        """What its reports mean from here on, and when its start is, or was, over; a step as thought before."""
        report = self._beliefs.reports.of(job.id)
        if row >= len(self._before):
            more = np.zeros((max(len(self._tables.state.f), row + 1) - len(self._before), 3))
            self._before = np.concatenate([self._before, more])
        total, saves, begun = (None, False, False) if report is None else (report.total, report.saves, report.has_begun)
        each = self._beliefs.step_before(job, total, self._types) if total else None
        if each is not None:
            self._before[row] = np.log(each.seconds), each.spread**-2, self._beliefs.exit_s(job)
        self._speaks[job.id] = _Speaker(row, saves, total, begun)
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
        rows: list[int] = []
        said: list[tuple[float, float, float]] = []
        changed: list[int] = []
        for name, report in zip(names, self._beliefs.reports.of_all(names), strict=True):
            known = self._speaks.get(name)
            if known is None or report is None or known != (known.row, report.saves, report.total, True):
                row = self._look(name, now_s)
                changed += [] if row is None else [row]
            elif report.total and report.speed.step_s is not None and report.speed.mean_s and report.step is not None:
                rows.append(known.row)
                said.append((report.total - report.step, report.speed.mean_s, report.speed.spread))
        if rows:
            changed += self._blend(np.array(rows), np.array(said), now_s)
        return [Event(Kind.CHANGED, row) for row in changed[:1]]

    def _blend(self, rows: Ints, said: Floats, now_s: float) -> list[int]:
        """Write what is believed of jobs with steps left, their mean and its spread; one whose belief has changed."""
        f, before = self._tables.state.f, self._before[rows]
        measured = np.log(said[:, 1] * f[rows, col.SPEED])
        logs, _ = with_progress(before[:, 0], before[:, 1], measured, said[:, 2])
        belief_s = self.done_s(rows, now_s) + np.maximum(said[:, 0], 0.0) * np.exp(logs) + before[:, 2]
        changed: list[int] = rows[belief_s != f[rows, col.BELIEF]][:1].tolist()
        f[rows, col.BELIEF] = belief_s
        return changed

    def done_s(self, rows: Ints | list[int], now_s: float) -> Floats:
        """Work that jobs have done by now: what they say is left comes on top of it."""
        f, i = self._tables.state.f[rows], self._tables.state.i[rows]
        runs = (i[:, col.STATE] == col.RUNNING) & (i[:, col.PROMISED] == 0)
        ran_s = np.maximum(now_s - np.maximum(f[:, col.WARM], f[:, col.RATED]), 0.0)
        return np.asarray(f[:, col.DONE] + np.where(runs, ran_s * f[:, col.SPEED], 0.0))
