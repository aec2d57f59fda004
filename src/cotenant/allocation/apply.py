"""Kernels that carry a packing out: admit by GPUs, stop, move, start, and book cores and memory beside the GPUs."""

from __future__ import annotations

from cotenant.allocation.servers import keep
from cotenant.allocation.tables import BEGIN, COUNT, NODE, TAKEN, Packing
from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.ledger import schedule_run
from cotenant.engine.openings import get_up, sit_down
from cotenant.engine.slices import new_slices
from cotenant.engine.walk import commit, plan_start, plan_stop
from cotenant.placement.fit import fewest_nodes


@kernel
def _best_pool(s: State, job: int, room: Ints) -> int:
    """Where a job is admitted: the pool in which it runs, else the fastest with room; -1 for none."""
    best, highest = -1, 0.0
    gpus, allowed = s.i[job, GPUS], s.cls[s.i[job, CLASS], C_POOLS]
    here = -1
    if s.i[job, STATE] == RUNNING:
        here = s.node[s.slices[s.i[job, SLICE], SLICE_NODE], NODE_POOL]
    for pool in range(len(room)):
        if not (allowed >> pool) & 1 or room[pool] < gpus:
            continue
        if pool == here:
            return pool
        speed = s.speed[s.i[job, SPEED_ROW], s.pool[pool, POOL_TYPE], 0]
        if speed > highest:
            best, highest = pool, speed
    return best


@entry
def admit(s: State, order: Ints, room: Ints, strict: bool, running_first: bool, pools: Ints) -> int:
    """Walk the order and admit while GPUs and quotas suffice; `pools[k]` of order k, -1 where it is not admitted.

    Cores and memory are not looked at. `strict` stops at the first that does not fit (only its tenant, where
    there is a tree of tenants); `running_first` keeps whoever runs (a policy that does not preempt). How many are
    admitted.
    """
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_CLAIMED] = s.quota[q, Q_CLOSED] = 0
    admitted = 0
    for k in range(len(order)):
        pools[k] = -1
    for turn in range(2):
        for k in range(len(order)):
            job = order[k]
            runs = s.i[job, STATE] == RUNNING
            if pools[k] >= 0 or (turn == 0 and not (running_first and runs)):
                continue
            tenant, gpus = s.i[job, TENANT], s.i[job, GPUS]
            pool = -1
            if s.quota[tenant, Q_CLAIMED] + gpus <= s.quota[tenant, Q_LIMIT] and s.quota[tenant, Q_CLOSED] == 0:
                pool = _best_pool(s, job, room)
            if pool >= 0:
                pools[k] = pool
                room[pool] -= gpus
                s.quota[tenant, Q_CLAIMED] += gpus
                admitted += 1
            elif strict and turn == 1 and s.x[TENANTS] == 1:
                s.quota[tenant, Q_CLOSED] = 1
            elif strict and turn == 1:
                return admitted
    return admitted


@entry
def keep_places(s: State, p: Packing, rows: Ints, pools: Ints) -> None:
    """Running jobs that were admitted where they run stay on their servers."""
    for k in range(len(rows)):
        job = rows[k]
        if s.i[job, STATE] != RUNNING:
            continue
        at = s.i[job, SLICE]
        if s.node[s.slices[at, SLICE_NODE], NODE_POOL] != pools[k]:
            continue
        found = 0
        while at >= 0:
            p.pick[found, 0], p.pick[found, 1] = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
            found += 1
            at = s.slices[at, SLICE_NEXT]
        keep(p, k, found)


@kernel
def _same_place(s: State, p: Packing, k: int, job: int) -> bool:
    """Whether a running job already holds exactly the servers that the packing gives it."""
    count = 0
    at = s.i[job, SLICE]
    while at >= 0:
        found = False
        for t in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
            if p.slices[t, NODE] == s.slices[at, SLICE_NODE] and p.slices[t, TAKEN] == s.slices[at, SLICE_GPUS]:
                found = True
        if not found:
            return False
        count += 1
        at = s.slices[at, SLICE_NEXT]
    return bool(count == p.at[k, COUNT])


@kernel
def _new_slices(s: State, p: Packing, k: int) -> int:
    """The servers of the packing as a linked list of slices."""
    for t in range(p.at[k, COUNT]):
        s.pick[t, 0], s.pick[t, 1] = p.slices[p.at[k, BEGIN] + t, NODE], p.slices[p.at[k, BEGIN] + t, TAKEN]
    return int(new_slices(s, p.at[k, COUNT]))


@kernel
def _lift(s: State, job: int) -> None:
    """Take a running job off its GPUs without stopping it, for a move that costs nothing."""
    at = s.i[job, SLICE]
    while at >= 0:
        following = s.slices[at, SLICE_NEXT]
        s.node[s.slices[at, SLICE_NODE], NODE_FREE] += s.slices[at, SLICE_GPUS]
        get_up(s, job, at)
        s.slices[at, SLICE_NEXT] = s.x[FREE_SLICE]
        s.x[FREE_SLICE] = at
        at = following
    s.i[job, SLICE] = -1
    s.i[job, PREEMPTS] += 1


@kernel
def _set_down(s: State, p: Packing, k: int, job: int) -> None:
    """Put a lifted job on its new GPUs."""
    head = _new_slices(s, p, k)
    nodes, at = 0, head
    while at >= 0:
        s.node[s.slices[at, SLICE_NODE], NODE_FREE] -= s.slices[at, SLICE_GPUS]
        sit_down(s, job, at)
        nodes += 1
        at = s.slices[at, SLICE_NEXT]
    s.i[job, SLICE] = head
    pool = s.node[s.slices[head, SLICE_NODE], NODE_POOL]
    spread = 1 if nodes > 1 and nodes > fewest_nodes(s.node, s.pool, pool, s.i[job, GPUS]) else 0
    s.f[job, ALONE] = s.speed[s.i[job, SPEED_ROW], s.pool[pool, POOL_TYPE], spread]


@kernel
def _book_hosts(s: State, p: Packing, rows: Ints, mark: Ints) -> None:
    """Cores and memory of everybody who runs, from the packing; running jobs change theirs without a restart."""
    for n in range(s.host.shape[0]):
        s.host[n, HOST_CPU_FREE] = s.host[n, HOST_CPU_CAP]
        s.host[n, HOST_MEM_FREE] = s.host[n, HOST_MEM_CAP]
    for k in range(len(rows)):
        if mark[rows[k]] == 0:
            continue
        s.f[rows[k], CPUS], s.f[rows[k], MEM] = p.gpus[k] * p.got[k, 0], p.gpus[k] * p.got[k, 1]
        for t in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
            n, gpus = p.slices[t, NODE], p.slices[t, TAKEN]
            s.host[n, HOST_CPU_FREE] -= gpus * p.got[k, 0]
            s.host[n, HOST_MEM_FREE] -= gpus * p.got[k, 1]


@entry
def apply_packing(s: State, rule: Rule, p: Packing, rows: Ints, mark: Ints, profiling_s: Floats, now: float) -> int:
    """Make the tables look like the packing; how many jobs run.

    Stops and moves, then starts, by the commit of all decisions; cores and memory are booked anew after it. A move of a
    job that costs nothing to stop is no stop. A job's first start is followed by its profiling. `mark` is scratch with
    one zero per job of the workload.
    """
    running = 0
    for k in range(len(rows)):
        if p.at[k, COUNT] > 0:
            mark[rows[k]] = 1
            running += 1
    s.x[N_STOPS] = s.x[N_PLANNED] = 0
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0 and mark[job] == 0:
            plan_stop(s, job)
    for k in range(len(rows)):
        job = rows[k]
        if mark[job] == 0:
            continue
        if s.i[job, STATE] == RUNNING and _same_place(s, p, k, job):
            mark[job] = 2
        elif s.i[job, STATE] == RUNNING and s.f[job, RESTORE] <= 0:
            _lift(s, job)
            mark[job] = 3
        else:
            plan_start(s, job, _new_slices(s, p, k), -1)
    commit(s, rule, now)
    for k in range(len(rows)):
        job = rows[k]
        if mark[job] == 3:
            _set_down(s, p, k, job)
        elif mark[job] == 1 and s.i[job, STARTS] == 1 and profiling_s[job] > 0:
            s.f[job, WARM] = now + profiling_s[job]
            schedule_run(s, rule, job)
    _book_hosts(s, p, rows, mark)
    for k in range(len(rows)):
        mark[rows[k]] = 0
    return running
