"""Who cannot run on the nodes that are up: a part of the stage `admit`.

A job that none of the nodes that are up could hold if they were empty is set aside: it keeps nobody waiting, and no
policy sees it, until one comes back. While no node is up at all everybody stays as he is. Whoever leaves, or stands
still on GPUs, is not judged before he waits for others.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.ledger import dequeue, enqueue


@entry
def set_aside(s: State, rule: Rule, now: float) -> None:
    """Set aside whoever fits nowhere any more, and bring back whoever does again; nothing where no node changed."""
    if s.x[UNSURE] == 0 or s.x[N_SHUT] == s.node.shape[0]:
        return
    again, s.x[UNSURE] = s.x[UNSURE] == 2 and s.x[N_ASIDE] > 0, 0
    for job in range(s.x[NEXT_ARRIVAL] if again else 0):
        if s.i[job, STATE] == ASIDE and not _fits_nowhere(s, s.i[job, CLASS], job):
            enqueue(s, rule, job, now)
            s.x[DIRTY] = 1
    for c in range(s.cls.shape[0]):
        first = s.cls[c, C_OFFSET]
        if s.cls[c, C_BOUND] == -1 and s.cls[c, C_LEN] > 0 and _fits_nowhere(s, c, s.heap[first]):
            _take_out(s, rule, c)


@kernel
def _take_out(s: State, rule: Rule, c: int) -> None:
    """All waiting jobs of a class, but those that are about to leave their GPUs: their turn comes later."""
    at = 0
    while at < s.cls[c, C_LEN]:
        job = s.heap[s.cls[c, C_OFFSET] + at]
        if s.i[job, LEAVING] == 1:
            s.x[UNSURE] = max(s.x[UNSURE], 1)
            at += 1
            continue
        dequeue(s, rule, job)
        s.i[job, STATE] = ASIDE
        s.x[N_ASIDE] += 1
        s.x[DIRTY] = 1
        at = 0  # others have moved in the heap


@kernel
def _fits_nowhere(s: State, c: int, job: int) -> bool:
    """Whether no pool could hold a gang of a class, like `job`, on its nodes that are up; found out once per change."""
    if s.cls[c, C_JUDGED] != s.x[NODES]:
        s.cls[c, C_JUDGED], s.cls[c, C_NOWHERE] = s.x[NODES], 1
        for p in range(s.pool.shape[0]):
            if (s.cls[c, C_POOLS] >> p) & 1 and _holds(s, c, job, p):
                s.cls[c, C_NOWHERE] = 0
    return bool(s.cls[c, C_NOWHERE] == 1 or s.cls[c, C_POOLS] == 0)


@kernel
def _holds(s: State, c: int, job: int, p: int) -> bool:
    """The same rule as that for whole pools in `tables`, for the nodes of a pool that are up."""
    cpus, mem = s.f[job, CPUS] / s.i[job, GPUS], s.f[job, MEM] / s.i[job, GPUS]
    nodes, gpus, large = s.cls[c, C_NODES], 0, 0
    for n in range(s.pool[p, POOL_LO], s.pool[p, POOL_HI]):
        most = float(s.node[n, NODE_SIZE]) if s.node[n, NODE_SHUT] == 0 else 0.0
        if cpus > 0:
            most = min(most, s.host[n, HOST_CPU_CAP] / cpus + 1e-9)
        if mem > 0:
            most = min(most, s.host[n, HOST_MEM_CAP] / mem + 1e-9)
        fed = int(most)
        gpus += fed
        large += 1 if nodes > 0 and fed >= s.cls[c, C_GPUS] // nodes else 0
    return bool(large >= nodes if nodes > 0 else gpus >= s.cls[c, C_GPUS])
