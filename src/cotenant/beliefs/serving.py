"""Inference services and training on the same GPUs: what each does to the other, and who may join.

A request takes longer beside training, by the sum over guests of what each costs it; training is slowed while requests
are worked on: with a service that is busy for a part b of the time, and a speed of r beside it, to 1 - b (1 - r).
A guest may join while the 99th percentile of the latency that is predicted with it stays within the target, at the
highest rate that is foreseen (`core.serving`). Guests count in full, however they are throttled now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Places, Why
from cotenant.core.serving import Coresidence, InferenceService
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.guard import Wanted
from cotenant.engine.letting_in import keep_out, let_in
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import RateModel, rerate

SOON_S = 120.0  # how long before requests rise training leaves
MOST_GUESTS = col.SLOTS - 1  # the replica needs a place of its own
_SLACK_GIB = 1e-6


Pairs = Callable[[InferenceService, int], Coresidence | None]
"""Service, kind of training -> what they do to each other, where that was measured."""


@dataclass(slots=True)
class Replica:
    """One replica of a service: its row, its GPU, and since when it answers (infinity: not yet)."""

    row: int
    service: InferenceService
    node: int
    gpu: int  # of the node
    ready_s: float = 0.0
    busy: float = 0.0  # part of the time in which it works on requests

    @property
    def places(self) -> Places:
        """Its GPU as a place of a plan."""
        return ((self.node, 1, 1 << self.gpu),)

    def cell(self, state: State) -> int:
        """Its GPU, numbered over all nodes."""
        return int(state.gpu_first[self.node]) + self.gpu


class Replicas:
    """All replicas of all services, and who sits beside them. Kinds of jobs are known by their models."""

    def __init__(
        self, services: Sequence[InferenceService], model_of: Callable[[int], str], pairs: Pairs | None = None
    ) -> None:
        self.services, self._model_of, self._pairs = tuple(services), model_of, pairs
        self.all: dict[int, Replica] = {}
        self._known: dict[tuple[str, int], Coresidence] = {}

    def of(self, service: InferenceService, now_s: float = math.inf) -> list[Replica]:
        """The replicas of a service that answer by then."""
        return [one for one in self.all.values() if one.service.name == service.name and one.ready_s <= now_s]

    def company(self, service: InferenceService, kind: int) -> Coresidence:
        """What a service and a kind of training do to each other."""
        key = service.name, kind
        if key not in self._known:
            measured = None if self._pairs is None else self._pairs(service, kind)
            self._known[key] = service.company(self._model_of(kind), measured)
        return self._known[key]

    def guests(self, state: State, replica: Replica) -> list[int]:
        """Who else sits on its GPU."""
        return [row for row in state.gpu[replica.cell(state)].tolist() if row >= 0 and row != replica.row]

    def slowdown(self, state: State, replica: Replica, guests: Sequence[int], throttled: bool = False) -> float:
        """How many times as long a request takes beside guests; as they are throttled now, or in full."""
        total = 1.0
        for row in guests:
            lost = 1.0 / self.company(replica.service, int(state.i[row, col.SPEED_ROW])).service - 1.0
            total += lost * (float(state.f[row, col.SHARE]) if throttled else 1.0)
        return total


Foreseen = Callable[[InferenceService, float, float], float]
"""Service, now, seconds -> the highest rate of requests in the next so many seconds."""


def by_curve(service: InferenceService, now_s: float, ahead_s: float) -> float:
    """As the service's own curve says."""
    return service.rate.foreseen(now_s, ahead_s)


def no_bar(service: InferenceService) -> str:
    """Nothing but the prediction counts."""
    return ""


def never_late(service: InferenceService) -> bool:
    """Nothing is measured."""
    return False


class LatencyGuard:
    """Lets training join replicas while the predicted latency stays within target.

    Whatever is predicted, nobody joins a service while `bar` says why, and guests leave while it is `late`.
    Kinds of jobs that stay apart join nobody.
    """

    def __init__(
        self, replicas: Replicas, foreseen: Foreseen = by_curve, bar: Callable[[InferenceService], str] = no_bar,
        late: Callable[[InferenceService], bool] = never_late, stays_apart: Callable[[int], bool] = lambda kind: False,
    ) -> None:  # fmt: skip
        self._stays_apart = stays_apart
        self.replicas, self._foreseen, self._bar, self._late = replicas, foreseen, bar, late
        self._said: dict[int, str] = {}
        self.refusals = self.left = 0

    # -- for the engine --------------------------------------------------------------------------------------------

    def waiting(self) -> list[int]:
        """Nobody: whoever scales replicas brings them to their GPUs."""
        return []

    def place_of(self, row: int, state: State, shares: bool, now_s: float) -> tuple[Places, frozenset[int]] | None:
        """Nowhere."""
        return None

    def open_to(self, state: State, waiting: Ints, now_s: float) -> bool:
        """Open the GPUs that some of those who wait may join, shut the others; whether any are open.

        None without guests as long as empty GPUs are enough for everybody. Those with guests stay open, so that a
        policy that makes its whole plan anew can keep them there.
        """
        replicas = list(self.replicas.all.values())
        bare = sum(bool(state.i[one.row, col.LETS_IN]) and not self.replicas.guests(state, one) for one in replicas)
        if int(state.i[waiting, col.GPUS].sum()) <= int(state.x[col.IDLE]) - bare:
            waiting = waiting[:0]
        kinds, first = np.unique(state.i[waiting, col.SPEED_ROW], return_index=True)
        firsts = waiting[first].tolist()
        said: dict[int, list[str]] = {kind: [] for kind in kinds.tolist()}
        opened = False
        for replica in replicas:
            guests = self.replicas.guests(state, replica)
            reasons = [self.against(state, replica, guests, row, now_s) for row in firsts]
            for kind, reason in zip(kinds.tolist(), reasons, strict=True):
                said[kind].append(reason)
            if guests or not all(reasons):
                let_in(state, replica.row)
                opened = True
            else:
                keep_out(state, replica.row)
        self._said = {kind: found[0] for kind, found in said.items() if found and all(found)}
        return opened

    def refused(self, state: State, wanted: Wanted, now_s: float) -> dict[int, tuple[int, ...]]:
        """Of those who are to run somewhere, whoever may not, and beside which replicas; who sits there may stay."""
        found: dict[int, tuple[int, ...]] = {}
        for replica in self.replicas.all.values():
            if not state.i[replica.row, col.LETS_IN]:
                continue
            planned = [row for row, places in wanted.items() if _sits_on(places, replica)]
            old = {row for row in self.replicas.guests(state, replica) if state.f[row, col.SINCE] < now_s}
            guests = [row for row in planned if row in old]
            for row in sorted(set(planned) - old):
                if self.against(state, replica, guests, row, now_s):
                    found[row] = (*found.get(row, ()), replica.row)
                else:
                    guests.append(row)
        self.refusals += len(found)
        return found

    def shut(self, state: State, pinned: Ints) -> None:
        """Nobody more may join these."""
        for row in pinned.tolist():
            keep_out(state, row)

    def answers(self, state: State) -> Why:
        """Why jobs may join no replica, as of the last decision."""
        said = self._said
        return lambda row: said.get(int(state.i[row, col.SPEED_ROW]), "")

    # -- the rule --------------------------------------------------------------------------------------------------

    def against(self, state: State, replica: Replica, guests: Sequence[int], row: int, now_s: float) -> str:
        """Why a job may not join a replica beside these guests; empty where it may."""
        service = replica.service
        name = f"it may not join service '{service.name}'"
        if service.alone:
            return f"{name}, whose GPUs are its own"
        if self._stays_apart(int(state.i[row, col.SPEED_ROW])):
            return f"{name}: it shares no GPU, or could not be made to leave"
        if replica.ready_s > now_s:
            return f"{name}, which is starting"
        if len(guests) >= MOST_GUESTS:
            return f"{name}: {MOST_GUESTS} jobs are beside it already"
        room = float(state.gpu_gib[state.pool[state.node[replica.node, col.NODE_POOL], col.POOL_TYPE]]) - service.gib
        if float(state.f[[*guests, row], col.GPU_GIB].sum()) > room + _SLACK_GIB:
            return f"{name}: the memory that it leaves is too little"
        if bar := self._bar(service):
            return f"{name}: {bar}"
        rate = self._foreseen(service, now_s, service.ahead_s)
        p99_s = self.p99_s(state, replica, [*guests, row], rate, now_s)
        if p99_s <= service.target_s:
            return ""
        would = f"be {p99_s * 1000:.0f} ms" if p99_s < math.inf else "grow without end"
        return f"{name}: its p99 latency would {would} at {rate:.3g} requests/s, over its target of {_ms(service)}"

    def p99_s(self, state: State, replica: Replica, guests: Sequence[int], rate: float, now_s: float) -> float:
        """Predicted latency of a replica beside guests, at a rate of the whole service."""
        answering = len(self.replicas.of(replica.service, now_s))
        return replica.service.p99_s(rate, answering, self.replicas.slowdown(state, replica, guests))

    def to_leave(self, state: State, now_s: float) -> list[int]:
        """Guests without whom the services keep their targets in the next seconds; who came last leaves first."""
        leaving: list[int] = []
        for replica in self.replicas.all.values():
            guests = [row for row in self.replicas.guests(state, replica) if row not in leaving]
            guests.sort(key=lambda row: (float(state.f[row, col.SINCE]), row))
            rate, target_s = self._foreseen(replica.service, now_s, SOON_S), replica.service.target_s
            while guests and (
                self._late(replica.service) or self.p99_s(state, replica, guests, rate, now_s) > target_s
            ):
                leaving.append(guests.pop())
        return leaving


def _ms(service: InferenceService) -> str:
    return f"{service.target_s * 1000:g} ms"


def _sits_on(places: Places, replica: Replica) -> bool:
    return any(node == replica.node and mask >> replica.gpu & 1 for node, _, mask in places)


class BesideServices:
    """A rate model whose jobs are slowed further where they sit beside replicas; a gang moves at its slowest GPU.

    `tell` hears after every decision how many times as long requests take at a replica, and how much training its GPU
    does against one of its own.
    """

    def __init__(
        self, inner: RateModel | None, replicas: Replicas, tell: Callable[[Replica, float, float, float], None]
    ) -> None:
        self.inner, self.replicas, self._tell = inner, replicas, tell
        self._set: dict[int, tuple[float, float]] = {}  # by guest: its speed otherwise, and the one that it was given

    def settle(self, state: State, now_s: float) -> None:
        """Before a decision, where the model inside wants that."""
        settle = getattr(self.inner, "settle", None)
        if settle is not None:
            settle(state, now_s)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate as the model inside says, then whoever sits beside a replica."""
        if self.inner is not None:
            self.inner.update(state, rule, now_s)
        factor: dict[int, float] = {}
        for replica in self.replicas.all.values():
            for row in self.replicas.guests(state, replica):
                beside = self.replicas.company(replica.service, int(state.i[row, col.SPEED_ROW])).training
                factor[row] = min(factor.get(row, 1.0), 1.0 - replica.busy * (1.0 - beside))
        rows = running_rows(state)
        speeds, given = state.f[rows, col.SPEED].copy(), {}
        for at, row in enumerate(rows.tolist() if factor or self._set else ()):
            base, last = self._set.get(row, (speeds[at], speeds[at]))
            base = base if speeds[at] == last else float(speeds[at])  # the model inside has said something new
            speeds[at] = base * factor.get(row, 1.0)
            if row in factor:
                given[row] = base, float(speeds[at])
        if given or self._set:
            rerate(state, rule, rows, speeds, now_s)
        self._set = given
        for replica in self.replicas.all.values():
            guests = self.replicas.guests(state, replica)
            trained = sum(float(state.f[row, col.SPEED] / state.f[row, col.ALONE]) for row in guests)
            self._tell(replica, self.replicas.slowdown(state, replica, guests, throttled=True), trained, now_s)
