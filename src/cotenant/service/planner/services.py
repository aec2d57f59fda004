"""Inference services of the live cluster: where their replicas are, what they report, whom they can bear beside them.

A replica is a job with `service:` in its file; nobody may stop it. Its runtime reports `p99_ms` and `requests_per_s`.
Training may join its GPU while the latency that is predicted at the measured rate stays within target, under policies
that share. When it is measured to be late all the same, whoever is beside it leaves, and nobody joins for a while.
Replicas follow the measured rate and latency between the least and the most of the job file (`core.autoscaling`), and
those that wait are brought to GPUs by the rule of simulated ones (`beliefs.replica_places`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cotenant.beliefs.live_profiles import LiveKind
from cotenant.beliefs.replica_places import choose_gpu
from cotenant.beliefs.serving import LatencyGuard, Replica, Replicas
from cotenant.core import columns as col
from cotenant.core.autoscaling import Autoscaler
from cotenant.core.decision import Event, Kind
from cotenant.core.plan import Places
from cotenant.core.serving import PAIR, SURPRISE, Coresidence, InferenceService, RateCurve
from cotenant.core.state import State
from cotenant.engine.observe import places_of
from cotenant.journal import Entry
from cotenant.service.observer.reports import Reports
from cotenant.service.planner.decision import Act
from cotenant.service.store.job import LiveJob
from cotenant.service.store.replicas import P99_MS, REQUESTS_PER_S, is_scaled, service_of
from cotenant.service.store.store import Store

if TYPE_CHECKING:
    from cotenant.service.planner.session import Session

_CALM_S = 60.0  # for which nobody joins a service that was late
_ALONE_S = 10.0  # for which a service is late without company before it gets one more replica: reports look back so far
_NOT_YET = "it has not reported its latency yet"


class LiveGuard(LatencyGuard):
    """Brings replicas that wait to their GPUs, beside what every guard does."""

    rows: Mapping[int, InferenceService] = {}  # of replicas that wait

    def waiting(self) -> list[int]:
        """Replicas that their services need and that have no GPU yet."""
        return list(self.rows)

    def place_of(self, row: int, state: State, shares: bool, now_s: float) -> tuple[Places, frozenset[int]] | None:
        """As simulated services choose."""
        service = self.rows[row]
        have = len(self.replicas.of(service)) if shares else -1
        found = choose_gpu(self.replicas, service, row, state, self._foreseen(service, now_s, service.ahead_s), have)
        return None if found is None else (((found[0], 1, 1 << found[1]),), frozenset(found[2]))


class LiveServices:
    """Follows the book and what replicas report; its guard is the engine's while there is any replica."""

    def __init__(self, store: Store, reports: Reports) -> None:
        self._store, self._reports = store, reports
        self.replicas = Replicas((), lambda kind: "")
        self._kinds: Sequence[LiveKind] = ()
        self.guard = LiveGuard(
            self.replicas, self._foreseen, self._bar, lambda one: one.name in self._late, self._stays_apart
        )
        self._p99_s: dict[str, float] = {}  # by service: the worst of its replicas
        self._rate: dict[str, float] = {}
        self._late: dict[str, tuple[float, str]] = {}  # by service: until when nobody joins, and why
        self._told: dict[str, tuple[bool, bool, int]] = {}
        self._scalers: dict[str, Autoscaler] = {}  # by id of the service
        self._alone_s: dict[str, float] = {}  # since when it has been late without company

    def look(self, session: Session, now_s: float) -> list[Event]:
        """Take in where replicas are and what they say; events for services whose situation has changed."""
        found, waiting = {}, {}
        for job in self._store.book.serving.values():
            row = session.follower.row_of.get(job.id)
            if row is None:
                continue
            state = session.tables.state.i[row, col.STATE]
            if state == col.PINNED and job.id in self._store.book.on_gpus:
                (node, _, mask), *_ = places_of(session.tables.state, row)
                found[row] = Replica(row, _service(job), node, mask.bit_length() - 1)
            elif state in (col.WAITING, col.FUTURE, col.HELD) and session.follower.startable(job):
                waiting[row] = _service(job)
        self.replicas.all, self.guard.rows = found, waiting
        self._kinds = session.kept.profiles.kinds
        session.engine.guard = self.guard if found or waiting else None
        self._hear(session, found)
        return [event for name in {one.service.name for one in found.values()} for event in self._news(name, now_s)]

    def _hear(self, session: Session, found: dict[int, Replica]) -> None:
        """The worst latency of each service, and its requests over all replicas; who has said nothing yet is starting.

        After a restart of the service nobody has said anything for a moment, and all count as answering.
        """
        self._p99_s, self._rate = {}, {}
        silent = []
        for row, replica in found.items():
            report, name = self._reports.of(session.follower.job_at[row]), replica.service.name
            if report is None or P99_MS not in report.metrics:
                silent.append(replica)
                continue
            self._p99_s[name] = max(self._p99_s.get(name, 0.0), report.metrics[P99_MS] / 1000)
            self._rate[name] = self._rate.get(name, 0.0) + max(report.metrics.get(REQUESTS_PER_S, 0.0), 0.0)
        for replica in silent:
            replica.ready_s = math.inf if replica.service.name in self._p99_s else 0.0

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

    # -- how many --------------------------------------------------------------------------------------------------

    def scale(self, session: Session, now_s: float) -> list[Entry]:
        """What to journal of services that should have another number of replicas than the book says; after `look`."""
        found: list[Entry] = []
        state, book = session.tables.state, self._store.book
        alive: dict[str, LiveJob] = {}
        for job in book.serving.values():
            if is_scaled(job):
                alive.setdefault(service_of(job.id), job)
        for name, job in alive.items():
            service, have = _service(job), book.services.count(job)
            scaler = self._scalers.setdefault(name, Autoscaler(needed_s=now_s))
            mine = [one for one in self.replicas.all.values() if one.service.name == service.name]
            p99_s, rate = self._p99_s.get(service.name, 0.0), self._foreseen(service, now_s, _ahead_s(service))
            alone = not any(self.replicas.guests(state, one) for one in mine)
            if p99_s <= service.target_s or not alone:
                self._alone_s.pop(name, None)
            late = now_s >= self._alone_s.setdefault(name, now_s) + _ALONE_S if p99_s > service.target_s else False
            wanted = scaler.wanted(service, have, rate, now_s, late and alone)
            if wanted != have:
                why = f"p99 latency {p99_s * 1000:.0f} ms" if late else f"{rate:.3g} requests/s foreseen"
                found.append(
                    Entry("replicas", job.id, {"count": wanted, "why": f"{why}, target {service.target_s * 1000:g} ms"})
                )
        for name in self._scalers.keys() - alive.keys():
            del self._scalers[name]
        return found

    def surplus(self, session: Session) -> list[Act]:
        """Replicas that run and are not needed any more."""
        return [Act("stop", job, why="scale") for job in session.follower.surplus()]

    def _foreseen(self, service: InferenceService, now_s: float, ahead_s: float) -> float:
        """As measured and a quarter more, and what the job file says at least."""
        return max(SURPRISE * self._rate.get(service.name, 0.0), service.rate.foreseen(now_s, ahead_s))

    def _stays_apart(self, kind: int) -> bool:
        """Exclusive jobs, and those that nobody may stop."""
        return self._kinds[kind].alone

    def _bar(self, service: InferenceService) -> str:
        """Why nobody may join, whatever is predicted."""
        if service.name not in self._p99_s:
            return _NOT_YET
        return self._late.get(service.name, (0.0, ""))[1]


def _ahead_s(service: InferenceService) -> float:
    return service.ahead_s + service.start_s


def _service(job: LiveJob) -> InferenceService:
    """What the job file says."""
    said = job.spec.service
    speed, rate = said.get("beside", PAIR), said.get("rate", 0.0)
    times = {key: said[key] for key in ("start_s", "ahead_s", "calm_s") if key in said}
    return InferenceService(
        f"{job.spec.name}/{service_of(job.id)}",
        said["target_s"],
        said["service_s"],
        RateCurve.by_hours(rate) if isinstance(rate, list) else RateCurve.constant(rate),
        said.get("least", 1),
        said.get("most", 1),
        gib=job.spec.gpu_mem_gib,
        beside={"": Coresidence(speed, speed)},
        alone=job.spec.exclusive,
        **times,
    )
