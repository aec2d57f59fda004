"""Slurm's multifactor priority with backfill."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Slices
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import Room
from cotenant.policies.base import Context, PlanPolicy


class SlurmPriority(PlanPolicy):
    """By age, fair share and size, with backfill by time limits: everybody looked at gets a reservation.

    Priority is age x min(waited / max_age, 1) + fairshare x 2^(-use / share) + size x (GPUs / cluster), as in Slurm's
    multifactor plugin; use is GPU time that halves every `half_life`, shares are equal over tenants. The owner's
    priority (Slurm's QOS and partition) comes before. The first `depth` jobs are laid out in this order on the GPUs
    that become free as jobs reach their time limits (`--estimator limit`, the default), by counts per pool; who may
    begin now does. Nobody is stopped.
    """

    name = "slurm"
    source = "Slurm, priority/multifactor and sched/backfill"
    default_estimator = "limit"
    preemptive = False
    defaults: ClassVar[dict[str, Value]] = {
        "age": 1000.0, "max_age": 7 * 86400.0, "fairshare": 1000.0, "half_life": 7 * 86400.0, "size": 0.0, "depth": 100,
    }  # fmt: skip

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        for name in ("max_age", "half_life", "depth"):
            if not self.number(name) > 0:
                raise InputError(f"policy 'slurm': {name}={self.number(name):g} must be above 0")
        self.begin(Context())

    def begin(self, context: Context) -> None:
        """Nobody has used anything."""
        self._used: dict[int, float] = {}
        self._since_s = -np.inf
        self._running: dict[int, int] = {}  # GPUs by tenant, after the last decision

    def decide(self, view: View) -> Plan:
        """Start whoever fits now without delaying anybody ahead."""
        self._account(view)
        board = Room(view)
        for row in view.rows[view.running].tolist():
            board.keep(row)
        ahead = _FreeAhead(view, board)
        waiting = np.flatnonzero(~view.running)
        order = waiting[np.lexsort((view.rows[waiting], -self.priorities(view)[waiting], -view.priority[waiting]))]
        started: dict[int, Slices] = {}
        words: dict[int, str] = {}
        for place, at in enumerate(order[: int(self.number("depth"))].tolist(), 1):
            row, gpus = int(view.rows[at]), int(view.asked_gpus[at])
            lasts_s = max(float(view.remaining_s[at]), 1.0)
            when_s, pool = ahead.earliest(gpus, lasts_s, board.pools(row))
            if when_s <= view.now_s:
                found = board.find(row, gpus, spread=False)
                if found is not None:
                    started[row] = found
                    ahead.hold(gpus, view.now_s, lasts_s, pool)
                    continue
                when_s = ahead.next_release()
            words[row] = f"number {place} of {len(order)} by priority and needs {gpus} GPUs"
            if np.isfinite(when_s):
                ahead.hold(gpus, when_s, lasts_s, pool)
                words[row] += f": its reservation begins in {when_s - view.now_s:.0f} s, as time limits say"
        self._remember(view, started)
        beyond = f"{len(order)} wait, and only the first {self.number('depth'):g} by priority are looked at"
        return Plan(started, keep=True, why=lambda row: words.get(row, beyond))

    def priorities(self, view: View) -> Floats:
        """Larger comes first."""
        age = np.minimum((view.now_s - view.submit_s) / self.number("max_age"), 1.0)
        total = sum(self._used.values())
        tenants = max(len(set(view.tenant.tolist()) | self._used.keys()), 1)
        shares = {t: 2.0 ** -(used / total * tenants) if total > 0 else 1.0 for t, used in self._used.items()}
        fair = np.array([shares.get(t, 1.0) for t in view.tenant.tolist()])
        size = view.asked_gpus / max(view.cluster_gpus, 1)
        return np.asarray(
            self.number("age") * age + self.number("fairshare") * fair + self.number("size") * size, np.float64
        )

    def _account(self, view: View) -> None:
        """GPU time since the last decision, older use fading."""
        if np.isfinite(self._since_s) and view.now_s > self._since_s:
            passed_s = view.now_s - self._since_s
            fade = 0.5 ** (passed_s / self.number("half_life"))
            for tenant in self._used.keys() | self._running.keys():
                self._used[tenant] = self._used.get(tenant, 0.0) * fade + self._running.get(tenant, 0) * passed_s
        self._since_s = view.now_s

    def _remember(self, view: View, started: dict[int, Slices]) -> None:
        self._running = {}
        for at in np.flatnonzero(view.running | np.isin(view.rows, list(started))).tolist():
            tenant = int(view.tenant[at])
            self._running[tenant] = self._running.get(tenant, 0) + int(view.gpus[at])


class _FreeAhead:
    """Free GPUs of each pool from now on, by counts, as running jobs and reservations end."""

    def __init__(self, view: View, board: Room) -> None:
        self._now_s = view.now_s
        self._pools: list[tuple[list[float], list[int]]] = []
        at = np.flatnonzero(view.running)
        ends = np.maximum(view.remaining_s[at], 1.0) + view.now_s
        where: Ints = view.pool[at]
        for pool in range(len(view.site.pool)):
            nodes = board.nodes(pool)
            free = int(board.free[nodes.start : nodes.stop].sum())
            here = np.flatnonzero(where == pool)
            order = here[np.argsort(ends[here], kind="stable")]
            times, levels = [view.now_s], [free]
            for i in order.tolist():
                free += int(view.gpus[at[i]])
                if ends[i] == times[-1]:
                    levels[-1] = free
                else:
                    times.append(float(ends[i]))
                    levels.append(free)
            self._pools.append((times, levels))

    def earliest(self, gpus: int, lasts_s: float, pools: list[int]) -> tuple[float, int]:
        """When so many are free for so long, and in which pool; infinity where never."""
        best = (np.inf, pools[0] if pools else 0)
        for pool in pools:
            times, levels = self._pools[pool]
            start = 0
            while start < len(times) and times[start] < best[0]:
                blocked = next(
                    (i for i in range(start, len(times)) if levels[i] < gpus and times[i] < times[start] + lasts_s), -1
                )
                if blocked < 0:
                    best = (times[start], pool)
                    break
                start = blocked + 1
        return best

    def hold(self, gpus: int, from_s: float, lasts_s: float, pool: int) -> None:
        """Nobody else may count on these GPUs then."""
        times, levels = self._pools[pool]
        first, last = self._cut(times, levels, from_s), self._cut(times, levels, from_s + lasts_s)
        for i in range(first, last):
            levels[i] -= gpus

    def next_release(self) -> float:
        """When the next GPUs become free: where counts suffice but no place is found, somebody has to leave first."""
        return min((times[1] for times, _ in self._pools if len(times) > 1), default=np.inf)

    @staticmethod
    def _cut(times: list[float], levels: list[int], at_s: float) -> int:
        """The index of the step that begins at a moment, made where there is none."""
        from bisect import bisect_left

        i = bisect_left(times, at_s)
        if i == len(times) or times[i] != at_s:
            times.insert(i, at_s)
            levels.insert(i, levels[i - 1] if i else levels[0])
        return i
