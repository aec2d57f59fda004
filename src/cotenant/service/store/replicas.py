"""What the book knows of inference services: how many replicas each should have, and how its requests fared.

A service whose replicas are scaled is an array with an element for every replica that there may be. So many of them may
run as were wanted last; the others wait until they are. Which ones is a function of the book, so a restart changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cotenant.core.lifecycle import ON_GPUS
from cotenant.service.store.job import LiveJob

P99_MS, REQUESTS_PER_S, REQUESTS, WITHIN = "p99_ms", "requests_per_s", "requests", "within_target"
"""Metrics of `runtime.Requests`: of the last seconds, and since the process began."""


def service_of(job: str) -> str:
    """The id of the service that a replica is of."""
    return job.partition(".")[0]


def is_scaled(job: LiveJob) -> bool:
    """Whether it is a replica of a service whose replicas come and go."""
    return "most" in job.spec.service


class BookServices:
    """By id of the service: replicas that it should have, and requests of attempts that have ended, all and in time."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self.wanted: dict[str, int] = dict((data or {}).get("wanted", {}))
        self.served: dict[str, tuple[float, float]] = {
            name: (float(both[0]), float(both[1])) for name, both in (data or {}).get("served", {}).items()
        }

    def rows(self) -> dict[str, Any]:
        """As plain data."""
        return {"wanted": dict(self.wanted), "served": dict(self.served)}

    def copy(self) -> BookServices:
        """For readers: later changes of the book leave it alone."""
        return BookServices(self.rows())

    def count(self, job: LiveJob) -> int:
        """Replicas that the service of a job should have."""
        return self.wanted.get(service_of(job.id), int(job.spec.service.get("least", 1)))

    def end(self, job: LiveJob, metrics: Mapping[str, float | None]) -> None:
        """An attempt of a replica has ended, and these were its last words."""
        requests, within = (float(metrics.get(name) or 0.0) for name in (REQUESTS, WITHIN))
        before = self.served.get(service_of(job.id), (0.0, 0.0))
        self.served[service_of(job.id)] = before[0] + requests, before[1] + requests * within

    def forget(self, service: str) -> None:
        """All its replicas are forgotten."""
        self.wanted.pop(service, None)
        self.served.pop(service, None)


def let_in(replicas: Iterable[LiveJob], count: int) -> set[str]:
    """The replicas that may run: those that do, the oldest first, then the oldest of those that wait."""
    alive: Sequence[LiveJob] = [job for job in replicas if not job.finished and not job.held]
    runs = {job.id for job in alive if job.state in ON_GPUS and not job.stop_why}
    ranked = sorted(alive, key=lambda job: (job.id not in runs, job.order))
    return {job.id for job in ranked[:count]}
