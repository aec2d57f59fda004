"""The cycle where cores and memory are scheduled too: order, admit by GPUs, pack, carry out, set speeds.

The policy says in which order (or, with a plan, who runs in which pool); the allocator packs; this module is the frame
around both. By default it decides at every event and running jobs keep their GPUs, so that only cores and memory
change, which costs nothing. In rounds, or with `keep=false`, it can pack everything anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cotenant.allocation import Allocator, Demands, Request, Share
from cotenant.allocation.apply import admit, apply_packing, keep_places
from cotenant.allocation.tables import LENT_GIB, LENT_SPEED, MEMORY, Packing, clear, first, make_packing
from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.sensitivity import CPU, MEM, RATE, Sensitivity
from cotenant.core.state import Matrix, Rule, State
from cotenant.core.traits import Traits
from cotenant.core.workload import Floats, Ints
from cotenant.engine.cycle import Engine
from cotenant.engine.rates import rerate

_LEAST_SPEED = 1e-6  # a job that a matrix says stands still moves this fast, so that its end is finite


@dataclass(slots=True)
class Host:
    """What the allocator is told about the workload: truth and belief about cores and memory, per pool demands."""

    truth: Sensitivity
    demands: tuple[Demands, ...]  # per pool, from the belief
    shares: tuple[Share, ...]
    gangs: Ints
    asked: Floats  # jobs x (cores, memory) per GPU, NaN where the job file is silent
    profiling_s: Floats  # per job, spent at its first start
    lend: Floats | None = None  # nodes x (GiB that it may borrow of its peers, speed of what works there)


@dataclass(slots=True)
class Spent:
    """What was given out over time, for utilisation."""

    cpu_s: float = 0.0
    mem_s: float = 0.0
    since_s: float = np.nan
    rounds: int = 0
    cpus: float = field(default=0.0)
    mem: float = field(default=0.0)


class Allocation:
    """An allocator at work on one engine's tables."""

    blocks = True  # a strict policy stops admitting at the first job that does not fit

    def __init__(self, state: State, allocator: Allocator, host: Host) -> None:
        self.allocator, self.host = allocator, host
        self.spent = Spent()
        self.keep = bool(allocator.params["keep"])
        self.round_s, self.origin_s = allocator.number("round"), 0.0
        self._mark = np.zeros(len(state.f), np.int64)
        self._packing: Packing | None = None
        self._softened: Floats | None = None  # of those placed, the speed that borrowed memory leaves them
        self._seen = (-1, -1)  # stamp of freed capacity and running jobs at the last decision

    def rule(self, rule: Rule) -> Rule:
        """The rule of the policy, asked in Python: at events, or at rounds only."""
        self.policy_rule = rule._replace(numbers=rule.numbers.copy(), flags=rule.flags.copy())
        rule = rule._replace(numbers=rule.numbers.copy(), flags=rule.flags.copy())
        if rule.flags[col.EASY] == 1:
            raise InputError(f"allocator '{self.allocator.name}': policy 'easy' makes reservations; use backfill")
        if rule.flags[col.EXTERNAL] != 3:  # a policy with times of its own keeps them
            rule.flags[col.EXTERNAL], rule.flags[col.WAKES] = 3, 1
        if self.round_s > 0:
            rule.flags[col.WAKES] = 0
            self.policy_rule.numbers[col.ROUND_S] = self.round_s
            rule.numbers[col.ROUND_S] = np.inf
        return rule

    def gains(self) -> Floats:
        """Kind x pool: speed with the best-case demand, against the speed of the GPUs alone.

        A policy that weighs GPU types against each other sees these: a type on servers with many cores is
        worth more to a job that is hungry for them. Which of the jobs chosen for a pool really get their demand is
        then the allocator's business.
        """
        return np.stack([demand.want[:, RATE] for demand in self.host.demands], axis=1)

    # -- one decision ------------------------------------------------------------------------------------------

    def cycle(self, engine: Engine, now_s: float) -> None:
        """Decide if it is time to, and say when to be asked again."""
        state, number = engine.state, self._round(now_s)
        if not self.due(now_s):
            state.t[col.NEXT_CALL] = self.origin_s + number * self.round_s
            return
        if self._nothing_new(engine):
            return
        rows, pools, chosen = self._who(engine, now_s)
        self._pack(engine, rows, pools, chosen, now_s)
        self._seen = int(state.x[col.STAMP]), int(state.x[col.N_RUNNING])
        if self.round_s > 0:
            state.t[col.NEXT_CALL] = self.origin_s + (number + 1) * self.round_s
        elif not chosen:
            state.t[col.NEXT_CALL] = np.inf

    def due(self, now_s: float) -> bool:
        """Whether a round begins, if there are rounds."""
        return self.round_s <= 0 or not now_s < self.origin_s + self._round(now_s) * self.round_s - 1e-6

    def _round(self, now_s: float) -> float:
        """The number of the round that begins now, or next; 0 where there are no rounds."""
        return max(float(np.ceil((now_s - self.origin_s) / self.round_s - 1e-9)), 0.0) if self.round_s > 0 else 0.0

    def _nothing_new(self, engine: Engine) -> bool:
        """Whether all that happened since the last decision is that somebody more waits for busy GPUs."""
        x = engine.state.x
        still = self._seen == (x[col.STAMP], x[col.N_RUNNING]) and x[col.IDLE] == 0 and self.round_s == 0
        return bool(still and not engine.traits.plans and not self.preempts(engine))

    def _who(self, engine: Engine, now_s: float) -> tuple[Ints, Ints, bool]:
        """Jobs in order with their pools (-1: not admitted by GPUs), and whether a policy chose the pools itself."""
        state = engine.state
        if engine.traits.plans:
            plan = engine.plan(engine.view(now_s))
            state.t[col.NEXT_CALL], wanted = plan.next_s, plan.pools
            assert wanted is not None
            rows, pools = np.asarray(wanted.rows, np.int64), np.asarray(wanted.pools, np.int64)
            room = _room(state)
            need = np.bincount(pools, state.i[rows, col.GPUS], len(room))
            if (need > room).any() or (np.asarray(wanted.hosts) >= 0).any():
                raise InputError(f"policy '{engine.name}': its plan shares GPUs, which no allocator here can pack")
            return rows, pools, True
        rows = self.order(engine, now_s)
        pools = np.empty(len(rows), np.int64)
        strict = bool(self.policy_rule.flags[col.STRICT]) and self.blocks
        admit(state, rows, _room(state), strict, not self.preempts(engine), pools)
        return rows, pools, False

    def preempts(self, engine: Engine) -> bool:
        """Whether somebody who runs may have to wait again."""
        rule = self.policy_rule
        return bool(rule.flags[col.PREEMPTIVE]) or (engine.traits.preemptive and rule.flags[col.EXTERNAL] > 0)

    def order(self, engine: Engine, now_s: float) -> Ints:
        """Active jobs as the policy orders them, at the present round."""
        return engine.order(now_s)

    def _pack(self, engine: Engine, rows: Ints, pools: Ints, chosen: bool, now_s: float) -> None:
        state = engine.state
        limited = bool((state.quota[:, col.Q_LIMIT] < 2**40).any())
        beyond = self.allocator.skips and not chosen and not limited and not self.only_admitted()
        if not beyond:
            rows, pools = rows[pools >= 0], pools[pools >= 0]
        p = self._tables(state, len(rows))
        p.gpus[:] = state.i[rows, col.GPUS]
        if self.keep:
            keep_places(state, p, rows, pools)
        if beyond:
            pools = _anywhere(state, rows, pools)
        kind = state.i[rows, col.SPEED_ROW]
        left_s = state.f[rows, col.BELIEF] - state.f[rows, col.DONE]
        by_attained = bool(self.policy_rule.columns[0] == col.BY_ATTAINED_GPU)
        asked, tenant = self.host.asked[rows], state.i[rows, col.TENANT]
        for pool in np.unique(pools).tolist() if len(self.host.shares) > 1 else [0]:
            order = np.flatnonzero(pools == pool)
            turn = np.concatenate([order[p.kept[order] == 1], order[p.kept[order] == 0]])
            lo, hi = (int(state.pool[pool, place]) for place in (col.POOL_LO, col.POOL_HI))
            self.allocator.pack(
                Request(
                    p, order, turn, kind, self.host.gangs, self.host.demands[pool], self.host.shares[pool], lo, hi,
                    tenant, left_s, asked, by_attained,
                )
            )  # fmt: skip
        self._account(p, now_s)
        apply_packing(state, engine.rule, p, rows, self._mark, self.host.profiling_s, now_s)
        placed = p.at[:, 1] > 0
        self._softened = None if self.host.lend is None else soft_speeds(p)[placed]
        self.set_speeds(engine, rows[placed], kind[placed], p.got[placed], p.want[placed], now_s)

    def only_admitted(self) -> bool:
        """Whether an allocator that skips jobs may not look beyond those admitted by GPUs."""
        return False

    def set_speeds(self, engine: Engine, rows: Ints, kind: Ints, got: Matrix, want: Matrix, now_s: float) -> None:
        """Give running jobs the speed of what they hold; cores and memory change it without a restart."""
        state = engine.state
        speeds = state.f[rows, col.ALONE] * self.host.truth.speed(kind, got[:, CPU], got[:, MEM])
        speeds = speeds if self._softened is None else speeds * self._softened
        rerate(state, engine.rule, rows, np.maximum(speeds, _LEAST_SPEED), now_s)

    def _tables(self, state: State, jobs: int) -> Packing:
        """Empty tables with room for these jobs, kept from one decision to the next."""
        cap = self.capacity(state)
        if self._packing is None or len(self._packing.gpus) < jobs:
            self._packing = make_packing(max(2 * jobs, 64), cap, self.host.lend)
        p = first(self._packing, jobs)
        clear(p, cap)
        return p

    def capacity(self, state: State) -> Floats:
        """Nodes x (GPUs, cores, own memory) that are up; what the cluster does not model is what the shares say."""
        cap = np.empty((len(state.node), 3))
        cap[:, 0] = state.node[:, col.NODE_CAP]
        cap[:, 1:] = state.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]
        cap[:, 2] -= 0.0 if self.host.lend is None else self.host.lend[:, LENT_GIB]
        pool = state.node[:, col.NODE_POOL]
        for at, name in ((1, "cpus_per_gpu"), (2, "mem_per_gpu")):
            each = np.array([getattr(share, name) for share in self.host.shares])[pool]
            cap[:, at] = np.where(np.isfinite(cap[:, at]), cap[:, at], each * state.node[:, col.NODE_SIZE])
        return cap

    def _account(self, p: Packing, now_s: float) -> None:
        spent = self.spent
        if np.isfinite(spent.since_s):
            spent.cpu_s += spent.cpus * (now_s - spent.since_s)
            spent.mem_s += spent.mem * (now_s - spent.since_s)
        spent.since_s, spent.rounds = now_s, spent.rounds + 1
        spent.cpus, spent.mem = float(p.gpus @ p.got[:, CPU]), float(p.gpus @ p.got[:, MEM])


def soft_speeds(p: Packing) -> Floats:
    """By job its speed with memory that its servers borrow, against none borrowed (Valet's idea as a cost).

    What a server borrows is spread over the jobs there by what they hold; a gang moves as on the worst of its servers.
    """
    held = p.cap[:, MEMORY] - p.free[:, MEMORY]
    borrowed = np.maximum(-p.free[:, MEMORY], 0.0) / np.maximum(held, 1e-12)
    at_node, found = 1.0 - borrowed * (1.0 - p.lend[:, LENT_SPEED]), np.ones(len(p.gpus))
    for job, node, _ in p.slices[: p.x[0]].tolist():
        if p.got[job, MEM] > 0:
            found[job] = min(found[job], float(at_node[node]))
    return found


def _room(state: State) -> Ints:
    """GPUs per pool on nodes that are up."""
    node = state.node
    return np.bincount(node[:, col.NODE_POOL], node[:, col.NODE_CAP], len(state.pool)).astype(np.int64)


def _anywhere(state: State, rows: Ints, pools: Ints) -> Ints:
    """Whoever was not admitted by GPUs may still try the first pool that it can use: others may be skipped."""
    allowed = state.cls[state.i[rows, col.CLASS], col.C_POOLS]
    lowest = np.log2(np.maximum(allowed & -allowed, 1)).astype(np.int64)
    return np.where(pools >= 0, pools, lowest)


def check_policy(traits: Traits, name: str) -> None:
    """Policies that an allocator cannot serve: those that lay out nodes themselves."""
    if traits.plans and not traits.names_pools:
        raise InputError(f"allocator '{name}': the policy places jobs itself; use one that orders or chooses pools")
