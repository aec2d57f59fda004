"""Who may start as far as the book says: not held, after those it comes after, let in by its array and by the limits of
its user.

Of a service as many replicas are let in as it should have. Of some arrays only so many elements may run at a time
(`--array 0-99%5`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from cotenant.core.lifecycle import ON_GPUS, WAITING
from cotenant.service.planner.user_lines import UserLines
from cotenant.service.store.book import Book
from cotenant.service.store.job import WITHDRAW, LiveJob, waits_for
from cotenant.service.store.replicas import is_scaled, let_in, service_of


@dataclass(slots=True)
class _Line:
    """One array: elements that are let in, and those that wait for that, oldest first."""

    inside: set[str] = field(default_factory=set)
    outside: list[tuple[int, str]] = field(default_factory=list)


class Eligible:
    """An element of an array that is let in stays so until it ends or is held; then the oldest of the others is.

    It follows the book, as the engine's tables do; after a restart those that have begun come first.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._lines: dict[str, _Line] = {}
        self._users = UserLines(book, lambda job: not job.aside and self._ready(job))  # who is aside takes no place

    def may_start(self, job: LiveJob) -> bool:
        """Whether nothing but GPUs keeps a job from running."""
        return self._ready(job) and self._users.lets_in(job)

    def over_limit(self, job: LiveJob) -> str:
        """Which limit of its user keeps a job from starting; empty where none does."""
        return self._users.why(job)

    def _ready(self, job: LiveJob) -> bool:
        """The same, limits of its user aside."""
        stops = job.stop_why not in ("", WITHDRAW)  # what was started too early ends, the job goes on waiting
        kept = job.held or stops or waits_for(job, self._book.members)
        return job.state in WAITING and not kept and self._let_in(job)

    def _let_in(self, job: LiveJob) -> bool:
        if is_scaled(job):
            return job.id in self._replicas(job)
        if not job.spec.array_most:
            return True
        line = self._lines.get(_array(job.id))
        return line is not None and job.id in line.inside

    def follow(self, changed: Iterable[str]) -> set[str]:
        """Take in what changed; jobs that are let in by it, or no longer."""
        changed = set(changed)
        come = self._follow_arrays(changed)
        for name in changed:
            if (job := self._book.jobs.get(name)) is not None and is_scaled(job):
                come.update(self._book.arrays.get(service_of(name), ()))
        return come | self._users.follow(changed | come)

    def surplus(self) -> list[str]:
        """Running replicas that their services do not need any more."""
        runs = [
            job for job in self._book.serving.values() if is_scaled(job) and job.state in ON_GPUS and not job.stop_why
        ]
        return [job.id for job in runs if job.id not in self._replicas(job)]

    def _replicas(self, job: LiveJob) -> set[str]:
        """Those of its service that may run."""
        return let_in(self._book.members(service_of(job.id)), self._book.services.count(job))

    def _follow_arrays(self, changed: set[str]) -> set[str]:
        book, concerned, come = self._book, dict[str, int](), set[str]()
        for name in changed:
            job = book.jobs.get(name)
            if job is None or not job.spec.array_most:
                continue
            array = _array(name)
            line = self._lines.setdefault(array, _Line())
            concerned[array] = job.spec.array_most
            if job.finished or (job.held and job.state in WAITING):
                line.inside.discard(name)
            elif job.state in ON_GPUS:
                line.inside.add(name)
            elif name not in line.inside:
                heapq.heappush(line.outside, (job.order, name))
        for array, most in concerned.items():
            come |= self._fill(self._lines[array], most)
            if not self._lines[array].inside and not self._lines[array].outside:
                del self._lines[array]
        return come

    def _fill(self, line: _Line, most: int) -> set[str]:
        come = set[str]()
        while line.outside and len(line.inside) < most:
            _, name = heapq.heappop(line.outside)
            job = self._book.active.get(name)  # it may have ended, been held or been let in meanwhile
            if job is not None and not job.held and name not in line.inside:
                line.inside.add(name)
                come.add(name)
        return come


def _array(job: str) -> str:
    return job.partition(".")[0]
