"""The greedy walk: take jobs in order, give each its GPUs or skip it, then compare with what runs.

Running jobs keep their GPUs when their turn comes, unless somebody ahead has claimed them. A waiting job
takes idle GPUs where it can and otherwise, under a preemptive policy, GPUs of running jobs further back.
Jobs of one class that cannot fit are skipped together: once one has failed, less and less is left.
Planning changes nothing outside the scratch tables; `commit` then stops, moves and starts.
"""

from __future__ import annotations

from cotenant.core.columns import (
    C_GPUS,
    C_LEN,
    C_OFFSET,
    C_PART,
    CLASS,
    CPUS,
    DONE,
    GPUS,
    HOST_CPU_CAP,
    HOST_CPU_FREE,
    HOST_MEM_CAP,
    HOST_MEM_FREE,
    LEFT,
    MEM,
    N_LINES,
    N_PLANNED,
    N_RUN,
    N_STOPS,
    NODE_CAP,
    NODE_FREE,
    OWES,
    PREEMPTS,
    Q_CLAIMED,
    Q_LIMIT,
    RUN_AT,
    RUNNING,
    SLICE,
    SLICE_GPUS,
    SLICE_NEXT,
    SLICE_NODE,
    STATE,
    TENANT,
    USE_HOST,
    W_BLOCKED_BY_HEAD,
    W_CAPACITY,
    W_FRAGMENTED,
    W_QUOTA,
    W_RUNS,
    WATCH,
    WATCH_AHEAD,
    WATCH_CODE,
    WATCH_FREE,
    WATCH_POSITION,
)
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.heaps import ahead, remove_waiting
from cotenant.engine.keys import set_keys
from cotenant.engine.ledger import compact_running, enqueue, new_slices, release, start
from cotenant.placement.fit import IDLE_NOW, UNCLAIMED, find_place


@kernel
def open_all(s: State) -> None:
    """Begin a walk: everything is unclaimed, what is free is idle."""
    left = 0
    for n in range(s.node.shape[0]):
        s.open[n, UNCLAIMED] = s.node[n, NODE_CAP]
        s.open[n, IDLE_NOW] = s.node[n, NODE_FREE]
        left += s.node[n, NODE_CAP]
    if s.x[USE_HOST] == 1:
        for n in range(s.node.shape[0]):
            s.open_host[n, 0] = s.host[n, HOST_CPU_CAP]
            s.open_host[n, 1] = s.host[n, HOST_CPU_FREE]
            s.open_host[n, 2] = s.host[n, HOST_MEM_CAP]
            s.open_host[n, 3] = s.host[n, HOST_MEM_FREE]
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_CLAIMED] = 0
    for c in range(s.failed.shape[0]):
        s.failed[c] = 0
    s.x[LEFT] = left
    s.x[N_STOPS] = 0
    s.x[N_PLANNED] = 0


@kernel
def _holds_its_place(s: State, job: int) -> bool:
    """Whether nobody ahead has claimed the GPUs (cores, memory) that a running job sits on."""
    gpus = s.i[job, GPUS]
    at = s.i[job, SLICE]
    while at >= 0:
        n, count = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
        if s.open[n, UNCLAIMED] < count:
            return False
        if s.x[USE_HOST] == 1:
            share = count / gpus - 1e-9
            if s.open_host[n, 0] < share * s.f[job, CPUS] or s.open_host[n, 2] < share * s.f[job, MEM]:
                return False
        at = s.slices[at, SLICE_NEXT]
    return True


@kernel
def _claim(s: State, job: int, head: int, also_idle: bool, sign: int) -> None:
    """Claim (+1) the slices of `head` for a job, or give their idle side back (-1)."""
    gpus = s.i[job, GPUS]
    at = head
    while at >= 0:
        n, count = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
        if sign > 0:
            s.open[n, UNCLAIMED] -= count
        if also_idle:
            s.open[n, IDLE_NOW] -= sign * count
        if s.x[USE_HOST] == 1:
            share = sign * count / gpus
            if sign > 0:
                s.open_host[n, 0] -= share * s.f[job, CPUS]
                s.open_host[n, 2] -= share * s.f[job, MEM]
            if also_idle:
                s.open_host[n, 1] -= share * s.f[job, CPUS]
                s.open_host[n, 3] -= share * s.f[job, MEM]
        at = s.slices[at, SLICE_NEXT]
    if sign > 0:
        s.x[LEFT] -= gpus
        s.quota[s.i[job, TENANT], Q_CLAIMED] += gpus


@kernel
def _within_quota(s: State, job: int) -> bool:
    q = s.i[job, TENANT]
    return bool(s.quota[q, Q_CLAIMED] + s.i[job, GPUS] <= s.quota[q, Q_LIMIT])


@kernel
def visit_waiting(s: State, job: int, displacing: bool) -> bool:
    """The turn of a job that has no GPUs: plan its start, or mark its class as failed."""
    c = s.i[job, CLASS]
    code = W_RUNS
    count = 0
    if s.failed[c] > 0:
        code = s.failed[c]
    elif s.cls[c, C_GPUS] > s.x[LEFT]:
        code = W_CAPACITY
    elif not _within_quota(s, job):
        code = W_QUOTA
    else:
        count = find_place(s, c, job, IDLE_NOW)
        if count == 0 and displacing:
            count = find_place(s, c, job, UNCLAIMED)
        if count == 0:
            code = W_FRAGMENTED
    if s.x[WATCH] == job:
        s.x[WATCH_CODE] = code
        s.x[WATCH_FREE] = s.x[LEFT]
    if count == 0:
        s.failed[c] = code
        return False
    head = new_slices(s, count)
    _claim(s, job, head, True, 1)
    row = s.x[N_PLANNED]
    s.starts[row, 0] = job
    s.starts[row, 1] = head
    s.starts[row, 2] = 1 if s.i[job, STATE] == RUNNING else 0
    s.x[N_PLANNED] = row + 1
    return True


@kernel
def visit_running(s: State, job: int) -> None:
    """The turn of a running job: it keeps its GPUs, moves if they were claimed, or has to stop."""
    if s.x[LEFT] >= s.i[job, GPUS] and _within_quota(s, job) and _holds_its_place(s, job):
        _claim(s, job, s.i[job, SLICE], False, 1)
        if s.x[WATCH] == job:
            s.x[WATCH_CODE] = W_RUNS
        return
    _claim(s, job, s.i[job, SLICE], True, -1)
    if not visit_waiting(s, job, True):
        s.stops[s.x[N_STOPS]] = job
        s.x[N_STOPS] += 1


@kernel
def commit(s: State, rule: Rule, now: float) -> None:
    """Carry the plan out: stops and moves first, so that starts find their GPUs free."""
    for k in range(s.x[N_STOPS]):
        preempt(s, rule, s.stops[k], now)
    for k in range(s.x[N_PLANNED]):
        if s.starts[k, 2] == 1:
            preempt(s, rule, s.starts[k, 0], now)
    for k in range(s.x[N_PLANNED]):
        start(s, rule, s.starts[k, 0], s.starts[k, 1], now)
    s.x[N_STOPS] = 0
    s.x[N_PLANNED] = 0


@kernel
def preempt(s: State, rule: Rule, job: int, now: float) -> None:
    """Stop a running job and let it wait again; it will have to restore what it has done."""
    release(s, job, now)
    s.i[job, PREEMPTS] += 1
    if s.f[job, DONE] > 0:
        s.i[job, OWES] = 1
    enqueue(s, rule, job, now)


@kernel
def sort_running(s: State, rule: Rule, now: float) -> None:
    """Bring the keys of running jobs up to date and sort them; nearly sorted lists are the common case."""
    compact_running(s)
    count = s.x[N_RUN]
    run, f = s.run, s.f
    for k in range(count):
        set_keys(f, s.i, rule, run[k], now)
    sort_by_keys(s)


@kernel
def sort_by_keys(s: State) -> None:
    """Sort the (compacted) list of running jobs by the keys they carry."""
    run, f, count = s.run, s.f, s.x[N_RUN]
    budget = 12 * count + 64
    for k in range(1, count):
        job = run[k]
        at = k
        while at > 0 and ahead(f, job, run[at - 1]):
            run[at] = run[at - 1]
            at -= 1
            budget -= 1
        run[at] = job
        if budget < 0:
            _heap_sort(s, count)
            break
    for k in range(count):
        s.i[run[k], RUN_AT] = k


@kernel
def _heap_sort(s: State, count: int) -> None:
    run = s.run
    for first in range(count // 2 - 1, -1, -1):
        _sink(s, first, count)
    for last in range(count - 1, 0, -1):
        run[0], run[last] = run[last], run[0]
        _sink(s, 0, last)


@kernel
def _sink(s: State, at: int, count: int) -> None:
    run, f = s.run, s.f
    job = run[at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and ahead(f, run[child], run[child + 1]):
            child += 1
        if not ahead(f, job, run[child]):
            break
        run[at] = run[child]
        at = child
    run[at] = job


@kernel
def line_up(s: State) -> None:
    """Order the classes that have waiting jobs by their first ones."""
    count = 0
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0:
            insert_line(s, c, count)
            count += 1
    s.x[N_LINES] = count


@kernel
def insert_line(s: State, c: int, end: int) -> None:
    """Insert a class before position `end` of the lines, by its first job."""
    job = s.heap[s.cls[c, C_OFFSET]]
    at = end
    while at > 0 and ahead(s.f, job, s.heap[s.cls[s.lines[at - 1], C_OFFSET]]):
        s.lines[at] = s.lines[at - 1]
        at -= 1
    s.lines[at] = c


@kernel
def advance_line(s: State, at: int) -> None:
    """The first job of the class at position `at` was taken: put the class where its next job belongs."""
    c = s.lines[at]
    last = s.x[N_LINES]
    if s.cls[c, C_LEN] == 0:
        last -= 1
        for k in range(at, last):
            s.lines[k] = s.lines[k + 1]
        s.x[N_LINES] = last
        return
    job = s.heap[s.cls[c, C_OFFSET]]
    while at + 1 < last and ahead(s.f, s.heap[s.cls[s.lines[at + 1], C_OFFSET]], job):
        s.lines[at] = s.lines[at + 1]
        at += 1
    s.lines[at] = c


@kernel
def walk_preemptive(s: State, rule: Rule, now: float) -> None:
    """Merge running jobs with the first waiting jobs of each class, in order, and carry out the result."""
    sort_running(s, rule, now)
    line_up(s)
    open_all(s)
    running, count = 0, s.x[N_RUN]
    line = 0
    while running < count or line < s.x[N_LINES]:
        if s.x[LEFT] == 0:
            break
        if line < s.x[N_LINES]:
            c = s.lines[line]
            job = s.heap[s.cls[c, C_OFFSET]]
            if running >= count or ahead(s.f, job, s.run[running]):
                if visit_waiting(s, job, True):
                    remove_waiting(s.f, s.i, s.cls, s.heap, job)
                    advance_line(s, line)
                else:
                    line += 1
                continue
        visit_running(s, s.run[running])
        running += 1
    for k in range(running, count):
        s.stops[s.x[N_STOPS]] = s.run[k]
        s.x[N_STOPS] += 1
    commit(s, rule, now)


@kernel
def walk_order(s: State, order: Ints, preemptive: bool, strict: bool) -> None:
    """Plan for active jobs given in order (for policies that compute their own priorities).

    Without preemption whatever runs keeps running. `strict` blocks a partition at its first job that does
    not fit. Only plans; the caller commits.
    """
    open_all(s)
    if not preemptive:
        for k in range(len(order)):
            if s.i[order[k], STATE] == RUNNING:
                visit_running(s, order[k])
    blocked = 0
    ahead_running = 0
    for k in range(len(order)):
        job = order[k]
        if s.x[WATCH] == job:
            s.x[WATCH_POSITION] = k
            s.x[WATCH_AHEAD] = ahead_running
        if s.i[job, STATE] == RUNNING:
            ahead_running += 1
            if preemptive:
                visit_running(s, job)
            continue
        part = s.cls[s.i[job, CLASS], C_PART]
        if strict and (blocked >> part) & 1:
            if s.x[WATCH] == job:
                s.x[WATCH_CODE] = W_BLOCKED_BY_HEAD
            continue
        if not visit_waiting(s, job, preemptive):
            blocked |= 1 << part
