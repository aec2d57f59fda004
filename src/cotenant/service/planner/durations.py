"""How long jobs last, learned from those that this service has finished: the estimators of the simulator, live.

A learner hears of every job when it is submitted and when it ends: its user and tenant, its name and command, its GPUs,
the time of day. Nothing is kept of it but the journal: at a start the finished jobs of the book are played through it
again, so that a service that crashed and one that did not believe the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from cotenant.beliefs.duration import HISTORY_SPREAD, DurationGuess
from cotenant.beliefs.estimators import make_learner
from cotenant.beliefs.prediction.past import AskedJob, replay
from cotenant.core.lifecycle import JobState
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.learned import LENGTH, Key, what_runs

USUAL = "shrunk"
_FEW = 3  # jobs that have to have ended before anything is said of others
_MOST_PAST = 20_000  # finished jobs that are played through at a start, the newest
_MOST_RENEWED = 100  # waiting jobs of one user that are looked at anew when one of his has ended
_MOST_AT_ONCE = 6  # of all of them in one decision; the others follow in the next ones


def asked_of(job: LiveJob) -> AskedJob:
    """A job as a learner sees it."""
    spec = job.spec
    return AskedJob(job.user, job.tenant, f"{spec.name} {what_runs(job)}".strip(), spec.gpus, job.submitted_s)


def lasted_s(job: LiveJob) -> float:
    """How long it has run in all, less what was lost; 0 where it never did."""
    return sum(max(attempt.ran_s - attempt.lost_s, 0.0) for attempt in job.attempts if not attempt.holds)


class LiveDurations:
    """A learner that follows the book. A named `estimator` goes before what is known of a job's very kind."""

    def __init__(self, book: Book, estimator: str = "") -> None:
        self._book, self._named = book, bool(estimator)
        self._learner = make_learner(estimator or USUAL)
        self._ended = 0
        self._open: set[int] = set()  # jobs that have not ended, by the number of their record
        self._waiting: dict[tuple[str, str], dict[str, None]] = {}
        self._renewed: dict[str, None] = {}  # jobs that are still to be looked at anew, in order
        self._play_through()

    def _play_through(self) -> None:
        known = sorted((job for job in self._book.jobs.values() if job.finished), key=lambda job: job.order)
        jobs = sorted([*known[-_MOST_PAST:], *self._book.active.values()], key=lambda job: (job.submitted_s, job.order))
        ended_s = np.array([(job.ended_s or 0.0) if job.finished else np.inf for job in jobs])
        # Whoever has ended by now is known now, also if nobody was submitted since.
        submit_s = np.array([*(job.submitted_s for job in jobs), np.nextafter(np.inf, 0.0)])
        for ended, at in replay(submit_s, ended_s):
            if at < len(jobs):
                self._hear(jobs[at], ended)

    def follow(self, changed: Iterable[str]) -> set[str]:
        """Take in who came and who ended; some waiting jobs of users of whom more is known now."""
        jobs = sorted((self._book.jobs[name] for name in changed if name in self._book.jobs), key=lambda job: job.order)
        users = set[tuple[str, str]]()
        for job in jobs:
            if job.finished and job.order in self._open:
                self._hear(job, ended=True)
                users.add((job.tenant, job.user))
            elif not job.finished and job.order not in self._open:
                self._hear(job, ended=False)
            self._keep_waiting(job)
        for user in users:
            self._renewed |= dict.fromkeys(islice(self._waiting.get(user, ()), _MOST_RENEWED))
        now = list(islice(self._renewed, _MOST_AT_ONCE))
        for name in now:
            del self._renewed[name]
        return self._book.active.keys() & now

    def _hear(self, job: LiveJob, ended: bool) -> None:
        if not ended:
            self._open.add(job.order)
            self._learner.submit(job.order, asked_of(job))
            return
        self._open.discard(job.order)
        seconds = lasted_s(job)
        if seconds > 0:
            self._ended += 1
            self._learner.end(job.order, asked_of(job), seconds)

    def _keep_waiting(self, job: LiveJob) -> None:
        of_user = self._waiting.setdefault((job.tenant, job.user), {})
        if job.state == JobState.PENDING:
            of_user[job.id] = None
        else:
            of_user.pop(job.id, None)

    def history(self, job: LiveJob, keys: tuple[Key, ...]) -> DurationGuess | None:
        """How long its like took: of its very kind (`keys`), else as learned from all that has ended."""
        like = self._book.learned.of(LENGTH, keys)
        if like is not None and not self._named:
            return like.guess(HISTORY_SPREAD)
        return self._learner.guess(asked_of(job)) if self._ended >= _FEW else None
