"""The greedy walk: take jobs in order, give each its GPUs or skip it, then compare with what runs.

Running jobs keep their GPUs when their turn comes, unless somebody ahead has claimed them. A waiting job
takes idle GPUs where it can and otherwise, under a preemptive policy, GPUs of running jobs further back.
Jobs of one class that cannot fit are skipped together: once one has failed, less and less is left.
Planning changes nothing outside the scratch tables; `commit` then stops, moves and starts.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.gains import weigh_stop, worth_moving
from cotenant.engine.heaps import remove_waiting
from cotenant.engine.home import evict, find_home
from cotenant.engine.keys import before_running, refresh_keys, set_keys_if_moved
from cotenant.engine.leaving import preempt
from cotenant.engine.ledger import start
from cotenant.engine.lines import advance_line, line_up
from cotenant.engine.sharing import copy_slices
from cotenant.engine.slices import shift, slices_for
from cotenant.engine.sorting import AT, WHO, line_up_running
from cotenant.engine.victims import displace_latest, goes_to_one_node
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
        s.quota[q, Q_STARTED] = 0
    for c in range(s.failed.shape[0]):
        s.failed[c] = 0
    s.x[LEFT], s.x[MOST_IDLE] = left, UNLIMITED
    s.x[N_STOPS] = 0
    s.x[N_PLANNED] = 0


@kernel
def keep_place(
    f: Matrix, i: IntMatrix, slices: IntMatrix, open_: IntMatrix, open_host: Matrix,
    quota: IntMatrix, x: Ints, job: int,
) -> bool:  # fmt: skip
    """Claim for a running job the GPUs it sits on, unless somebody ahead has claimed them."""
    gpus, tenant = i[job, GPUS], i[job, TENANT]
    if x[N_EVICTED] > 0 and i[job, EVICTED] == 1:
        return False
    if x[LEFT] < gpus or quota[tenant, Q_CLAIMED] + gpus > quota[tenant, Q_LIMIT]:
        return False
    head = i[job, SLICE]
    at = head
    while at >= 0:
        n, count = slices[at, SLICE_NODE], slices[at, SLICE_GPUS]
        if open_[n, UNCLAIMED] < count:
            return False
        if x[USE_HOST] == 1:
            share = count / gpus - 1e-9
            if open_host[n, 0] < share * f[job, CPUS] or open_host[n, 2] < share * f[job, MEM]:
                return False
        at = slices[at, SLICE_NEXT]
    at = head
    while at >= 0:
        n, count = slices[at, SLICE_NODE], slices[at, SLICE_GPUS]
        open_[n, UNCLAIMED] -= count
        if x[USE_HOST] == 1:
            open_host[n, 0] -= count / gpus * f[job, CPUS]
            open_host[n, 2] -= count / gpus * f[job, MEM]
        at = slices[at, SLICE_NEXT]
    x[LEFT] -= gpus
    quota[tenant, Q_CLAIMED] += gpus
    return True


@kernel
def _keep_stretch(s: State, first: int, count: int, waiting: int) -> int:
    """Let running jobs from the one at `first` in line on keep their places, up to the turn of a waiting job or to the
    first one whose place is taken."""
    f, i, slices, open_, open_host, quota, x = s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x
    hot, keys, order = s.hot, s.keys, s.order
    for k in range(first, count):
        at, job = order[AT, k], order[WHO, k]
        if before_running(f, waiting, keys, at, job):
            return k
        node = int(hot[H_NODE, at])
        if node < 0 or x[N_EVICTED] > 0:
            if not keep_place(f, i, slices, open_, open_host, quota, x, job):
                return k
            continue
        gpus, tenant = int(hot[H_GPUS, at]), int(hot[H_TENANT, at])
        if open_[node, UNCLAIMED] < gpus or quota[tenant, Q_CLAIMED] + gpus > quota[tenant, Q_LIMIT]:
            return k
        open_[node, UNCLAIMED] -= gpus
        quota[tenant, Q_CLAIMED] += gpus
        x[LEFT] -= gpus
    return count


@kernel
def claim(s: State, job: int, count: int) -> int:
    """Turn the place just found into slices and claim them for a job that is planned to start there."""
    head = slices_for(s, job, count)
    shift(s, job, head, UNCLAIMED, -1)
    shift(s, job, head, IDLE_NOW, -1)
    asked = s.cls[s.i[job, CLASS], C_GPUS]
    s.x[LEFT] -= asked
    s.quota[s.i[job, TENANT], Q_CLAIMED] += asked
    s.quota[s.i[job, TENANT], Q_STARTED] += asked
    return head


@kernel
def leave(s: State, job: int) -> None:
    """A running job has lost its place: what it holds there counts as idle."""
    at = s.i[job, SLICE]
    shift(s, job, at, IDLE_NOW, 1)
    while at >= 0:
        s.x[MOST_IDLE] = max(s.x[MOST_IDLE], s.open[s.slices[at, SLICE_NODE], IDLE_NOW])
        at = s.slices[at, SLICE_NEXT]


@kernel
def within_quota(s: State, job: int) -> bool:
    """Whether the tenant of a job may claim the gang that it asks for too in this walk."""
    q = s.i[job, TENANT]
    claimed = s.quota[q, Q_CLAIMED]
    if s.x[TENANTS] == 1 and s.quota[q, Q_STAYS] == 1:  # whoever runs has claimed what he has before anybody
        claimed = s.quota[q, Q_USED] + s.quota[q, Q_STARTED]
    return bool(claimed + s.cls[s.i[job, CLASS], C_GPUS] <= s.quota[q, Q_LIMIT])


@kernel
def plan_start(s: State, job: int, head: int, host: int) -> None:
    """A job is to start on the slices of `head` or, as a guest, on the GPUs of its host."""
    row = s.x[N_PLANNED]
    s.starts[row, START_JOB] = job
    s.starts[row, START_HEAD] = head
    s.starts[row, START_MOVED] = 1 if s.i[job, STATE] == RUNNING else 0
    s.starts[row, START_HOST] = host
    s.x[N_PLANNED] = row + 1


@kernel
def plan_stop(s: State, job: int) -> None:
    """A running job is to stop."""
    s.stops[s.x[N_STOPS]] = job
    s.x[N_STOPS] += 1


@kernel
def _idle_place(s: State, c: int, job: int) -> int:
    """A place among idle GPUs. What one node did not have is not looked for again until somebody leaves."""
    if not goes_to_one_node(s, c):
        return find_place(s, c, job, IDLE_NOW)
    if s.cls[c, C_GPUS] > s.x[MOST_IDLE]:
        return 0
    count = find_place(s, c, job, IDLE_NOW)
    if count == 0:
        s.x[MOST_IDLE] = s.cls[c, C_GPUS] - 1
    return count


@kernel
def visit_waiting(s: State, job: int, displacing: bool, order: Ints, first: int, end: int) -> bool:
    """The turn of a job that has no GPUs: plan its start, or mark its class as failed.

    It may displace running jobs of `order[first:end]`, the jobs whose turn is still to come.
    """
    c = s.i[job, CLASS]
    code = W_RUNS
    count = 0
    if s.failed[c] > 0:
        code = s.failed[c]
    elif s.cls[c, C_GPUS] > s.x[LEFT]:
        code = W_CAPACITY
    elif not within_quota(s, job):
        code = W_QUOTA
    else:
        if s.i[job, HOME] >= 0:
            count = find_home(s, job, UNCLAIMED if displacing else IDLE_NOW, order, first, end if displacing else first)
            if count > 0:
                evict(s, job)
        else:
            count = _idle_place(s, c, job)
            if count == 0 and displacing:
                count = displace_latest(s, c, job, order, first, end)
        if count == 0:
            code = W_FRAGMENTED
    if s.x[WATCH] == job:
        s.x[WATCH_CODE] = code
        s.x[WATCH_FREE] = s.x[LEFT]
    if count == 0:
        s.failed[c] = code
        return False
    head = claim(s, job, count)
    plan_start(s, job, head, -1)
    return True


@kernel
def visit_running(s: State, job: int, order: Ints, first: int, end: int) -> None:
    """The turn of a running job: it keeps its GPUs, moves if they were claimed, or has to stop."""
    if keep_place(s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x, job):
        if s.x[WATCH] == job:
            s.x[WATCH_CODE] = W_RUNS
        return
    leave(s, job)
    if not visit_waiting(s, job, True, order, first, end):
        plan_stop(s, job)


@kernel
def _weigh_running(s: State, rule: Rule, k: int, end: int, now: float) -> None:
    """The same in a compiled order, for the job at place k in line: nobody is moved, or displaced by who is moved, for
    less than that costs."""
    job, first = s.order[WHO, k], k + 1
    if keep_place(s.f, s.i, s.slices, s.open, s.open_host, s.quota, s.x, job):
        return
    leave(s, job)
    moves = displaces = True
    if rule.flags[WEIGHS] == 1 and (s.hot[H_COST, s.order[AT, k]] > 0 or s.i[job, PROMISED] == 1) and first < end:
        set_keys_if_moved(s.f, s.i, rule, job, now)
        displaces = before_running(s.f, job, s.keys, s.order[AT, first], s.order[WHO, first])
    if rule.flags[WEIGHS] == 1 and s.i[job, RUNG] == 1 and s.i[job, PROMISED] == 0:
        moves = worth_moving(s, rule, job, now)
    moves = moves and visit_waiting(s, job, displaces, s.order[WHO], first, end)
    if not moves:
        plan_stop(s, job)
    weigh_stop(s, rule, job, moves, now)


@entry
def commit(s: State, rule: Rule, now: float) -> None:
    """Carry out what is planned: stops and moves first, so that starts find their GPUs free; guests after hosts."""
    for k in range(s.x[N_STOPS]):
        preempt(s, rule, s.stops[k], now, 0)
    for k in range(s.x[N_PLANNED]):
        if s.starts[k, START_MOVED] == 1:
            preempt(s, rule, s.starts[k, START_JOB], now, 1)
    for turn in range(2):  # who is bound to certain GPUs sits down first
        for k in range(s.x[N_PLANNED]):
            job, host, head = s.starts[k, START_JOB], s.starts[k, START_HOST], s.starts[k, START_HEAD]
            if s.starts[k, START_MOVED] == 2 or (turn == 0 and (s.i[job, HOME] < 0 or host >= 0)):
                continue
            if host >= 0:
                head = copy_slices(s.slices, s.x, FREE_SLICE, s.i[host, SLICE])
            start(s, rule, job, head, now)
            if host >= 0:
                s.i[job, HOST] = host
            s.starts[k, START_MOVED] = 2
    if s.x[N_EVICTED] > 0:  # whoever was to lose its GPUs has stopped, or has moved
        s.x[N_EVICTED] = 0
        for k in range(s.x[N_STOPS]):
            s.i[s.stops[k], EVICTED] = 0
        for k in range(s.x[N_PLANNED]):
            s.i[s.starts[k, START_JOB], EVICTED] = 0
    s.x[N_STOPS] = 0
    s.x[N_PLANNED] = 0


@kernel
def open_idle_only(s: State) -> None:
    """Begin a walk from the end of the line: what is idle is unclaimed, everybody keeps what he has."""
    for n in range(s.node.shape[0]):
        s.open[n, UNCLAIMED] = s.open[n, IDLE_NOW] = s.node[n, NODE_FREE]
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_CLAIMED] = s.quota[q, Q_USED]
        s.quota[q, Q_STARTED] = 0
    for c in range(s.failed.shape[0]):
        s.failed[c] = 0
    s.x[LEFT], s.x[MOST_IDLE], s.x[MOST_OPEN] = s.x[IDLE], UNLIMITED, UNLIMITED
    s.x[N_STOPS] = 0
    s.x[N_PLANNED] = 0


@kernel
def _open_behind(s: State, count: int) -> None:
    """Begin a walk at the turn of the first waiting job: the running jobs in line are unclaimed, others keep what they
    have."""
    x, open_, open_host, quota = s.x, s.open, s.open_host, s.quota
    order, hot, node, host = s.order, s.hot, s.node, s.host
    x[N_STOPS] = 0
    x[N_PLANNED] = 0
    left = x[IDLE]
    for n in range(node.shape[0]):
        open_[n, UNCLAIMED] = open_[n, IDLE_NOW] = node[n, NODE_FREE]
    for n in range(node.shape[0] if x[USE_HOST] == 1 else 0):
        open_host[n, 0] = open_host[n, 1] = host[n, HOST_CPU_FREE]
        open_host[n, 2] = open_host[n, 3] = host[n, HOST_MEM_FREE]
    for q in range(quota.shape[0]):
        quota[q, Q_CLAIMED] = quota[q, Q_USED]
        quota[q, Q_STARTED] = 0
    for c in range(s.failed.shape[0]):
        s.failed[c] = 0
    for k in range(count):
        at, job = order[AT, k], order[WHO, k]
        gpus = int(hot[H_GPUS, at])
        left += gpus
        quota[int(hot[H_TENANT, at]), Q_CLAIMED] -= gpus
        if hot[H_NODE, at] >= 0:
            open_[int(hot[H_NODE, at]), UNCLAIMED] += gpus
            continue
        shift(s, job, s.i[job, SLICE], UNCLAIMED, 1)
    x[LEFT], x[MOST_IDLE] = left, UNLIMITED


@kernel
def walk_preemptive(s: State, rule: Rule, now: float, fresh: bool) -> None:
    """Merge running jobs with the first waiting jobs of each class, in order, and carry out the result.

    `fresh`: the keys of running jobs are as of now. Whoever runs ahead of the first waiting job keeps its place, so the
    walk begins there.
    """
    line_up(s)
    if not fresh:
        refresh_keys(s, rule, now)
    count = line_up_running(s, s.heap[s.cls[s.lines[0], C_OFFSET]])
    _open_behind(s, count)
    merge_and_commit(s, rule, 0, 0, count, now)


@kernel
def merge_and_commit(s: State, rule: Rule, line: int, running: int, count: int, now: float) -> None:
    """Go on with the waiting classes from `line` on and the running jobs lined up from `running` to `count`."""
    while s.x[LEFT] > 0 and line < s.x[N_LINES]:
        job = s.heap[s.cls[s.lines[line], C_OFFSET]]
        running = _keep_stretch(s, running, count, job)
        if running < count and not before_running(s.f, job, s.keys, s.order[AT, running], s.order[WHO, running]):
            _weigh_running(s, rule, running, count, now)
            running += 1
        elif visit_waiting(s, job, True, s.order[WHO], running, count):
            remove_waiting(s, job)
            advance_line(s, line)
        else:
            line += 1
    if s.x[N_PLANNED] == 0:
        return
    for k in range(running, count):
        _weigh_running(s, rule, k, count, now)
    commit(s, rule, now)


@entry
def walk_order(s: State, order: Ints, preemptive: bool, strict: bool) -> None:
    """Plan for active jobs given in order (for policies that compute their own priorities).

    Without preemption whatever runs keeps running. `strict` blocks a partition at its first job that does
    not fit, or its tenant where there is a tree of tenants. Only plans; the caller commits.
    """
    open_all(s)
    by_tenant = s.x[TENANTS] == 1
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_CLOSED] = 0
    if not preemptive:
        for k in range(len(order)):
            if s.i[order[k], STATE] == RUNNING:
                visit_running(s, order[k], order, len(order), len(order))
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
                visit_running(s, job, order, k + 1, len(order))
            continue
        part, q = s.cls[s.i[job, CLASS], C_PART], s.i[job, TENANT]
        if strict and (s.quota[q, Q_CLOSED] == 1 if by_tenant else (blocked >> part) & 1):
            if s.x[WATCH] == job:
                s.x[WATCH_CODE] = W_BLOCKED_BY_HEAD
                s.x[WATCH_FREE] = s.x[LEFT]
            continue
        if not visit_waiting(s, job, preemptive, order, k + 1, len(order)):
            s.quota[q, Q_CLOSED] = 1
            blocked |= 1 << part
