"""How tenants stand now, by name: what they hold and wait for, by a view; what they may hold, by the last decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.core.lifecycle import WAITING
from cotenant.service.store.job import LiveJob, waits_for
from cotenant.service.store.view import BookView


@dataclass(frozen=True, slots=True)
class TenantNumbers:
    """Of one tenant: the most GPUs that it may hold now, those that it holds, and its past use in GPUs.

    Past use is the mean of the GPUs that it held, older use counting less. 0 where only what is held now counts.
    """

    limit: int
    used: int
    past_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """GPUs that tenants hold and wait for, and their jobs that do. Only what could start waits for GPUs."""

    used: Mapping[str, int] = field(default_factory=Counter)
    waiting: Mapping[str, int] = field(default_factory=Counter)
    running_jobs: Mapping[str, int] = field(default_factory=Counter)
    waiting_jobs: Mapping[str, int] = field(default_factory=Counter)

    def of(self, tenant: str) -> int:
        """All GPUs that a tenant holds or waits for."""
        return self.used.get(tenant, 0) + self.waiting.get(tenant, 0)


def held_gpus(view: BookView) -> HeldGpus:
    """By a view."""
    used, waiting, running_jobs, waiting_jobs = (Counter[str]() for _ in range(4))
    for job in view.active:
        if job.id in view.on_gpus:
            used[job.tenant] += job.size
            running_jobs[job.tenant] += 1
        elif _could_start(job, view):
            waiting[job.tenant] += job.spec.gpus
            waiting_jobs[job.tenant] += 1
    return HeldGpus(used, waiting, running_jobs, waiting_jobs)


def _could_start(job: LiveJob, view: BookView) -> bool:
    """Whether nothing but GPUs keeps it waiting."""
    if job.state not in WAITING or job.held or job.stop_why or job.aside:
        return False
    return not job.spec.after or not waits_for(job, view.members)
