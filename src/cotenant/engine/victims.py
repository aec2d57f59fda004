"""Whom a job displaces: the last ones in the order, and no more of them than it takes.

A job that finds no idle place may sit down where others run that come behind it. Among all such places it takes
one that becomes free when only the shortest tail of the order leaves: then nobody further ahead loses its place only
to be moved onto the GPUs of somebody who has to stop anyway. Under a tree of tenants only jobs of its own tenant count,
and those that have to leave are named, so that nobody else loses a place to them.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import State
from cotenant.core.workload import Ints
from cotenant.engine.slices import shift
from cotenant.placement.fit import IDLE_NOW, LATEST, TAIL, UNCLAIMED, find_place

ANYBODY = -1


@kernel
def displace_latest(s: State, c: int, job: int, order: Ints, first: int, end: int) -> int:
    """A place for a job of class c that costs only the tail of `order[first:end]`; pairs as in `find_place`."""
    if s.x[TENANTS] != 1:
        return shortest_tail(s, c, job, order, first, end, ANYBODY)
    tenant = s.i[job, TENANT]
    if s.quota[tenant, Q_STAYS] == 1 or s.quota[tenant, Q_USED] == 0:
        return 0
    _hide_others(s, tenant, order, first, end, -1)
    count = shortest_tail(s, c, job, order, first, end, tenant)
    _hide_others(s, tenant, order, first, end, 1)
    if count > 0 and not name_leavers(s, job, count, order, first, end, tenant):
        return 0
    return count


@kernel
def shortest_tail(s: State, c: int, job: int, order: Ints, first: int, end: int, tenant: int) -> int:
    """The same, where UNCLAIMED says what could be had at all, of the jobs of one tenant or of anybody.

    The last ones leave one by one until there is a place. Where cores or memory bind, or where GPUs are only counted,
    any place will do: there nobody is moved for nothing.
    """
    if goes_to_one_node(s, c):
        return _shortest_on_one_node(s, c, order, first, end)
    count = _shortest(s, c, job, order, first, end, tenant)
    for n in range(s.node.shape[0]):
        s.open[n, TAIL] = 0
    return count


@kernel
def _shortest(s: State, c: int, job: int, order: Ints, first: int, end: int, tenant: int) -> int:
    count = find_place(s, c, job, UNCLAIMED)
    if count == 0 or s.x[USE_HOST] == 1 or s.node.shape[0] == s.pool.shape[0] or end - first < 2:
        return count
    total, gpus = 0, s.cls[c, C_GPUS]
    for n in range(s.node.shape[0]):
        s.open[n, TAIL] = s.open[n, IDLE_NOW]
        total += max(s.open[n, IDLE_NOW], 0)
    for k in range(end - 1, first - 1, -1):
        other = order[k]
        may = k == end - 1 and s.x[TENANTS] == 1  # who asks there has not asked for what is idle
        if other >= 0 and s.i[other, STATE] == RUNNING and (tenant < 0 or s.i[other, TENANT] == tenant):
            shift(s, other, s.i[other, SLICE], TAIL, 1)
            total += s.i[other, GPUS]
            may = may or (total >= gpus and may_matter(s, c, s.i[other, SLICE], TAIL))
        if may:
            count = find_place(s, c, job, LATEST)
            if count > 0:
                return count
    return find_place(s, c, job, LATEST)


@kernel
def goes_to_one_node(s: State, c: int) -> bool:
    """Whether gangs of a class sit on one node of the only pool, wherever GPUs alone bind."""
    return bool(
        s.x[USE_HOST] + s.x[TENANTS] == 0
        and s.node.shape[0] > 1
        and s.pool.shape[0] == 1
        and s.cls[c, C_MODE] == CONSOLIDATED
        and s.cls[c, C_NODES] == 0
        and s.cls[c, C_GPUS] <= s.pool[0, POOL_LARGEST]
        and s.cls[c, C_POOLS] & 1 == 1
    )


@kernel
def _better(s: State, one: int, two: int, gpus: int) -> int:
    """Of two nodes for a gang the one where fewer are displaced, then where less is left, then the first."""
    if one < 0:
        return two
    idle = min(max(s.open[one, IDLE_NOW], 0), gpus) - min(max(s.open[two, IDLE_NOW], 0), gpus)
    free = s.open[one, IDLE_NOW] + s.open[one, TAIL] - s.open[two, IDLE_NOW] - s.open[two, TAIL]
    return two if idle < 0 or (idle == 0 and (free > 0 or (free == 0 and two < one))) else one


@kernel
def _shortest_on_one_node(s: State, c: int, order: Ints, first: int, end: int) -> int:
    """The same for such a class, which has found no node idle: the first on which enough is free when the last ones
    leave. TAIL holds what they leave, and nothing before and after."""
    open_, gpus, found = s.open, s.cls[c, C_GPUS], -1
    last, touched = end, 0
    while last > first and found < 0:
        last -= 1
        at = s.i[order[last], SLICE] if order[last] >= 0 and s.i[order[last], STATE] == RUNNING else -1
        while at >= 0:
            n = s.slices[at, SLICE_NODE]
            open_[n, TAIL] += s.slices[at, SLICE_GPUS]
            s.pick[touched, 0] = n
            touched += 1
            if open_[n, TAIL] + open_[n, IDLE_NOW] >= gpus:
                found = _better(s, found, n, gpus)
            at = s.slices[at, SLICE_NEXT]
    for k in range(touched):
        open_[s.pick[k, 0], TAIL] = 0
    s.pick[0, 0], s.pick[0, 1] = found, gpus
    return 1 if found >= 0 else 0


@kernel
def may_matter(s: State, c: int, head: int, column: int) -> bool:
    """Whether one of these slices lies on a node of which a gang of class c could use what is free of it by now."""
    gpus, parts, at = s.cls[c, C_GPUS], s.cls[c, C_NODES], head
    while at >= 0:
        n = s.slices[at, SLICE_NODE]
        p = s.node[n, NODE_POOL]
        largest = s.pool[p, POOL_LARGEST]
        least = 1
        if parts > 0:
            least = gpus // parts
        elif s.cls[c, C_MODE] == CONSOLIDATED:
            alike = s.pool[p, POOL_LARGEST_COUNT] == s.pool[p, POOL_HI] - s.pool[p, POOL_LO]
            if gpus <= largest:
                least = gpus
            elif alike:
                least = largest if gpus % largest == 0 else gpus % largest
        if s.open[n, column] >= least:
            return True
        at = s.slices[at, SLICE_NEXT]
    return False


@kernel
def _hide_others(s: State, tenant: int, order: Ints, first: int, end: int, sign: int) -> None:
    """Let what other tenants have behind a job not count as unclaimed (-1), or count again (+1)."""
    for k in range(first, end):
        other = order[k]
        if other >= 0 and s.i[other, STATE] == RUNNING and s.i[other, TENANT] != tenant:
            shift(s, other, s.i[other, SLICE], UNCLAIMED, sign)


@kernel
def name_leavers(s: State, job: int, count: int, order: Ints, first: int, end: int, tenant: int) -> bool:
    """Mark who has to leave the place just found, last ones first; whether they make room for the job.

    They keep their marks until the walk is carried out, and lose their GPUs whoever else could keep them.
    """
    for piece in range(count):
        n, gpus = s.pick[piece, 0], s.pick[piece, 1]
        cpus, mem = gpus * s.f[job, CPUS] / s.i[job, GPUS] - 1e-9, gpus * s.f[job, MEM] / s.i[job, GPUS] - 1e-9
        gpus -= s.open[n, IDLE_NOW]
        cpus -= s.open_host[n, 1]
        mem -= s.open_host[n, 3]
        for k in range(first, end):
            if order[k] >= 0 and s.i[order[k], EVICTED] == 1:
                gpus -= held_on(s, order[k], n)
                cpus -= held_on(s, order[k], n) * s.f[order[k], CPUS] / s.i[order[k], GPUS]
                mem -= held_on(s, order[k], n) * s.f[order[k], MEM] / s.i[order[k], GPUS]
        k = end - 1
        while k >= first and (gpus > 0 or (s.x[USE_HOST] == 1 and (cpus > 0 or mem > 0))):
            other = order[k]
            k -= 1
            if other < 0 or s.i[other, STATE] != RUNNING or s.i[other, EVICTED] == 1:
                continue
            held = held_on(s, other, n)
            if held == 0 or (tenant >= 0 and s.i[other, TENANT] != tenant):
                continue
            s.i[other, EVICTED] = 1
            s.x[N_EVICTED] += 1
            gpus -= held
            cpus -= held * s.f[other, CPUS] / s.i[other, GPUS]
            mem -= held * s.f[other, MEM] / s.i[other, GPUS]
        if gpus > 0:
            return False
    return True


@kernel
def held_on(s: State, job: int, n: int) -> int:
    """GPUs that a running job has on a node."""
    at = s.i[job, SLICE]
    while at >= 0:
        if s.slices[at, SLICE_NODE] == n:
            return int(s.slices[at, SLICE_GPUS])
        at = s.slices[at, SLICE_NEXT]
    return 0
