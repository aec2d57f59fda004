"""Random trees of tenants, jobs of theirs, and somebody who watches every decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.state import State
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.invariants import check
from cotenant.sim import driver
from cotenant.sim.driver import Experiment, Simulation

NAMES = ("ada", "bob", "eve", "kim", "stranger")  # the last one is in no tree


@st.composite
def trees(draw: st.DrawFn, gpus: int, *, deep: bool = True) -> Tree:
    """Four tenants, of whom two stand below a fifth one; no more is guaranteed than there is."""
    left = gpus
    found = [Tenant("lab", weight=draw(st.sampled_from([1.0, 2.0])))] if deep else []
    for at, name in enumerate(NAMES[:4]):
        guaranteed = draw(st.integers(0, left))
        left -= guaranteed
        above = draw(st.one_of(st.none(), st.integers(guaranteed, gpus)))
        found.append(
            Tenant(
                name, "lab" if deep and at < 2 else "", guaranteed=guaranteed, ceiling=above,
                weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
                lend=draw(st.one_of(st.none(), st.integers(0, guaranteed))),
                borrow=draw(st.one_of(st.none(), st.integers(0, gpus))), preempts=draw(st.booleans()),
                reclaims=draw(st.sampled_from([True, True, True, False])),
            )
        )  # fmt: skip
    return Tree(tuple(found), draw(st.sampled_from([np.inf, 300.0])), min_run_s=draw(st.sampled_from([0.0, 60.0])))


@st.composite
def workloads(draw: st.DrawFn, *, most_gpus: int, jobs: int = 25, gap_s: int = 25) -> Workload:
    """Jobs of all tenants that come faster than they end."""
    count = draw(st.integers(5, jobs))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    submit = np.cumsum(rng.integers(0, 2 * gap_s, count)).astype(np.float64)
    sizes = rng.choice([size for size in (1, 1, 2, 4, 8) if size <= most_gpus], count)
    return make_workload(
        "random", submit, sizes, rng.integers(10, 400, count).astype(np.float64),
        tenant=Codes(rng.integers(0, len(NAMES), count), NAMES), priority=rng.integers(0, 2, count),
    )  # fmt: skip


def cluster_of(tree: Tree, *groups: NodeGroup) -> Cluster:
    """A cluster of these nodes that is shared by a tree of tenants."""
    return Cluster(groups, spec="random", tenants=tree)


Look = Callable[[State], None]


def play(experiment: Experiment, look: Look | None = None) -> Simulation:
    """A run to its end; the invariants hold, and `look` is shown the tables, after every event and decision."""

    def watch(state: State) -> None:
        check(state)
        if look is not None:
            look(state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "check", watch)
        run = Simulation(experiment)
        run.advance(np.inf)
    return run


@dataclass
class Evictions:
    """Who was stopped for whom since anything else happened: nobody may pay it back."""

    pairs: set[tuple[int, int]] = field(default_factory=set)
    _before: tuple[np.ndarray, np.ndarray] | None = None
    _events: int = -1
    count: int = 0

    def __call__(self, state: State) -> None:
        """Look at what the last decision changed."""
        if self._events != state.x[col.N_HANDLED]:
            self.pairs.clear()
        self._events = int(state.x[col.N_HANDLED])
        reclaims, used = state.quota[:, col.Q_RECLAIMS].copy(), state.quota[:, col.Q_USED].copy()
        if self._before is not None:
            victims = np.flatnonzero(reclaims > self._before[0]).tolist()
            winners = np.flatnonzero(used > self._before[1]).tolist()
            self.count += len(victims)
            for winner in winners:
                for victim in victims:
                    assert (victim, winner) not in self.pairs, f"tenants {victim} and {winner} evict each other"
                    self.pairs.add((winner, victim))
        self._before = reclaims, used


@dataclass
class Returns:
    """Since when each tenant waits for GPUs that it is guaranteed; never longer than a bound."""

    bound_s: float
    strict: bool = False  # only the first job of each tenant counts: it holds back the others
    cleared: bool = False  # idle GPUs that a job may have are enough: its policy decides when it starts
    _since: dict[int, tuple[float, int]] = field(default_factory=dict)
    longest_s: float = 0.0

    def __call__(self, state: State) -> None:
        """Look at who waits within its guarantee."""
        now = float(state.t[col.NOW])
        rows = np.flatnonzero(state.i[: state.x[col.NEXT_ARRIVAL], col.STATE] == col.WAITING)
        for q, (limit, used, guaranteed) in enumerate(state.quota[:, : col.Q_CLAIMED].tolist()):
            asking = rows[state.i[rows, col.TENANT] == q]
            if self.strict and len(asking):
                asking = asking[np.lexsort((asking, state.f[asking, col.TIER]))[:1]]
            mine = state.i[asking, col.GPUS]
            within = mine[used + mine <= guaranteed]
            free = state.x[col.IDLE] >= within
            if not len(within) or (self.cleared and (free & (used + within <= limit)).any()):
                self._since.pop(q, None)
                continue
            began, before = self._since.get(q, (now, used))
            if used > before:
                began = now
            self._since[q] = began, used
            self.longest_s = max(self.longest_s, now - began)
            assert now - began <= self.bound_s + 1e-6, f"tenant {q} has waited {now - began} s for guaranteed GPUs"
