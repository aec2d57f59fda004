"""Whether what a plan changes on shared GPUs passes no limit, as one kernel over the GPUs that are touched.

Everybody whom a plan names is taken off the GPUs that it has, and put where it is to be; whoever it does not name stays
as it is. The kernel says yes to what is plainly in order, which is nearly everything. `check` looks again at the rest
and has the words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.plan import Places, Plan, Terms
from cotenant.core.state import IntMatrix, State
from cotenant.core.workload import Floats, Ints


class NamedJobs(NamedTuple):
    """Jobs that are to start, to move, or to go on where they are on other terms, and their pieces."""

    jobs: IntMatrix  # (row, turn, 1 where it counts against its tenant's quota)
    gib: Floats  # by job: on each of its GPUs
    pieces: IntMatrix  # (which of the jobs, node, GPUs, mask)


def as_named(wanted: dict[int, Places], plan: Plan, gib: dict[int, float]) -> NamedJobs:
    """Those whom a plan names as tables."""
    terms = [plan.terms.get(row, Terms()) for row in wanted]
    jobs = [(row, said.turn, int(not said.opportunistic)) for row, said in zip(wanted, terms, strict=True)]
    pieces = [(k, *piece) for k, places in enumerate(wanted.values()) for piece in places]
    return NamedJobs(
        np.array(jobs, np.int64).reshape(-1, 3),
        np.array([gib[row] for row in wanted], np.float64),
        np.array(pieces, np.int64).reshape(-1, 4),
    )


@entry
def are_good(s: State, named: NamedJobs, active: Ints) -> bool:
    """Whether all of them are `active` jobs with whole gangs on open GPUs that hold them, within quotas."""
    for k in range(len(named.jobs)):
        job, found = named.jobs[k, 0], False
        for a in range(len(active)):
            found = found or active[a] == job
        if not found or not _is_whole(s, named, k, job):
            return False
    for p in range(len(named.pieces)):
        if not _has_room(s, named, p):
            return False
    for tenant in range(len(s.quota)):
        held = s.quota[tenant, Q_USED]
        for k in range(len(named.jobs)):
            job = named.jobs[k, 0]
            if s.i[job, TENANT] == tenant:
                before = 1 if s.i[job, STATE] == RUNNING and s.i[job, OPPORTUNISTIC] == 0 else 0
                held += (named.jobs[k, 2] - before) * s.i[job, GPUS]
        if held > s.quota[tenant, Q_LIMIT]:
            return False
    return True


@kernel
def _is_whole(s: State, named: NamedJobs, k: int, job: int) -> bool:
    """Whether a job that leaves its parts open has all its GPUs, in one pool that is open to it."""
    c, gpus, pool = s.i[job, CLASS], 0, -1
    if s.cls[c, C_NODES] > 0:
        return False
    for p in range(len(named.pieces)):
        if named.pieces[p, 0] != k:
            continue
        node, count = named.pieces[p, 1], named.pieces[p, 2]
        if node < 0 or node >= len(s.node) or count < 1 or count > s.node[node, NODE_CAP]:
            return False
        if pool >= 0 and s.node[node, NODE_POOL] != pool:
            return False
        pool = s.node[node, NODE_POOL]
        gpus += count
    return bool(gpus == s.i[job, GPUS] and pool >= 0 and (s.cls[c, C_POOLS] >> pool) & 1)


@kernel
def _has_room(s: State, named: NamedJobs, p: int) -> bool:
    """Whether the mask of a piece names its GPUs, and these have the places and the memory for all who come."""
    node, left, mask = named.pieces[p, 1], named.pieces[p, 2], named.pieces[p, 3]
    if mask <= 0 or mask >> s.node[node, NODE_SIZE]:
        return False
    limit = s.gpu_gib[s.pool[s.node[node, NODE_POOL], POOL_TYPE]]
    for bit in range(s.node[node, NODE_SIZE]):
        if not (mask >> bit) & 1:
            continue
        left -= 1
        gpu = s.gpu_first[node] + bit
        users = 0
        for place in range(s.gpu.shape[1]):
            users += 1 if s.gpu[gpu, place] >= 0 and not _is_named(s, named, s.gpu[gpu, place]) else 0
        for q in range(len(named.pieces)):
            users += 1 if named.pieces[q, 1] == node and (named.pieces[q, 3] >> bit) & 1 else 0
        if users > s.gpu.shape[1] or _most_gib(s, named, node, bit) > limit:
            return False
    return bool(left == 0)


@kernel
def _most_gib(s: State, named: NamedJobs, node: int, bit: int) -> float:
    """GiB on a GPU while the largest of the turns has it; jobs without a turn are always there."""
    gpu, always, largest = s.gpu_first[node] + bit, 0.0, 0.0
    places = s.gpu.shape[1]
    for one in range(places + len(named.pieces)):
        turn = _turn_on(s, named, node, bit, gpu, one)
        if turn < 0:
            continue
        total = 0.0
        for other in range(places + len(named.pieces)):
            if _turn_on(s, named, node, bit, gpu, other) == turn:
                if other < places:
                    total += s.f[s.gpu[gpu, other], GPU_GIB]
                else:
                    total += named.gib[named.pieces[other - places, 0]]
        if turn == 0:
            always = total
        else:
            largest = max(largest, total)
    return always + largest


@kernel
def _turn_on(s: State, named: NamedJobs, node: int, bit: int, gpu: int, one: int) -> int:
    """Turn of one of those who have a place on a GPU, or are to come: -1 where that is nobody."""
    places = s.gpu.shape[1]
    if one < places:
        job = s.gpu[gpu, one]
        return s.i[job, TURN] if job >= 0 and not _is_named(s, named, job) else -1
    p = one - places
    here = named.pieces[p, 1] == node and (named.pieces[p, 3] >> bit) & 1
    return named.jobs[named.pieces[p, 0], 1] if here else -1


@kernel
def _is_named(s: State, named: NamedJobs, job: int) -> bool:
    """Whether a job is one of them; of those who wait nobody is on a GPU."""
    found = False
    for k in range(len(named.jobs)):
        found = found or named.jobs[k, 0] == job
    return found
