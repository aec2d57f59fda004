"""Deciding without preemption: start waiting jobs in order on idle GPUs, with or without skipping.

A class that did not fit stays blocked until capacity is freed, so an arrival into a long queue costs
nothing more than its place in the heap.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.home import find_home_or_wait
from cotenant.engine.ledger import start
from cotenant.engine.lines import advance_line, insert_line
from cotenant.engine.slices import slices_for
from cotenant.engine.victims import goes_to_one_node
from cotenant.placement.fit import IDLE_NOW, find_place


@kernel
def open_idle(s: State) -> None:
    """Show the placement rules what is idle now."""
    for n in range(s.node.shape[0]):
        s.open[n, IDLE_NOW] = s.node[n, NODE_FREE]
    if s.x[USE_HOST] == 1:
        for n in range(s.node.shape[0]):
            s.open_host[n, 1] = s.host[n, HOST_CPU_FREE]
            s.open_host[n, 3] = s.host[n, HOST_MEM_FREE]


@kernel
def room_in_quota(s: State, c: int) -> bool:
    """Whether the tenant of a class may hold one more gang of it."""
    q = s.cls[c, C_TENANT]
    return bool(s.quota[q, Q_USED] + s.cls[c, C_GPUS] <= s.quota[q, Q_LIMIT])


@kernel
def _idle_node(s: State, gpus: int) -> int:
    """`find_place` for a gang that goes to one node of the only pool, straight from the nodes: best fit."""
    node, best, least = s.node, -1, UNLIMITED
    for n in range(node.shape[0]):
        free = node[n, NODE_FREE]
        if gpus <= free < least:
            best, least = n, free
            if free == gpus:
                break
    s.pick[0, 0], s.pick[0, 1] = best, gpus
    return 1 if best >= 0 else 0


@kernel
def start_if_it_fits(s: State, rule: Rule, job: int, c: int, now: float) -> bool:
    """Start one waiting job on idle GPUs, if there is a place for it."""
    if s.cls[c, C_GPUS] > s.x[IDLE] or not room_in_quota(s, c):
        return False
    if s.i[job, HOME] < 0 and goes_to_one_node(s, c):
        count = _idle_node(s, s.cls[c, C_GPUS])
    else:
        open_idle(s)
        if s.i[job, HOME] >= 0:
            count = find_home_or_wait(s, rule, c, job, IDLE_NOW, now)
        else:
            count = find_place(s, c, job, IDLE_NOW)
    if count == 0:
        return False
    start(s, rule, job, slices_for(s, job, count), now)
    return True


@kernel
def fill(s: State, rule: Rule, now: float, strict: bool) -> None:
    """Start what fits, in order. With `strict` the first job that does not fit closes its partition, or its tenant."""
    stamp = s.x[STAMP]
    by_tenant = s.x[TENANTS] == 1
    for q in range(s.quota.shape[0] if strict and by_tenant else 0):
        s.quota[q, Q_CLOSED] = 0
    count = 0
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0 and (strict or s.cls[c, C_BLOCKED] != stamp):
            insert_line(s, c, count)
            count += 1
    s.x[N_LINES], s.x[IN_LINE] = count, 0
    closed = 0
    line = 0
    while line < s.x[N_LINES]:
        c = s.lines[line]
        part, q = s.cls[c, C_PART], s.cls[c, C_TENANT]
        if strict and (s.quota[q, Q_CLOSED] == 1 if by_tenant else (closed >> part) & 1):
            line += 1
            continue
        if s.cls[c, C_BLOCKED] != stamp:
            if start_if_it_fits(s, rule, s.heap[s.cls[c, C_OFFSET]], c, now):
                advance_line(s, line)
                continue
            s.cls[c, C_BLOCKED] = stamp
        if strict and by_tenant:
            s.quota[q, Q_CLOSED] = 1
        elif strict:
            closed |= 1 << part
        line += 1
