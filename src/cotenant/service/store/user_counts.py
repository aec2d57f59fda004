"""What each user of each tenant has waiting and on GPUs, kept up to date with every record."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from cotenant.core.lifecycle import FINAL, ON_GPUS, JobState
from cotenant.service.store.job import LiveJob

User = tuple[str, str]
"""Tenant and name: one name in two tenants is two users."""


class UserUse(NamedTuple):
    """Of one user: jobs that wait and never stood still, jobs on GPUs, and how many GPUs that is."""

    pending: int
    running: int
    gpus: int


class UserCounts:
    """Counters by user. `see` is told of a job whenever it has changed."""

    def __init__(self) -> None:
        self._pending: Counter[User] = Counter()
        self._running: Counter[User] = Counter()
        self._gpus: Counter[User] = Counter()
        self._unfinished: Counter[str] = Counter()
        self._seen: dict[str, tuple[bool, int]] = {}  # whether it waits, and GPUs on which it is

    def see(self, job: LiveJob) -> None:
        """Count a job as it is now."""
        user = job.tenant, job.user
        known = job.id in self._seen
        waited, had = self._seen.pop(job.id, (False, 0))
        alive = job.state not in FINAL
        waits = job.state == JobState.PENDING
        has = sum(len(indexes) for _, indexes in job.last.gpus) if job.state in ON_GPUS else 0
        if alive:
            self._seen[job.id] = waits, has
        self._unfinished[job.tenant] += alive - known
        self._pending[user] += waits - waited
        self._running[user] += (has > 0) - (had > 0)
        self._gpus[user] += has - had

    def of(self, tenant: str, user: str) -> UserUse:
        """What a user has in a tenant."""
        key = tenant, user
        return UserUse(self._pending[key], self._running[key], self._gpus[key])

    def unfinished(self, tenant: str) -> int:
        """Jobs of a tenant that have not ended."""
        return self._unfinished[tenant]
