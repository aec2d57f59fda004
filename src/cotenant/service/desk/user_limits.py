"""What each user of a tenant may have waiting, and how fast he may submit: refused beyond it, with when to try again.

How much of it runs at a time is for the planner (`service/planner/user_lines.py`): those jobs wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from math import ceil

from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec
from cotenant.core.reasons import moment
from cotenant.core.tenants import Tenant, Tree
from cotenant.service.facade import TooMany
from cotenant.service.store.job import User
from cotenant.service.store.store import Store

HOUR_S = 3600.0


def check_size(spec: JobSpec, tenant: Tenant, tree: Tree | None) -> None:
    """Raise where a job asks for more GPUs than one user, or its tenant, may ever have: it would wait for ever."""
    most = tenant.limits.gpus
    asks = f"job '{spec.name}': field 'gpus' is {spec.gpus}"
    if most is not None and spec.gpus > most:
        raise InputError(f"{asks}: a user of tenant '{tenant.name}' may have {most} at a time")
    for name in tree.path(tenant.name) if tree is not None else ():
        ceiling = tree.of(name).ceiling if tree is not None else None
        if ceiling is not None and spec.gpus > ceiling:
            raise InputError(f"{asks}: the ceiling of tenant '{name}' is {ceiling}")


class LimitedUsers:
    """All of it is called with the store's lock held, but for `end`. Jobs on their way to the disk count too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._on_way: Counter[User] = Counter()
        self._times: dict[User, deque[float]] = {}  # of the last hour, of users whose rate is limited

    def check(self, user: str, more: Mapping[str, int]) -> None:
        """Raise where so many more jobs, by tenant, are too many."""
        for tenant, count in more.items():
            limits = self._store.book.tenants.limits(tenant)
            if limits.pending_jobs is not None:
                self._check_pending(tenant, user, count, limits.pending_jobs)
            if limits.submits_per_hour is not None:
                self._check_rate(tenant, user, count, limits.submits_per_hour)

    def begin(self, user: str, more: Mapping[str, int]) -> None:
        """They are taken."""
        for tenant, count in more.items():
            self._on_way[tenant, user] += count
            if self._store.book.tenants.limits(tenant).submits_per_hour is None:
                self._times.pop((tenant, user), None)
            else:
                self._recent(tenant, user).extend([self._store.clock()] * count)

    def end(self, user: str, more: Mapping[str, int]) -> None:
        """They are in the book, or could not be written."""
        with self._store.lock:
            for tenant, count in more.items():
                self._on_way[tenant, user] -= count

    def _check_pending(self, tenant: str, user: str, count: int, most: int) -> None:
        have = self._store.book.waiting[tenant, user] + self._on_way[tenant, user]
        if have + count > most:
            limit = f"a user of tenant '{tenant}' may have {most} jobs waiting, you have {have}"
            asks = f" and ask for {count} more" if count > 1 else ""
            raise TooMany(
                f"{limit}{asks}: {'send fewer' if count > most else 'try again'} when some have started or ended"
            )

    def _check_rate(self, tenant: str, user: str, count: int, most: float) -> None:
        now_s, times = self._store.clock(), self._recent(tenant, user)
        while times and times[0] <= now_s - HOUR_S:
            times.popleft()
        over = len(times) + count - most
        if over <= 0:
            return
        limit = f"a user of tenant '{tenant}' may submit {most:g} jobs an hour, you have submitted {len(times)}"
        if count > most:
            raise TooMany(f"{limit} and ask for {count} more: that is more than an hour's, send fewer at a time")
        free_s = times[ceil(over) - 1] + HOUR_S
        raise TooMany(f"{limit}: try again in {ceil(free_s - now_s)} s, at {moment(free_s)}", free_s - now_s)

    def _recent(self, tenant: str, user: str) -> deque[float]:
        """When a user has submitted jobs, oldest first; also before a restart, as far as jobs are kept."""
        if (tenant, user) not in self._times:
            since_s, jobs = self._store.clock() - HOUR_S, self._store.book.jobs.values()
            mine = (job.submitted_s for job in jobs if (job.tenant, job.user) == (tenant, user))
            self._times[tenant, user] = deque(sorted(at_s for at_s in mine if at_s > since_s))
        return self._times[tenant, user]
