"""What readers get instead of the book: a frozen picture of it, so that no answer takes the scheduler's time.

A picture of a job is made when somebody looks, and made anew when the job has changed since. So a look copies only
what has changed since the last one, and building an answer of it, however long, needs no lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob, cells, picture, waits_for


class BookView:
    """The book as it was after record `seq`; nothing in it ever changes. Jobs are in the order of their submission."""

    def __init__(self, book: Book, jobs: dict[str, LiveJob]) -> None:
        self.seq, self.policy, self.drained = book.seq, book.policy, frozenset(book.drained)
        self.jobs, self.on_gpus = jobs, {name: jobs[name] for name in book.on_gpus if name in jobs}
        self.windows, self.tenants, self.faults = dict(book.windows), book.tenants, book.health.faults
        self.calibration = book.calibration.scales
        self.preemption_cost_s = book.preemption_cost_s(0.0)
        self.gpu_s, self.promises = dict(book.gpu_s), dict(book.promises)
        self.services = book.services.copy()

    @cached_property
    def active(self) -> list[LiveJob]:
        """Jobs that have not ended."""
        return [job for job in self.jobs.values() if not job.finished]

    @cached_property
    def begun(self) -> list[LiveJob]:
        """Jobs that have begun and not ended."""
        return [job for job in self.jobs.values() if job.attempts and not job.finished]

    @cached_property
    def company(self) -> dict[str, list[LiveJob]]:
        """For each job that shares GPUs, the others there, oldest first."""
        users: dict[tuple[str, int], list[LiveJob]] = {}
        for job in self.on_gpus.values():
            for cell in cells(job.last.gpus):
                users.setdefault(cell, []).append(job)
        beside: dict[str, dict[str, LiveJob]] = {}
        for jobs in users.values():
            for job in jobs if len(jobs) > 1 else ():
                beside.setdefault(job.id, {}).update({other.id: other for other in jobs if other is not job})
        return {name: sorted(found.values(), key=lambda job: job.order) for name, found in beside.items()}

    @cached_property
    def _arrays(self) -> dict[str, list[LiveJob]]:
        arrays: dict[str, list[LiveJob]] = {}
        for name, job in self.jobs.items():
            array, dot, _ = name.partition(".")
            if dot:
                arrays.setdefault(array, []).append(job)
        return arrays

    def members(self, job: str) -> Sequence[LiveJob]:
        """As `Book.members`."""
        return [self.jobs[job]] if job in self.jobs else self._arrays.get(job, ())


class Pictures:
    """The newest picture of every job. All of it is done with the book's lock held."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._jobs: dict[str, LiveJob] = {}
        self._view: BookView | None = None

    def catch_up(self, most: int) -> bool:
        """Make new pictures of at most so many jobs; whether that was all of those that have changed."""
        unseen, jobs = self._book.unseen, self._book.jobs
        for name in [name for name, _ in zip(unseen, range(most), strict=False)]:
            del unseen[name]
            if name in jobs:
                self._jobs[name] = picture(jobs[name])
            else:
                self._jobs.pop(name, None)
        return not unseen

    def view(self) -> BookView:
        """The whole, once caught up; the same one as long as nothing has happened."""
        if self._view is None or self._view.seq != self._book.seq:
            self._view = BookView(self._book, dict(self._jobs))
        return self._view

    def around(self, name: str) -> BookView:
        """One job with those that matter to it: who shares its GPUs, is of its array, or keeps it waiting."""
        book, job = self._book, self._book.jobs.get(name)
        others: Iterable[str] = book.on_gpus if book.shared_gpus and name in book.on_gpus else ()
        if job is not None and (job.spec.array_most or job.spec.service):
            others = [*others, *book.arrays.get(name.partition(".")[0], ())]
        before = waits_for(job, book.members) if job is not None else ""
        found = (book.jobs[other] for other in (name, before, *others) if other in book.jobs)
        return BookView(book, {one.id: picture(one) if one.id in book.unseen else self._jobs[one.id] for one in found})
