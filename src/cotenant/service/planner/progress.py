"""What running jobs say of themselves, taken into the tables many at a time; when those begin that have not said it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

import numpy as np

from cotenant.beliefs.duration import DurationGuess, with_progress
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.core.workload import Floats, Ints
from cotenant.engine.live_rows import LiveRows
from cotenant.service.observer.report_columns import LEFT, MEAN, SAVES, SPREAD, TENURE, TOTAL, ReportNews
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.learned import what_runs

_LOG, _WEIGHT, _EXIT, _TOTAL, _SAVES = range(5)
"""Logarithm and weight of a step as thought before the job showed it; its exit; steps in all, and whether it saves."""
_MOST_DOUBTED = 8  # jobs of which a decision thinks anew because more is known of their like


class ProgressFeed:
    """Which rows speak, and what was thought of them before they did.

    `look` looks at a job anew, by name, and gives its row if its place in line may have changed.
    """

    def __init__(
        self, book: Book, tables: LiveRows, beliefs: LiveBeliefs, types: dict[str, str],
        look: Callable[[str, float], int | None],
    ) -> None:  # fmt: skip
        self._book, self._tables, self._beliefs, self._types, self._look = book, tables, beliefs, types, look
        self._before = np.full((1, 5), np.nan)  # by row: what does not change while jobs only report
        self._cold: dict[int, str] = {}  # those that have not made their first step
        self._places: dict[str, int] = {}  # of jobs on GPUs that were looked at, among the words of all
        self._row_at, self._tenure_at = np.full(1, -1), np.zeros(1)  # by place: whose words these are
        self._runs: dict[str, str] = {}  # what jobs on GPUs run, and who runs the same
        self._alike: dict[str, dict[str, None]] = {}
        self._doubted: dict[str, None] = {}

    def forget(self, name: str, row: int) -> None:
        """A job is over."""
        self._leave(name)
        self._cold.pop(row, None)

    def doubted(self, runs: Iterable[str]) -> set[str]:
        """More was learned of jobs that run this: some of those on GPUs, which are to be looked at anew with the next
        words; the others follow later."""
        for one in sorted(runs):
            self._doubted |= self._alike.get(one, {})
        some = set(islice(self._doubted, _MOST_DOUBTED))
        for name in some:
            del self._doubted[name]
            self._unhear(name)
        return some

    def _unhear(self, name: str) -> None:
        if (place := self._places.pop(name, None)) is not None:
            self._tenure_at[place] = 0.0

    def _leave(self, name: str) -> None:
        """A job is no longer on GPUs."""
        self._unhear(name)
        if (runs := self._runs.pop(name, None)) is not None:
            self._alike[runs].pop(name)
            if not self._alike[runs]:
                del self._alike[runs]

    def _enter(self, job: LiveJob, row: int) -> None:
        """A job on GPUs was looked at: from here on its words are taken in with those of all others."""
        runs = what_runs(job)
        if self._runs.get(job.id) != runs:
            self._leave(job.id)
            self._runs[job.id] = runs
            self._alike.setdefault(runs, {})[job.id] = None
        if (found := self._beliefs.reports.place(job.id)) is not None:
            place, tenure = found
            self._room(place + 1)
            self._places[job.id], self._row_at[place], self._tenure_at[place] = place, row, tenure

    def _room(self, places: int) -> None:
        if places > len(self._row_at):
            more = max(places, 2 * len(self._row_at)) - len(self._row_at)
            self._row_at = np.concatenate([self._row_at, np.full(more, -1)])
            self._tenure_at = np.concatenate([self._tenure_at, np.zeros(more)])

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
            thought = float(np.log(each.seconds)), each.spread**-2, self._beliefs.phases(job).exit_s
        self._before[row] = *thought, -1.0 if total is None else total, saves if begun else np.nan
        if job.state in ON_GPUS:
            self._enter(job, row)
        else:
            self._leave(job.id)
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

    def heard(self, said: ReportNews, doubted: Iterable[str], known: Collection[str], now_s: float) -> list[Event]:
        """Take in what jobs on GPUs say of themselves, and nothing else; one event if that changes any belief.

        All of them speak several times a second, so this is done for many at a time. `doubted` ones are looked at
        even if they are silent, `known` ones have just been. While a job is cold, or has just got other company, what
        is believed of it stays.
        """
        places, numbers, owners = said
        self._room(int(places[-1]) + 1 if len(places) else 0)
        mine = self._tenure_at[places] == numbers[:, TENURE]
        rows = np.where(mine, self._row_at[places], 0)
        before = self._before[rows]
        same = mine & (before[:, _TOTAL] == numbers[:, TOTAL]) & (before[:, _SAVES] == numbers[:, SAVES])
        names = sorted({*(owners[at] for at in places[~same].tolist()), *doubted}.difference(known))
        looked = [self._look(name, now_s) for name in names if name in self._book.on_gpus]
        changed = [row for row in looked if row is not None]
        told = same & (numbers[:, LEFT] == numbers[:, LEFT])
        passed = np.zeros(len(self._row_at), bool)
        passed[[self._places[name] for name in known if name in self._places]] = True
        told &= ~passed[places]
        if told.any():
            changed += self._blend(rows[told], before[told], numbers[told], now_s)
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
