"""EASY backfill: the head of the line gets a reservation, others may pass if they do not delay it.

Lifka, "The ANL/IBM SP scheduling system" (1995). The reservation is the earliest moment at which running
jobs, ending when they are believed to end, leave a place for the head. A job may pass if it is believed to
end before that, or if it uses only GPUs that the head will not need then.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Matrix, Rule, State
from cotenant.engine.fill import fill, open_idle, room_in_quota, start_if_it_fits
from cotenant.engine.heaps import ahead
from cotenant.engine.home import find_home
from cotenant.engine.keys import compact_if_sparse
from cotenant.engine.ledger import start
from cotenant.engine.slices import shift, slices_for
from cotenant.engine.sorting import AT, EVERYBODY, WHO, line_up_running
from cotenant.engine.victims import goes_to_one_node, may_matter
from cotenant.placement.fit import BOTH, IDLE_NOW, UNCLAIMED, find_place

_LONGEST_S = 1e300


@kernel
def believed_end(hot: Matrix, k: int, now: float) -> float:
    """When the running job at position k is believed to end; one that is overdue, at once.

    One that still waits for others to leave its GPUs begins now, as far as anybody knows.
    """
    warm = hot[H_WARM, k] if hot[H_WARM, k] < math.inf else now
    return float(max(warm + hot[H_LEFT, k] / hot[H_SPEED, k], now))


@kernel
def head_of(s: State, part: int) -> int:
    """The first waiting job of a partition that its quota allows; -1 if there is none."""
    head = -1
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0 and s.cls[c, C_PART] == part and room_in_quota(s, c):
            job = s.heap[s.cls[c, C_OFFSET]]
            if head < 0 or ahead(s.f, job, head):
                head = job
    return int(head)


@kernel
def _take_found(s: State, job: int, count: int, column: int) -> None:
    """Count the place just found as taken in a column of the open tables."""
    gpus = s.i[job, GPUS]
    for piece in range(count):
        n, taken = s.pick[piece, 0], s.pick[piece, 1]
        s.open[n, column] -= taken
        s.open_host[n, column] -= s.f[job, CPUS] * taken / gpus
        s.open_host[n, column + 2] -= s.f[job, MEM] * taken / gpus


@kernel
def _may_fit(s: State, c: int, ending: int, gpus: int) -> bool:
    """A quick test before the search for a gang of class c: a part of one node, of so many GPUs, can only fit where
    something was just freed; whole nodes, only where one became free."""
    at = s.i[ending, SLICE]
    while at >= 0:
        n = s.slices[at, SLICE_NODE]
        if gpus > s.pool[s.node[n, NODE_POOL], POOL_LARGEST]:
            return s.x[USE_HOST] == 1 or may_matter(s, c, s.i[ending, SLICE], UNCLAIMED)
        if s.open[n, UNCLAIMED] >= gpus:
            return True
        at = s.slices[at, SLICE_NEXT]
    return False


@kernel
def reserve(s: State, head: int, now: float) -> float:
    """When the head can start. Leaves in UNCLAIMED what is free then, beside the head's GPUs."""
    compact_if_sparse(s)
    for k in range(s.x[N_RUN]):
        s.keys[0, k] = believed_end(s.hot, k, now)
        for c in range(1, s.keys.shape[0]):
            s.keys[c, k] = 0.0
    count = line_up_running(s, EVERYBODY)
    for n in range(s.node.shape[0]):
        s.open[n, UNCLAIMED] = s.open[n, IDLE_NOW]
        s.open_host[n, 0] = s.open_host[n, 1]
        s.open_host[n, 2] = s.open_host[n, 3]
    c, gpus, free = s.i[head, CLASS], s.i[head, GPUS], s.x[IDLE]
    part = gpus // max(s.cls[c, C_NODES], 1)
    for k in range(count):
        job = s.order[WHO, k]
        if job < 0:  # it no longer runs
            continue
        shift(s, job, s.i[job, SLICE], UNCLAIMED, 1)
        free += s.i[job, GPUS]
        if free < gpus or not _may_fit(s, c, job, part):
            continue
        pieces = find_place(s, c, head, UNCLAIMED)
        if pieces > 0:
            end = s.keys[0, s.order[AT, k]]
            following = k + 1
            while following < count and s.keys[0, s.order[AT, following]] == end:
                job = s.order[WHO, following]
                if job >= 0:
                    shift(s, job, s.i[job, SLICE], UNCLAIMED, 1)
                following += 1
            _take_found(s, head, pieces, UNCLAIMED)
            return float(end)
    return math.inf


@kernel
def first_short(s: State, c: int, limit_s: float) -> int:
    """The first waiting job of a class, by tier and row, that is believed to take at most `limit_s`; -1 if none."""
    base, leaves = s.cls[c, C_TREE], s.cls[c, C_LEAVES]
    if leaves == 0:  # the class of a suspended job, which has no tree
        first = s.heap[s.cls[c, C_OFFSET]]
        return int(first) if s.f[first, BELIEF] <= limit_s else -1
    limit_s = min(limit_s, _LONGEST_S)  # who does not wait counts as infinitely long
    if s.tree[base + 1] > limit_s:
        return -1
    at = 1
    while at < leaves:
        at *= 2
        if s.tree[base + at] > limit_s:
            at += 1
    return int(s.members[s.cls[c, C_OFFSET] + at - leaves])


@kernel
def _place(s: State, job: int, source: int) -> int:
    """A place for a job that may pass the head; of a suspended one its own GPUs, or none."""
    if s.i[job, HOME] < 0:
        return int(find_place(s, s.i[job, CLASS], job, source))
    if source == BOTH and find_home(s, job, UNCLAIMED, s.run, 0, 0) == 0:
        return 0
    return int(find_home(s, job, IDLE_NOW, s.run, 0, 0))


@kernel
def easy(s: State, rule: Rule, now: float) -> None:
    """Strict order first; then per partition a reservation for the head and backfill around it."""
    fill(s, rule, now, True)
    s.t[HEAD_START] = math.nan
    parts = 0
    for c in range(s.cls.shape[0]):
        parts = max(parts, s.cls[c, C_PART] + 1)
    for part in range(parts):
        if s.x[N_WAITING] == 0 or s.x[IDLE] == 0:
            return
        head = head_of(s, part)
        # Whoever stands behind a tenant at its quota becomes the head, and may fit at once.
        while head >= 0 and start_if_it_fits(s, rule, head, s.i[head, CLASS], now):
            head = head_of(s, part)
        if head >= 0:
            open_idle(s)
            s.t[HEAD_START] = reserve(s, head, now)
            _backfill(s, rule, part, head, s.t[HEAD_START], now)


@kernel
def _backfill(s: State, rule: Rule, part: int, head: int, head_start: float, now: float) -> None:
    for c in range(s.cls.shape[0]):
        s.failed[c] = 0
    most = 0
    for n in range(s.node.shape[0]):
        most = max(most, s.open[n, IDLE_NOW])
    while s.x[IDLE] > 0:
        best, best_long = -1, False
        for c in range(s.cls.shape[0]):
            if s.cls[c, C_LEN] == 0 or s.cls[c, C_PART] != part or s.failed[c] == 1:
                continue
            first = s.heap[s.cls[c, C_OFFSET]]
            too_large = s.cls[c, C_GPUS] > most and goes_to_one_node(s, c) and s.i[first, HOME] < 0
            if s.cls[c, C_GPUS] > s.x[IDLE] or too_large or not room_in_quota(s, c):
                s.failed[c] = 1
                continue
            if best >= 0 and ahead(s.f, best, first):
                continue
            if _place(s, first, BOTH) > 0:
                best, best_long = first, True
                continue
            if _place(s, first, IDLE_NOW) == 0:
                s.failed[c] = 1
                continue
            job = first_short(s, c, head_start - now)
            if job >= 0 and job != head and (best < 0 or ahead(s.f, job, best)):
                best, best_long = job, False
        if best < 0:
            return
        count = _place(s, best, BOTH if best_long else IDLE_NOW)
        _take_found(s, best, count, IDLE_NOW)
        if best_long and s.f[best, BELIEF] > head_start - now:
            _take_found(s, best, count, UNCLAIMED)
        start(s, rule, best, slices_for(s, best, count), now)
