"""Node power states in virtual time: idle nodes sleep and wake as a controller says (`--power ces`).

A node that sleeps, or is still booting, has no capacity. Only nodes without jobs are put to sleep. The controller
is asked every ten minutes and, as in Helios (SC'21, section 4.3), at once when waiting jobs need more nodes than
are awake. Counted: nodes asleep over time, wake-ups, energy not used, and jobs that waited although sleeping nodes
could have held them.
"""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.outcome import Scalar
from cotenant.core.state import State
from cotenant.power import Ces, LearnedForecast, parse_power
from cotenant.power.account import saved_kwh
from cotenant.power.ces import STEP_S


class NodePower:
    """Who sleeps. The driver calls `at` at `next_s` and whenever something has happened."""

    def __init__(self, text: str, state: State, start_s: float, seed: int) -> None:
        rules, self.boot_s = parse_power(text)
        self.state = state
        self.ces = Ces(rules, len(state.node), LearnedForecast(rules.ahead, seed=seed))
        self.asleep = np.zeros(len(state.node), bool)
        self.ready_s = np.full(len(state.node), np.nan)  # when a booting node can be used
        self.began_s = self._step_s = self._since_s = start_s
        self.wakes = 0
        self._asleep_node_s = 0.0
        self._delayed = np.zeros(len(state.f), bool)

    @property
    def next_s(self) -> float:
        """When the next step is due or the next node has booted."""
        booting = self.ready_s[~np.isnan(self.ready_s)]
        return min(self._step_s, float(booting.min())) if len(booting) else self._step_s

    @property
    def all_on(self) -> bool:
        """Whether every node can be used."""
        return not self.asleep.any() and bool(np.isnan(self.ready_s).all())

    def at(self, now_s: float) -> bool:
        """Boot, wake, sleep; whether capacity has changed."""
        self._asleep_node_s += float(self.asleep.sum()) * (now_s - self._since_s)
        self._since_s = now_s
        up = np.flatnonzero(self.ready_s <= now_s + 1e-9)
        for node in up.tolist():
            self._switch_on(node)
        changed = len(up) > 0
        running, queued = self._needs()
        if now_s >= self._step_s - 1e-9:
            self._step_s += STEP_S
            changed |= self._reach(self.ces.step(now_s, running, queued), now_s, may_sleep=True)
        elif queued > 0 and self.asleep.any() and running + queued > self._awake():
            changed |= self._reach(self.ces.need(running + queued), now_s, may_sleep=False)
        if queued > 0 and (self.asleep.any() or not np.isnan(self.ready_s).all()):
            self._mark_delayed()
        return changed

    def summary(self, now_s: float) -> dict[str, Scalar]:
        """The figures of a run."""
        hours = max(now_s - self.began_s, 1e-9) / 3600
        asleep = self._asleep_node_s / (hours * 3600)
        return {
            "nodes_asleep": asleep,
            "wakeups_per_day": self.wakes / (hours / 24),
            "saved_kwh": saved_kwh(asleep, hours),
            "jobs_delayed_by_waking": int(self._delayed.sum()),
        }

    def _awake(self) -> int:
        """Nodes that are on or booting."""
        return int((~self.asleep).sum())

    def _needs(self) -> tuple[float, float]:
        """Nodes with jobs, and nodes that waiting jobs would fill."""
        node = self.state.node
        running = float((node[:, col.NODE_FREE] < node[:, col.NODE_CAP]).sum())
        if self.state.x[col.N_WAITING] == 0:
            return running, 0.0
        waiting = self.state.i[:, col.STATE] == col.WAITING
        size = float(node[:, col.NODE_SIZE].mean())
        spare = float(self.state.x[col.IDLE])
        need = np.maximum(float(self.state.i[waiting, col.GPUS].sum()) - spare, 1.0)
        return running, float(np.ceil(need / size))

    def _reach(self, awake: int, now_s: float, may_sleep: bool) -> bool:
        """Wake or put to sleep until so many nodes are awake; only empty ones sleep."""
        node, missing = self.state.node, awake - self._awake()
        if missing > 0:
            self.wakes += 1
            for n in np.flatnonzero(self.asleep)[:missing].tolist():
                self.asleep[n] = False
                self.ready_s[n] = now_s + self.boot_s
                if self.boot_s == 0:
                    self._switch_on(n)
            return self.boot_s == 0
        if missing == 0 or not may_sleep:
            return False
        empty = ~self.asleep & (node[:, col.NODE_CAP] > 0) & (node[:, col.NODE_FREE] == node[:, col.NODE_CAP])
        chosen = np.flatnonzero(empty)[::-1][:-missing]
        for n in chosen.tolist():
            self.state.x[col.IDLE] -= node[n, col.NODE_FREE]
            node[n, col.NODE_CAP] = node[n, col.NODE_FREE] = 0
            self.asleep[n] = True
        return len(chosen) > 0

    def _switch_on(self, n: int) -> None:
        node, size = self.state.node, int(self.state.node[n, col.NODE_SIZE])
        self.ready_s[n] = np.nan
        node[n, col.NODE_CAP] = node[n, col.NODE_FREE] = size
        self.state.x[col.IDLE] += size
        self.state.x[col.STAMP] += 1
        self.state.x[col.ROUND] = -1  # nothing that was noted of nodes holds
        self.state.x[col.DIRTY] = 1

    def _mark_delayed(self) -> None:
        """Waiting jobs that the nodes now asleep or booting could have held."""
        off = self.state.node[self.asleep | ~np.isnan(self.ready_s), col.NODE_SIZE].sum()
        could = int(self.state.x[col.IDLE]) + int(off)
        waiting = np.flatnonzero(self.state.i[:, col.STATE] == col.WAITING)
        self._delayed[waiting[self.state.i[waiting, col.GPUS] <= could]] = True
