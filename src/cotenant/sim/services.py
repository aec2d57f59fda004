"""Inference services in virtual time: replicas come and go by what is foreseen, and training leaves when it must.

Once a minute, and when a replica is ready, the driver asks: are there as many replicas as the next minutes need, and do
those that have training beside them keep their target? A replica takes an empty GPU, else one whose training it can
bear, else the one whose training is the smallest to stop. Stops go the way of all stops. How the requests fared is
played afterwards, one by one (`sim.requests`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from cotenant.beliefs.replica_places import choose_gpu
from cotenant.beliefs.serving import BesideServices, LatencyGuard, Replica, Replicas
from cotenant.core import columns as col
from cotenant.core.autoscaling import LOOK_S, Autoscaler
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Event, Kind
from cotenant.core.errors import InputError
from cotenant.core.outcome import Scalar
from cotenant.core.serving import DAY_S, Coresidence, InferenceService
from cotenant.core.state import State
from cotenant.core.workload import Codes, Workload
from cotenant.engine.cycle import Engine
from cotenant.engine.guard import stop_guests
from cotenant.engine.rates import RateModel
from cotenant.engine.taking_in import take_in
from cotenant.sim import loop
from cotenant.sim.requests import Stay, serve
from cotenant.workload.profiles import Profile


def with_replicas(work: Workload, services: tuple[InferenceService, ...]) -> Workload:
    """The workload with a row for every replica that there may be, after all jobs; they are submitted by nobody."""
    jobs, more = len(work), sum(service.most for service in services)
    names = [service for service in services for _ in range(service.most)]
    whole = work.take(np.concatenate([np.arange(jobs), np.zeros(more, np.int64)]))
    new = slice(jobs, None)
    for column, value in ((whole.gpus, 1), (whole.nodes, 0), (whole.duration_s, 1.0), (whole.priority, 0)):
        column[new] = value
    for column in (whole.cpus, whole.mem_gib, whole.deadline_s):
        column[new] = np.nan
    whole.job_id[new] = [f"{service.name}/{at}" for at, service in enumerate(names)]
    usual = work.model.names[int(work.model.code[0])]
    return replace(
        whole,
        attempts=dict(work.attempts),
        tenant=_extended(work.tenant, [service.tenant for service in names]),
        gpu_type=_extended(work.gpu_type, [service.gpu_type for service in names]),
        model=_extended(work.model, [service.model or usual for service in names]),
    )


def _extended(column: Codes, texts: list[str]) -> Codes:
    names = tuple(dict.fromkeys([*column.names, *texts]))
    return Codes(np.concatenate([column.code, [names.index(text) for text in texts]]).astype(np.int64), names)


def without_end(state: State, jobs: int) -> None:
    """Rows of replicas never arrive by themselves and never end."""
    state.f[jobs:, [col.SUBMIT, col.WORK, col.BELIEF]] = np.inf
    state.x[col.PINS] = 1


def _measured(profile: Profile, service: InferenceService, kind: int) -> Coresidence | None:
    """What a profile knows of the service's model, on one GPU, beside a kind of training; on the worst GPU type."""
    model = next((at for at, (name, gpus) in enumerate(profile.kinds) if (name, gpus) == (service.model, 1)), None)
    if model is None or profile.together is None:
        return None
    ratio = profile.together.ratio
    both = float(ratio[model, kind].min()), float(ratio[kind, model].min())
    return Coresidence(*both) if min(both) > 0 else None


class Serving:
    """The services of one run. The driver calls `at` at `next_s`, then decides."""

    def __init__(
        self,
        services: tuple[InferenceService, ...],
        state: State,
        profile: Profile,
        cluster: Cluster,
        start_s: float,
        seed: int,
    ) -> None:
        self.replicas = Replicas(services, lambda kind: profile.kinds[kind][0], partial(_measured, profile))
        self.guard = LatencyGuard(self.replicas)
        self.began_s = self.next_s = start_s
        self._seed, self._cluster = seed, cluster
        first = len(state.f) - sum(service.most for service in services)
        self._rows: dict[str, list[int]] = {}
        for service in services:
            self._rows[service.name] = list(range(first, first + service.most))
            first += service.most
        most_gib = float(state.gpu_gib.max(initial=0.0))
        for service in services:
            if service.gib > most_gib:
                raise InputError(
                    f"service '{service.name}': gib is {service.gib:g}; the largest GPU has {most_gib:g} GiB"
                )
        self._stays: dict[str, list[Stay]] = {service.name: [] for service in services}
        self._open: dict[int, Stay] = {}  # by row
        self._scalers = {service.name: Autoscaler() for service in services}
        self._training: dict[int, tuple[float, float]] = {}  # by row: since when its GPU does so much training
        self._handled, self._quiet_s = -1, start_s
        self.left, self.trained_gpu_s, self.replica_gpu_s = 0, 0.0, 0.0

    def rates(self, inner: RateModel | None) -> BesideServices:
        """The rate model of a run with services."""
        return BesideServices(inner, self.replicas, self._tell)

    # -- in time ---------------------------------------------------------------------------------------------------

    def at(self, engine: Engine, now_s: float) -> None:
        """Scale, and say how busy replicas are. Training that must leave does so at the next decision (`guard`)."""
        logging, newest = int(engine.state.x[col.LOGGING]), engine.state.x[[col.NEWEST, col.ARRIVED]].copy()
        engine.state.x[col.LOGGING] = 0
        for service in self.replicas.services:
            self._scale(service, engine, now_s)
        engine.state.x[col.LOGGING] = logging
        self._account(engine.state, now_s)
        engine.state.x[[col.NEWEST, col.ARRIVED]] = newest
        starting = [one.ready_s for one in self.replicas.all.values() if one.ready_s > now_s]
        self.next_s = min(now_s + LOOK_S, *starting) if starting else now_s + LOOK_S

    def _scale(self, service: InferenceService, engine: Engine, now_s: float) -> None:
        have = len(self.replicas.of(service))
        foreseen = service.rate.foreseen(now_s, service.ahead_s + service.start_s)
        wanted = self._scalers[service.name].wanted(service, have, foreseen, now_s)
        for count in range(have, wanted):
            self._add(service, engine, now_s, count)
        if wanted < have:
            last = max(self.replicas.of(service), key=lambda one: (one.ready_s, one.row))
            engine.state.f[last.row, [col.START_UP, col.WARM]] = 0.0, now_s
            take_in(engine.state, engine.rule, Event(Kind.OVER, last.row), now_s)
            self._close(last.row, now_s)
            del self.replicas.all[last.row]

    def _add(self, service: InferenceService, engine: Engine, now_s: float, have: int) -> None:
        state = engine.state
        row = next(row for row in self._rows[service.name] if row not in self.replicas.all)
        rate = service.rate.foreseen(now_s, service.ahead_s)
        found = choose_gpu(self.replicas, service, row, state, rate, have if engine.traits.shares else -1)
        if found is None:
            if have < service.least:
                need = f"{service.least} replicas of service '{service.name}'"
                raise InputError(f"cluster '{self._cluster.spec}' has no GPU left for {need}")
            return
        node, gpu, stops = found
        self._stop(engine, stops, now_s)
        new = Replica(row, service, node, gpu, now_s if now_s == self.began_s else now_s + service.start_s)
        for event in (Event(Kind.ARRIVED, row), Event(Kind.ADOPTED, row, new.places, now_s), Event(Kind.PINNED, row)):
            take_in(state, engine.rule, event, now_s)
        state.f[row, [col.START_UP, col.WARM]] = 1.0, np.inf  # what it costs others is said here, not by its kind
        self.replicas.all[row] = new
        self._open[row] = Stay(new.ready_s)
        self._stays[service.name].append(self._open[row])

    def _stop(self, engine: Engine, rows: list[int], now_s: float) -> None:
        """Let training leave the GPU of a new replica."""
        if rows:
            self.left += len(rows)
            stop_guests(engine, rows, now_s)

    def goes_on(self, code: int, state: State, now_s: float) -> bool:
        """Whether the loop has come to the next look: also with nothing else to do, unless no hour of the day helps."""
        if code != loop.STUCK:
            return code == loop.REACHED_UNTIL
        if self._handled != int(state.x[col.N_HANDLED]):
            self._handled, self._quiet_s = int(state.x[col.N_HANDLED]), now_s
        return now_s <= self._quiet_s + 2 * DAY_S

    # -- figures ---------------------------------------------------------------------------------------------------

    def _account(self, state: State, now_s: float) -> None:
        """How busy replicas are now, with whoever is beside them."""
        for replica in self.replicas.all.values():
            answering = max(len(self.replicas.of(replica.service, now_s)), 1)
            slow = self.replicas.slowdown(state, replica, self.replicas.guests(state, replica), throttled=True)
            replica.busy = min(replica.service.rate.at(now_s) / answering * replica.service.service_s * slow, 1.0)

    def _tell(self, replica: Replica, slowdown: float, trained: float, now_s: float) -> None:
        self._open[replica.row].note(slowdown, now_s)
        since_s, before = self._training.get(replica.row, (now_s, 0.0))
        self.trained_gpu_s += before * (now_s - since_s)
        self._training[replica.row] = now_s, trained

    def _close(self, row: int, now_s: float) -> None:
        """A replica is gone."""
        stay = self._open.pop(row)
        stay.to_s = now_s
        self.replica_gpu_s += now_s - stay.from_s
        since_s, before = self._training.pop(row, (now_s, 0.0))
        self.trained_gpu_s += before * (now_s - since_s)

    def summary(self, now_s: float) -> dict[str, Scalar]:
        """The figures of a run so far."""
        served_gpu_s = self.replica_gpu_s + sum(now_s - stay.from_s for stay in self._open.values())
        trained_gpu_s = self.trained_gpu_s + sum(now * (now_s - since_s) for since_s, now in self._training.values())
        found: dict[str, Scalar] = {}
        for service in self.replicas.services:
            served = serve(service, self._stays[service.name], self.began_s, now_s, self._seed)
            name = f"service_{service.name}"
            found |= {f"{name}_requests": served.requests, f"{name}_within_target": served.share}
            found |= {f"{name}_p50_s": served.p50_s, f"{name}_p99_s": served.p99_s}
        hours = {"service_gpu_hours": served_gpu_s / 3600, "beside_services_gpu_hours": trained_gpu_s / 3600}
        return (
            found | hours | {"left_services": self.left + self.guard.left, "refused_by_services": self.guard.refusals}
        )
