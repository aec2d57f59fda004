"""What nodes can give beside jobs that nobody may stop, and whether others may join these on their GPUs.

A pinned job that lets others in stays where it is, but the tables show its GPUs as empty: every policy, order and
placement can then use them as any others. Whoever opens them has to see to it that guests do no harm (`engine.guard`).
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import State
from cotenant.engine.ledger import count_busy
from cotenant.engine.sharing import occupy, vacate


@entry
def let_in(s: State, job: int) -> None:
    """Others may join a pinned job: the tables show its GPUs as empty, though it stays there."""
    if s.i[job, STATE] == PINNED and s.i[job, LETS_IN] == 0:
        s.i[job, LETS_IN] = 1
        busy = vacate(s.i, s.node, s.slices, s.gpu, s.gpu_first, s.x, job, s.i[job, SLICE])
        count_busy(s.x, s.t, s.t[NOW], -busy)
        recount_of(s, job)


@entry
def keep_out(s: State, job: int) -> None:
    """Nobody else may join a pinned job; whoever has, stays. A place on each of its GPUs must be left for it."""
    if s.i[job, LETS_IN] == 1:
        s.i[job, LETS_IN] = 0
        head = s.i[job, SLICE]
        busy = occupy(s.i, s.node, s.slices, s.gpu, s.gpu_first, s.gpu_leaving, s.gpu_bound, s.x, job, head)
        count_busy(s.x, s.t, s.t[NOW], busy)
        recount_of(s, job)


@entry
def recount(s: State, n: int) -> None:
    """What a node can give: nothing while it is shut, else all its GPUs but those of pinned jobs."""
    cap, free = 0, 0
    for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
        pinned = False
        for place in range(s.gpu.shape[1]):
            if s.gpu[g, place] >= 0 and s.i[s.gpu[g, place], STATE] == PINNED:
                pinned = True
        if not pinned and s.node[n, NODE_SHUT] == 0:
            cap += 1
            free += 1 if s.gpu[g, 0] < 0 else 0
    s.x[IDLE] += free - s.node[n, NODE_FREE]
    s.node[n, NODE_CAP], s.node[n, NODE_FREE] = cap, free
    s.x[STAMP] += 1
    s.x[DIRTY] = 1


@kernel
def recount_of(s: State, job: int) -> None:
    """The same for the nodes of a job."""
    at = s.i[job, SLICE]
    while at >= 0:
        recount(s, s.slices[at, SLICE_NODE])
        at = s.slices[at, SLICE_NEXT]
