"""Tiresias' released simulator (NSDI'19): its queues as lists, its promotion and its Gittins index, slips included.

* Inside a queue: `engine.listing` says what its order is (`inner=released`); under -G every queue is sorted by index,
  then submit time.
* A gang that has run before is demoted late: the time until then is (limit - run) / GPUs, not limit / GPUs - run.
* Promotion counts all waiting since a job last entered the first queue, not only since it last ran.
* The index divides by the mean of the services that end within the quantum, counted from their beginning.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import ClassVar

import numpy as np

from cotenant.compat.base import System
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Pools
from cotenant.core.view import View
from cotenant.policies.base import Context, PlanPolicy, Policy
from cotenant.policies.tiresias import TiresiasG, TiresiasL

PER_MILLION, DIGITS, MORE_DIGITS = 1e6, 4, 5  # how its index is rounded


class TiresiasQuirks(System):
    """Named alone, it plays the whole simulator; otherwise the policy, with its limits of the queues."""

    bundle: ClassVar[dict[str, str]] = {"queues": "lists", "costs": "none"}
    single = bundle

    def policy(self, policy: Policy) -> Policy:
        """Both forms of Tiresias as they are played there."""
        return ListedTiresias(policy) if isinstance(policy, TiresiasL) and "queues" in self.quirks else policy


class ListedTiresias(PlanPolicy):
    """Queues by attained GPU time, kept as lists; GPUs counted without nodes."""

    names_pools = True

    def __init__(self, asked: TiresiasL) -> None:
        super().__init__(**asked.params)
        self.asked = asked
        self.knob = asked.number("knob")

    def begin(self, context: Context) -> None:
        """Nothing has arrived."""
        self.limits = self.asked.thresholds(context)
        self.index = None
        if isinstance(self.asked, TiresiasG):
            if not self.limits:
                raise InputError("--compat tiresias: tiresias-g needs two queues or more, for its quantum")
            self.index = Index(np.sort(self.asked.samples(context)).tolist(), self.limits[0])
        self._queues: list[list[int]] = [[] for _ in range(len(self.limits) + 1)]
        self._queue: dict[int, int] = {}  # of each job, in order of arrival
        self._ran_s: dict[int, float] = {}  # since it was promoted
        self._waited_s: dict[int, float] = {}
        self._running: set[int] = set()
        self._last_s = 0.0

    def decide(self, view: View) -> Plan:
        """Account, demote, promote, walk the lists, and say when the next demotion or promotion is due."""
        if len(view.pool_gpus) > 1:
            raise InputError("--compat tiresias: the simulator knows one kind of GPUs")
        gpus = dict(zip(view.rows.tolist(), view.gpus.tolist(), strict=True))
        self._meet(gpus, view)
        self._account(gpus, view.now_s)
        self._walk(gpus, view)
        order = [row for queue in self._queues for row in queue if row in self._running]
        rows, none = np.array(order, np.int64), np.full(len(order), -1, np.int64)
        pools = Pools(rows, np.zeros(len(order), np.int64), none)
        return Plan(pools=pools, next_s=self._next_s(gpus, view.now_s), why=self._why)

    def _meet(self, gpus: dict[int, int], view: View) -> None:
        """Newcomers go to the end of the first queue; whoever has ended leaves."""
        for row in [row for row in self._queue if row not in gpus]:
            self._queues[self._queue.pop(row)].remove(row)
            self._running.discard(row)
        new = [row for row in gpus if row not in self._queue]
        submit = dict(zip(view.rows.tolist(), view.submit_s.tolist(), strict=True))
        for row in sorted(new, key=lambda row: (submit[row], row)):
            self._queue[row], self._ran_s[row], self._waited_s[row] = 0, 0.0, 0.0
            self._queues[0].append(row)

    def _account(self, gpus: dict[int, int], now_s: float) -> None:
        """What passed since the last decision, job by job in order of arrival."""
        passed, self._last_s = now_s - self._last_s, now_s
        for row, queue in list(self._queue.items()):
            if row in self._running:
                self._ran_s[row] += passed
                if queue < len(self.limits) and self._ran_s[row] * gpus[row] >= self.limits[queue]:
                    self._move(row, queue + 1)
            elif self._ran_s[row] > 0:
                self._waited_s[row] += passed
                if queue > 0 and self._waited_s[row] >= math.floor(min(self._ran_s[row] * self.knob, 1e15)):
                    self._ran_s[row] = self._waited_s[row] = 0.0
                    self._move(row, 0)

    def _move(self, row: int, queue: int) -> None:
        self._queues[self._queue[row]].remove(row)
        self._queues[queue].append(row)
        self._queue[row] = queue

    def _walk(self, gpus: dict[int, int], view: View) -> None:
        """Whoever fits runs; then all who wait go behind those who run."""
        left, running = view.cluster_gpus, set()
        submit = dict(zip(view.rows.tolist(), view.submit_s.tolist(), strict=True))
        for queue in self._queues:
            if self.index is not None:
                index = {row: self.index(self._ran_s[row] * gpus[row]) for row in queue}
                queue.sort(key=lambda row: (index[row], -submit[row]), reverse=True)
            for row in queue:
                if gpus[row] <= left:
                    left -= gpus[row]
                    running.add(row)
        for queue in self._queues:
            queue.sort(key=lambda row: row not in running)
        self._running = running

    def _next_s(self, gpus: dict[int, int], now_s: float) -> float:
        found = math.inf
        for row, queue in self._queue.items():
            if row in self._running and queue < len(self.limits):
                found = min(found, now_s + math.ceil((self.limits[queue] - self._ran_s[row]) / gpus[row]))
            elif row not in self._running and queue > 0 and self._ran_s[row] > 0 and self.knob < math.inf:
                due = math.floor(self._ran_s[row] * self.knob - self._waited_s[row])
                found = min(found, now_s + due) if due > 0 else found
        return found

    def _why(self, row: int) -> str:
        return f"it is in queue {self._queue.get(row, 0) + 1}, and those before it leave too few GPUs"


class Index:
    """The released simulator's Gittins index over sorted services, for one quantum."""

    def __init__(self, services: list[float], quantum: float) -> None:
        self.services, self.quantum = services, quantum
        self.before = [0.0, *accumulate(services)]
        self.table = [self._at(math.floor(service - 1)) for service in services]

    def _at(self, attained: float) -> float:
        count, last = len(self.services), self.services[-1] - 1
        if attained > last:
            return 0.0
        first = bisect_right(self.services, attained)
        beyond = count - 1 if attained + self.quantum > last else bisect_right(self.services, attained + self.quantum)
        part = round((beyond - first) / (count - first), MORE_DIGITS)
        within = self.before[beyond] - self.before[first] + self.quantum * (count - beyond)
        return round(part * PER_MILLION / round(within / (count - first), MORE_DIGITS), DIGITS)

    def __call__(self, attained: float) -> float:
        """Larger runs first."""
        return self.table[bisect_right(self.services, attained)] if attained < self.services[-1] else 0.0
