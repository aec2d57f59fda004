"""The engine's tables follow the book: whatever changed of a job becomes events, and nothing else is touched.

What the tables hold of a job is compared with what the book says of it, so the same code takes in an arrival, an end,
a hold, a crash of the service (everything is new then) and a decision that could not be carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from cotenant.beliefs.pairing import guests_of
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import Places
from cotenant.core.traits import Traits
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.observe import done_by
from cotenant.service.observer.outcomes import ASKED
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.decision import Access
from cotenant.service.planner.eligible import Eligible
from cotenant.service.planner.job_past import write_past
from cotenant.service.planner.nodes import NodeNumbers
from cotenant.service.planner.progress import ProgressFeed
from cotenant.service.store.book import Book
from cotenant.service.store.job import SUSPEND, LiveJob

_BACK = ASKED.keys() - {"hold"}  # reasons to stop after which a job waits again


def comes_back(job: LiveJob) -> bool:
    """Whether a job that is to leave waits again afterwards."""
    again = job.stop_why in _BACK and not job.resize_to  # of another size it waits only then
    return again and job.spec.preemptible and not job.held


class Follower:
    """Which row is which job, and what the tables have to be told."""

    def __init__(
        self, book: Book, tables: LiveRows, nodes: NodeNumbers, beliefs: LiveBeliefs,
        may_suspend: Callable[[LiveJob], bool], types: dict[str, str], traits: Traits,
        open_to: Callable[[LiveJob], Access] = lambda job: Access(),
    ) -> None:  # fmt: skip
        self._traits, self._open_to, self._eligible = traits, open_to, Eligible(book)
        self.book, self.tables, self.nodes, self.beliefs = book, tables, nodes, beliefs
        self._may_suspend, self._types = may_suspend, types
        self.row_of: dict[str, int] = {}
        self.job_at: dict[int, str] = {}
        self.times = np.zeros(len(tables.state.f))  # by row: so many times what a job has attained is it at least
        self._opened: dict[int, Access] = {}  # with which jobs are in the tables
        self.hearing = ProgressFeed(book, tables, beliefs, types, self._changed)
        self.shut: set[str] = set()
        self._waited: dict[int, tuple[object, ...]] = {}  # waiting jobs as they were looked at last
        self._parting: set[str] = set()
        self.unheard: list[str] = []  # jobs that were to leave, of which the book does not know

    # -- who may run ---------------------------------------------------------------------------------------------

    def startable(self, job: LiveJob) -> bool:
        """Whether nothing but GPUs keeps it from running."""
        return self._eligible.may_start(job)

    def over_limit(self, job: LiveJob) -> str:
        """Which limit of its user keeps a job from starting; empty where none does."""
        return self._eligible.over_limit(job)

    def surplus(self) -> list[str]:
        """Running replicas that their services do not need any more."""
        return self._eligible.surplus()

    def _new_job(self, job: LiveJob) -> NewJob:
        made, access = self.beliefs.new_job(job), self._open_to(job)
        return replace(made, parts=access.labels, line=access.line) if access.labels else made

    # -- events --------------------------------------------------------------------------------------------------

    def events(
        self, changed: Iterable[str], shut: set[str], now_s: float, parting: Iterable[str] = (),
        doubted: Iterable[str] = (),
    ) -> list[Event]:  # fmt: skip
        """What happened to these jobs and to nodes; nodes in `shut` take nobody in, jobs of `parting` have to leave.

        What is told of one job stays in its order: one that is found running arrives, is adopted, then leaves. Of
        `doubted` ones, which are among the changed, something else is believed now.
        """
        self.unheard = []
        for name in doubted:
            self._waited.pop(self.row_of.get(name, -1), None)
        found = [
            [Event(Kind.SHUT if name in shut else Kind.OPEN, number)]
            for name in sorted(shut ^ self.shut)
            for number in self.nodes.numbers(name)
        ]
        self._parting = set(parting)
        concerned = {*changed, *self._parting}
        concerned |= self._eligible.follow(concerned)
        if shut != self.shut:
            concerned.update(self.book.on_gpus)
        self.shut = set(shut)
        jobs = sorted((self.book.jobs[name] for name in concerned if name in self.book.jobs), key=lambda job: job.order)
        for name in concerned:
            if name not in self.book.jobs:
                self._forget(name)
        found += [told for job in jobs if (told := list(self._of(job, now_s)))]
        found.sort(key=lambda told: max((event.kind for event in told if event.kind != Kind.CHANGED), default=99))
        return [event for told in found for event in told]

    def _of(self, job: LiveJob, now_s: float) -> Iterator[Event]:
        row = self.row_of.get(job.id)
        if job.finished:
            if row is not None:
                yield Event(Kind.OVER, row)
                self._forget(job.id)
            return
        new = row is None
        if row is None:
            row = self._enter(job, now_s)
        yield from self._state(job, row, now_s)
        if job.state == JobState.STOPPING and not new and not comes_back(job):  # it is planned with no more
            return
        if job.state != JobState.PENDING:
            self._waited.pop(row, None)
        elif self._is_as_before(job, row):
            return
        if self._update(job, row, now_s) and not new:
            yield Event(Kind.CHANGED, row)

    def _is_as_before(self, job: LiveJob, row: int) -> bool:
        """Whether a waiting job is as it was when it was looked at last: it was only promised GPUs, or the like."""
        f = self.tables.state.f[row]
        seen: tuple[object, ...] = (job.spec,)
        if job.attempts:
            seen = *seen, len(job.attempts), job.left_s, job.progress, float(f[col.DONE])
        same = self._waited.get(row) == seen and f[col.SUBMIT] == job.submitted_s
        self._waited[row] = seen
        return bool(same) and self._opened[row] == self._open_to(job)

    def _state(self, job: LiveJob, row: int, now_s: float) -> Iterator[Event]:
        i = self.tables.state.i[row]
        leaving, still = bool(i[col.LEAVING]), i[col.HOME] >= 0
        state, promised = int(i[col.STATE]), bool(i[col.PROMISED])
        runs = state == col.PINNED or (state == col.RUNNING and not promised)
        if job.state in (JobState.STARTING, JobState.RUNNING):
            if leaving:
                self.unheard.append(job.id)
            elif not runs and not still:
                yield from self._adopted(row, state, job)
            if job.id in self._parting and not leaving:  # before anything is planned with GPUs that count twice
                yield Event(Kind.WITHDRAWN, row)
                yield Event(Kind.ARRIVED, row, since_s=now_s)
            else:
                yield from self._pinned(job, row, state)
        elif job.state == JobState.STOPPING:
            back = comes_back(job)
            if not runs and not leaving:
                yield from self._adopted(row, state, job)
                runs = True
            if runs or (not back and state != col.HELD):
                yield Event(Kind.WITHDRAWN, row)
            if back and (runs or state == col.HELD):
                yield Event(Kind.ARRIVED, row, since_s=now_s)
                yield from self._promised(job, row)
        elif job.state == JobState.SUSPENDED:
            places = self._places(job)
            if leaving and not job.stop_why:
                yield Event(Kind.STANDS, row)
                if state == col.HELD:  # it may not go on yet, but only there
                    yield Event(Kind.ARRIVED, row, since_s=job.since_s)
                    yield Event(Kind.ADOPTED_STILL, row, places)
                    state = col.WAITING
            elif not leaving and not still:
                if runs:  # it was to go on, and could not
                    yield Event(Kind.AGAIN, row)
                yield Event(Kind.ARRIVED, row, since_s=job.since_s)
                leaving = comes_back(job)
                yield Event(Kind.ENDING if leaving else Kind.ADOPTED_STILL, row, places)
                yield from self._promised(job, row) if leaving else ()
                state = col.WAITING
            if not (leaving and comes_back(job)):  # who is ended only to start elsewhere waits, or has a promise
                yield from self._waits(job, row, state)
            if self._traits.takes_turns and self.startable(job):  # elsewhere it would begin anew
                yield Event(Kind.PROMISED, row, places, since_s=job.since_s)
        elif leaving or still or runs:
            ended = leaving and not still and job.attempts and job.last.rung == SUSPEND  # the engine has counted that
            lost_s = self.beliefs.lost_s(job, self._types) if job.attempts and not ended else 0.0
            yield Event(Kind.AGAIN if self.startable(job) else Kind.OVER, row, lost_s=lost_s)
        else:
            yield from self._waits(job, row, state)

    def _waits(self, job: LiveJob, row: int, state: int) -> Iterator[Event]:
        startable = self.startable(job)
        if startable and state in (col.FUTURE, col.HELD):
            yield Event(Kind.ARRIVED, row, since_s=job.since_s)
            yield from self._promised(job, row)
        elif not startable and state in (col.WAITING, col.RUNNING, col.ASIDE):
            yield Event(Kind.WITHDRAWN, row)

    def _promised(self, job: LiveJob, row: int) -> Iterator[Event]:
        """The GPUs that it will have as soon as others have left them, and it its own."""
        if job.id in self.book.promises:
            yield Event(Kind.PROMISED, row, self.nodes.places(self.book.promises[job.id]))

    def _adopted(self, row: int, state: int, job: LiveJob) -> Iterator[Event]:
        if state != col.WAITING:
            yield Event(Kind.ARRIVED, row, since_s=job.submitted_s)
        yield Event(Kind.ADOPTED, row, self._places(job), since_s=job.since_s)

    def _places(self, job: LiveJob) -> Places:
        """The GPUs of its last attempt."""
        return self.nodes.places(job.last.gpus) if job.attempts else ()

    def _pinned(self, job: LiveJob, row: int, state: int) -> Iterator[Event]:
        """Running jobs that may not be stopped, and those on nodes that take nobody in: they run to their end."""
        fixed = not job.spec.preemptible or any(name in self.shut for name, _ in job.last.gpus)
        if fixed and state != col.PINNED:
            yield Event(Kind.PINNED, row)
        elif not fixed and state == col.PINNED:
            yield Event(Kind.LOOSE, row)

    # -- columns -------------------------------------------------------------------------------------------------

    def _enter(self, job: LiveJob, now_s: float) -> int:
        row = self.tables.enter(self._new_job(job))
        self.row_of[job.id], self.job_at[row] = row, job.id
        if more := len(self.tables.state.f) - len(self.times):
            self.times = np.concatenate([self.times, np.zeros(more)])
        self._opened[row] = self._open_to(job)
        write_past(self.tables, row, job, self.book, self.beliefs, self._types, now_s)
        if self._traits.overcommits and job.id in self.book.on_gpus:  # the policy makes guests more, if it can
            guests = guests_of(self.book.on_gpus.values()) if self.book.shared_gpus else {}
            self.tables.state.i[row, col.OPPORTUNISTIC] = int(job.spec.priority < 0 or job.id in guests)
        self.tables.state.i[row, col.QUEUE] = self.tables.queue_of(row)
        return row

    def _forget(self, name: str) -> None:
        row = self.row_of.pop(name, None)
        if row is not None:
            del self.job_at[row]
            self.times[row] = 0.0
            self._opened.pop(row, None)
            self._waited.pop(row, None)
            self.hearing.forget(name, row)

    def _update(self, job: LiveJob, row: int, now_s: float) -> bool:
        """Write what may have changed of a known job; whether its place in line may have."""
        state, beliefs, spec = self.tables.state, self.beliefs, job.spec
        f, i = state.f[row], state.i[row]
        before = f.item(col.BELIEF), f.item(col.TIER), f.item(col.DEADLINE), i.item(col.GPUS)
        each = self.hearing.listen(job, row, now_s) if job.attempts else None
        runs = i.item(col.STATE) == col.RUNNING or job.state in (JobState.STOPPING, JobState.SUSPENDED)
        speed = f.item(col.SPEED) if runs else None  # of who leaves: in the company in which its steps were measured
        belief = beliefs.duration(job, self._types, speed, each)
        self.times[row] = belief.times
        done_s = done_by(state, row, now_s)
        belief_s = max(done_s + belief.more_s, belief.least_s, belief.times * f.item(col.OCCUPIED))
        deadline_s, phases = beliefs.deadline_s(job), beliefs.phases(job)
        f[col.BELIEF], f[col.DEADLINE] = belief_s, deadline_s
        f[col.START_UP], f[col.RESTORE] = phases.start_s, phases.restore_s
        f[col.RESUME], f[col.EXIT] = phases.resume_s, phases.exit_s
        rung, yields = beliefs.ways(job, self._may_suspend(job))
        i[col.RUNG], i[col.YIELDS] = rung, yields
        f[col.SAVING] = phases.suspend_s if rung else phases.save_s
        priority = beliefs.priority(job)
        if before[1] != -priority:
            self.tables.set_priority(row, priority)
        resized = False
        if job.state == JobState.PENDING and i.item(col.HOME) < 0:
            asked, access = (state.cls.item(i.item(col.CLASS), col.C_GPUS), self._opened[row]), self._open_to(job)
            if asked != (spec.gpus, access):
                resized = self.tables.set_gpus(row, spec.gpus, self._new_job(job), now_s)
                self._opened[row] = access
        after = belief_s, -priority, deadline_s, i.item(col.GPUS)
        return resized or any(a != b and (a == a or b == b) for a, b in zip(before, after, strict=True))

    def _changed(self, name: str, now_s: float) -> int | None:
        """Look at a job anew; its row if its place in line may have changed."""
        row = self.row_of.get(name)
        return row if row is not None and self._update(self.book.jobs[name], row, now_s) else None

    def believe(self, now_s: float) -> None:
        """Bring what is believed of running jobs up to now: some beliefs grow with what a job has attained."""
        self.hearing.warm(now_s)
        f, listed = self.tables.state.f, self.tables.state.run[: self.tables.state.x[col.N_RUN]]
        rows = listed[(listed >= 0) & (self.times[listed] > 0)]
        if len(rows):
            grown_s = self.times[rows] * (f[rows, col.OCCUPIED] + np.maximum(now_s - f[rows, col.SINCE], 0.0))
            more = f[rows, col.BELIEF] < grown_s
            f[rows[more], col.BELIEF] = grown_s[more]
            self.tables.state.x[col.EPOCH] += np.count_nonzero(more)
