"""How much of one user runs at a time: beyond the limits of his tenant his jobs wait in a line of his own.

Who is let in stays so until it ends, is held or cannot start for another reason; then the next one is: those that have
begun first, then by priority, then the oldest. Nobody of a line overtakes its first: a large job is not starved by the
same user's small ones. Whoever asks for more than the whole limit is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cotenant.core.lifecycle import ON_GPUS
from cotenant.core.tenants import UserLimits
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob, User

_Place = tuple[bool, int, int, str]  # whether it has not begun, minus its priority, when it came, its name


@dataclass(slots=True)
class _UserLine:
    """GPUs of jobs that are let in, by name, and those that wait for that."""

    inside: dict[str, int] = field(default_factory=dict)
    outside: list[_Place] = field(default_factory=list)

    def fits(self, gpus: int, limits: UserLimits) -> bool:
        """Whether one more may run."""
        jobs = limits.running_jobs is None or len(self.inside) < limits.running_jobs
        return jobs and (limits.gpus is None or sum(self.inside.values()) + gpus <= limits.gpus)


class UserLines:
    """It follows the book; `ready` says whether nothing else than GPUs keeps a job from starting."""

    def __init__(self, book: Book, ready: Callable[[LiveJob], bool]) -> None:
        self._book, self._ready = book, ready
        self._lines: dict[User, _UserLine] = {}
        self._tree = book.tenants.tree

    def _limits(self, job: LiveJob) -> UserLimits | None:
        """Those that hold for a job, if any do."""
        limits = self._book.tenants.limits(job.tenant)
        return None if limits.running_jobs is None and limits.gpus is None else limits

    def lets_in(self, job: LiveJob) -> bool:
        """Whether a job may start as far as its user's limits go."""
        line = self._lines.get((job.tenant, job.user))
        return self._limits(job) is None or (line is not None and job.id in line.inside)

    def why(self, job: LiveJob) -> str:
        """Why a job is not let in; empty if it is, or something else keeps it."""
        limits = self._limits(job)
        if limits is None or self.lets_in(job) or not self._ready(job):
            return ""
        line = self._lines.get((job.tenant, job.user), _UserLine())
        whose = f"a user of tenant '{job.tenant}' may have"
        if limits.gpus is not None and job.spec.gpus > limits.gpus:
            return f"{whose} {limits.gpus} GPUs at a time, and it asks for {job.spec.gpus}"
        parts = []
        if limits.running_jobs is not None:
            jobs = f"{limits.running_jobs} job{'s' * (limits.running_jobs != 1)} at a time"
            parts.append(f"{jobs} and {job.user} has {len(line.inside)} that run or are next")
        if limits.gpus is not None:
            parts.append(f"{limits.gpus} GPUs at a time and {job.user}'s have {sum(line.inside.values())} of them")
        return f"{whose} {', '.join(parts)}"

    def follow(self, changed: Iterable[str]) -> set[str]:
        """Take in what changed; jobs that are let in or no longer by it."""
        book, turned = self._book, set[str]()
        if book.tenants.tree is not self._tree:
            self._tree, self._lines = book.tenants.tree, {}
            changed = turned = set(book.active)
        concerned: dict[User, UserLimits] = {}
        for name in changed:
            job = book.jobs.get(name)
            limits = self._limits(job) if job is not None else None
            if job is not None and limits is not None:
                user = job.tenant, job.user
                concerned[user] = limits
                self._see(self._lines.setdefault(user, _UserLine()), job)
        for user, limits in concerned.items():
            turned |= self._fill(self._lines[user], limits)
            if not self._lines[user].inside and not self._lines[user].outside:
                del self._lines[user]
        return turned

    def _see(self, line: _UserLine, job: LiveJob) -> None:
        if job.state in ON_GPUS:
            line.inside[job.id] = job.spec.gpus
        elif job.finished or not self._ready(job):
            line.inside.pop(job.id, None)
        elif job.id in line.inside:
            line.inside[job.id] = job.spec.gpus
        else:
            heapq.heappush(line.outside, _place(job))

    def _fill(self, line: _UserLine, limits: UserLimits) -> set[str]:
        come = set[str]()
        while line.outside:
            place = line.outside[0]
            job = self._book.active.get(place[-1])  # it may have ended, been held or been let in meanwhile
            gone = job is None or job.id in line.inside or not self._ready(job) or place != _place(job)
            never = job is not None and limits.gpus is not None and job.spec.gpus > limits.gpus
            if job is not None and not gone and not never:
                if not line.fits(job.spec.gpus, limits):
                    break
                line.inside[job.id] = job.spec.gpus
                come.add(job.id)
            heapq.heappop(line.outside)
        return come


def _place(job: LiveJob) -> _Place:
    return not job.attempts, -job.spec.priority, job.order, job.id
