"""Suspended jobs go on only on the GPUs where they stand: a place for such a job is its home, or none.

While its home belongs to others but a place elsewhere could be had, it is barred: ending it throws away what it has not
saved, waiting leaves idle what it could use. It waits as long as it would lose by being ended (a ski rental: at most
twice the better choice), but no longer than `PATIENCE`; then it is ended and starts again from its last checkpoint.
What it has lost before is waited in addition, so that it comes to its end some day, however it is pushed about.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.ledger import bar
from cotenant.placement.fit import find_place


@kernel
def find_home(s: State, job: int, source: int, order: Ints, first: int, end: int) -> int:
    """The pairs of its own GPUs, if nobody has claimed them in this walk; else 0.

    Running jobs of `order[first:end]`, whose turn is still to come, have to leave them.
    """
    if planned_on(s, s.i[job, HOME]):
        return 0
    count = 0
    at = s.i[job, HOME]
    while at >= 0:
        n = s.slices[at, SLICE_NODE]
        if s.open[n, source] < s.slices[at, SLICE_GPUS]:
            return 0
        mask, g = s.slices[at, SLICE_MASK], s.gpu_first[n]
        while mask:
            owner = s.gpu[g, 0] if mask & 1 else -1
            if owner >= 0 and not (_may_displace(s, job, owner) and _comes_later(owner, order, first, end)):
                return 0
            mask >>= 1
            g += 1
        s.pick[count, 0], s.pick[count, 1] = n, s.slices[at, SLICE_GPUS]
        count += 1
        at = s.slices[at, SLICE_NEXT]
    return count


@kernel
def planned_on(s: State, head: int) -> bool:
    """Whether somebody is planned to go on, on some of these very GPUs, where he stands still."""
    for k in range(s.x[N_PLANNED]):
        other = s.starts[k, START_HEAD]
        while other >= 0:
            at = head
            while at >= 0:
                same = s.slices[at, SLICE_NODE] == s.slices[other, SLICE_NODE]
                if same and s.slices[at, SLICE_MASK] & s.slices[other, SLICE_MASK]:
                    return True
                at = s.slices[at, SLICE_NEXT]
            other = s.slices[other, SLICE_NEXT]
    return False


@kernel
def _may_displace(s: State, job: int, owner: int) -> bool:
    """Under a tree of tenants only whoever has the same tenant has to leave, if that lets anybody be displaced."""
    tenant = s.i[job, TENANT]
    return bool(s.x[TENANTS] != 1 or (s.i[owner, TENANT] == tenant and s.quota[tenant, Q_STAYS] == 0))


@kernel
def _comes_later(owner: int, order: Ints, first: int, end: int) -> bool:
    found = False
    for k in range(first, end):
        found = found or order[k] == owner
    return bool(found)


@kernel
def evict(s: State, job: int) -> None:
    """Whoever is on the GPUs of a suspended job that goes on loses its place in this walk."""
    at = s.i[job, HOME]
    while at >= 0:
        mask, g = s.slices[at, SLICE_MASK], s.gpu_first[s.slices[at, SLICE_NODE]]
        while mask:
            if mask & 1 and s.gpu[g, 0] >= 0 and s.i[s.gpu[g, 0], EVICTED] == 0:
                s.i[s.gpu[g, 0], EVICTED] = 1
                s.x[N_EVICTED] += 1
            mask >>= 1
            g += 1
        at = s.slices[at, SLICE_NEXT]


@kernel
def find_home_or_wait(s: State, rule: Rule, c: int, job: int, source: int, now: float) -> int:
    """The same; notes since when the job could have gone elsewhere instead."""
    count = find_home(s, job, source, s.run, 0, 0)
    if s.x[WATCH] >= 0:  # somebody only asks
        return count
    bar(s, rule, job, count == 0 and find_place(s, s.cls[c, C_ORIGIN], job, source) > 0, now)
    return count
