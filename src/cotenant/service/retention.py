"""How long what is left of ended jobs is kept: their records, their output, their checkpoints.

Checkpoints are a user's work: they stay unless the operator has said for how long. Output and checkpoints go no later
than the record of their job, without which nobody would know of them. What a job has cost stays in the archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from cotenant.backends.base import Backend
from cotenant.journal import Entry
from cotenant.service.accounts.archive import ARCHIVE, archived
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Keep
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

RETIRE_EVERY_S = 3600.0
_FORGET_AT_ONCE, _MOST_STRETCHES = 1000, 50_000  # jobs, and stretches on GPUs: a record is bounded


class Retention:
    """Clears away what is older than it may get."""

    def __init__(self, store: Store, backend: Backend, reports: Reports, keep: Keep) -> None:
        self._store, self._backend, self._reports, self._keep = store, backend, reports, keep
        self._last_s = store.clock()
        self._cleared_s = {"logs": -inf, "checkpoints": -inf}  # up to which end nothing is left to clear

    def retire_if_due(self) -> int:
        """Once an hour."""
        now_s = self._store.clock()
        return self.retire() if not 0.0 <= now_s - self._last_s < RETIRE_EVERY_S else 0

    def retire(self) -> int:
        """Delete what is too old; how many jobs were forgotten."""
        now_s, keep = self._store.clock(), self._keep
        self._last_s = now_s
        logs_s = keep.jobs_s if keep.logs_s is None else keep.logs_s
        for job in self._ended("logs", now_s - logs_s):
            for attempt in job.attempts:
                self._backend.drop_log(f"{job.id}-{attempt.number}")
        for job in self._ended("checkpoints", now_s - keep.checkpoints_s):
            self._backend.drop_checkpoints(job.id)
        return self._forget(now_s - keep.jobs_s)

    def _ended(self, what: str, before_s: float) -> list[LiveJob]:
        """Jobs that ended before then and were not seen to yet."""
        after_s, self._cleared_s[what] = self._cleared_s[what], max(before_s, self._cleared_s[what])
        with self._store.lock:
            ended = [job for job in self._store.book.jobs.values() if job.finished]
        return [job for job in ended if after_s <= (job.ended_s or 0.0) < before_s]

    def _forget(self, before_s: float) -> int:
        store = self._store
        with store.lock:
            old = [job for job in store.book.jobs.values() if job.finished and (job.ended_s or 0.0) < before_s]
        for job in old:
            self._reports.forget(job.id)
        for some in _batches(old):  # into the archive and out of the book at once, or neither
            store.write([archived(some), Entry("forget", data={"jobs": [job.id for job in some]})])
        if old:
            store.snapshot()
            with store.lock:
                store.journal.prune(before_s, keep={*store.book.jobs, ARCHIVE})
        return len(old)


def _batches(jobs: Iterable[LiveJob]) -> Iterator[list[LiveJob]]:
    some, count = list[LiveJob](), 0
    for job in jobs:
        stretches = sum(1 + len(attempt.had) for attempt in job.attempts)
        if some and (len(some) >= _FORGET_AT_ONCE or count + stretches > _MOST_STRETCHES):
            yield some
            some, count = [], 0
        some.append(job)
        count += stretches
    if some:
        yield some
