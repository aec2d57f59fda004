"""Inference services of the live cluster: where their replicas are, what they report, whom they can bear beside them.

A replica is a job with `service:` in its file; nobody may stop it. Its runtime reports `p99_ms` and `requests_per_s`.
Training may join its GPU while the latency that is predicted at the measured rate stays within target, under policies
that share. When it is measured to be late all the same, whoever is beside it leaves, and nobody joins for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cotenant.beliefs.live_profiles import LiveKind
from cotenant.beliefs.serving import LatencyGuard, Replica, Replicas
from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.serving import PAIR, SURPRISE, Coresidence, InferenceService, RateCurve
from cotenant.engine.observe import places_of
from cotenant.service.observer.reports import Reports
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

if TYPE_CHECKING:
    from cotenant.service.planner.session import Session

P99_MS, REQUESTS_PER_S = "p99_ms", "requests_per_s"
_CALM_S = 60.0  # for which nobody joins a service that was late
_NOT_YET = "it has not reported its latency yet"


class LiveServices:
    """Follows the book and what replicas report; its guard is the engine's while there is any replica."""

    def __init__(self, store: Store, reports: Reports) -> None:
        self._store, self._reports = store, reports
        self.replicas = Replicas((), lambda kind: "")
        self._kinds: Sequence[LiveKind] = ()
        self.guard = LatencyGuard(
            self.replicas, self._foreseen, self._bar, lambda one: one.name in self._late, self._stays_apart
        )
        self._p99_s: dict[str, float] = {}  # by service: the worst of its replicas
        self._rate: dict[str, float] = {}
        self._late: dict[str, tuple[float, str]] = {}  # by service: until when nobody joins, and why
        self._told: dict[str, tuple[bool, bool, int]] = {}

    def look(self, session: Session, now_s: float) -> list[Event]:
        """Take in where replicas are and what they say; events for services whose situation has changed."""
        found = {}
        for job in self._store.book.serving.values():
            row = session.follower.row_of.get(job.id)
            if row is not None and session.tables.state.i[row, col.STATE] == col.PINNED:
                (node, _, mask), *_ = places_of(session.tables.state, row)
                found[row] = Replica(row, _service(job), node, mask.bit_length() - 1)
        self.replicas.all, self._kinds = found, session.kept.profiles.kinds
        session.engine.guard = self.guard if found else None
        self._hear(session, found)
        return [event for name in {one.service.name for one in found.values()} for event in self._news(name, now_s)]

    def _hear(self, session: Session, found: dict[int, Replica]) -> None:
        """The worst latency of each service, and its requests over all replicas."""
        self._p99_s, self._rate = {}, {}
        for row, replica in found.items():
            report, name = self._reports.of(session.follower.job_at[row]), replica.service.name
            if report is None or P99_MS not in report.metrics:
                continue
            self._p99_s[name] = max(self._p99_s.get(name, 0.0), report.metrics[P99_MS] / 1000)
            self._rate[name] = self._rate.get(name, 0.0) + max(report.metrics.get(REQUESTS_PER_S, 0.0), 0.0)

    def _news(self, name: str, now_s: float) -> list[Event]:
        """Something to decide anew: a service has become late, is so no longer, or has other requests than before."""
        rows = [row for row, one in self.replicas.all.items() if one.service.name == name]
        target_s, p99_s = self.replicas.all[rows[0]].service.target_s, self._p99_s.get(name, 0.0)
        if p99_s > target_s:
            text = f"its p99 latency is measured to be {p99_s * 1000:.0f} ms, over its target of {target_s * 1000:g} ms"
            self._late[name] = now_s + _CALM_S, text
        elif now_s >= self._late.get(name, (0.0, ""))[0]:
            self._late.pop(name, None)
        now = name in self._late, name in self._p99_s, round(self._rate.get(name, 0.0) * target_s * 2)
        before, self._told[name] = self._told.get(name), now
        return [] if before == now else [Event(Kind.CHANGED, rows[0])]

    def _foreseen(self, service: InferenceService, now_s: float, ahead_s: float) -> float:
        """As measured and a quarter more, and what the job file says at least."""
        return max(SURPRISE * self._rate.get(service.name, 0.0), service.rate.at(now_s))

    def _stays_apart(self, kind: int) -> bool:
        """Exclusive jobs, and those that nobody may stop."""
        return self._kinds[kind].alone

    def _bar(self, service: InferenceService) -> str:
        """Why nobody may join, whatever is predicted."""
        if service.name not in self._p99_s:
            return _NOT_YET
        return self._late.get(service.name, (0.0, ""))[1]


def _service(job: LiveJob) -> InferenceService:
    """What the job file says."""
    said, of = job.spec.service, job.id.split(".")[0]
    speed = said.get("beside", PAIR)
    return InferenceService(
        f"{job.spec.name}/{of}",
        said["target_s"],
        said["service_s"],
        RateCurve.constant(said.get("rate", 0.0)),
        gib=job.spec.gpu_mem_gib,
        beside={"": Coresidence(speed, speed)},
        alone=job.spec.exclusive,
    )
