"""What starting, stopping and ending a job changes: GPUs, cores, quotas, clocks, the job's next event."""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.heaps import drop_event, push_waiting, remove_waiting, set_event
from cotenant.engine.keys import compact_running, empty_place, note_shield, set_keys, with_slack, work_done
from cotenant.engine.listing import list_last, list_waiting, listed_key
from cotenant.engine.openings import forget_nodes_of, get_up, sit_down
from cotenant.engine.queues import crossing_s, stand_in_queue
from cotenant.engine.sharing import is_clear, occupy, take_host, vacate
from cotenant.engine.slices import bind_class, free_bound, free_slices, unbind
from cotenant.engine.weighing import loses_work, stop_cost
from cotenant.placement.fit import fewest_nodes
from cotenant.tenancy.past import decayed


@kernel
def count_busy(x: Ints, t: Floats, now: float, gpus: int) -> None:
    """Integrate busy GPU-seconds up to now, before `gpus` more (or fewer) are busy."""
    t[BUSY_GPU_S] += (now - t[BUSY_SINCE]) * x[N_BUSY]
    t[BUSY_SINCE] = now
    x[N_BUSY] += gpus


@entry
def set_leaf(s: State, job: int, value: float) -> None:
    """Tell the backfill tree of the job's class that the job waits (its belief) or not (infinity)."""
    c = s.i[job, CLASS]
    base, leaves = s.cls[c, C_TREE], s.cls[c, C_LEAVES]
    if leaves == 0:  # the class of a suspended job has no tree
        return
    at = leaves + s.i[job, RANK]
    s.tree[base + at] = value
    at >>= 1
    while at >= 1:
        s.tree[base + at] = min(s.tree[base + 2 * at], s.tree[base + 2 * at + 1])
        at >>= 1


@entry
def stand_in_line(s: State, job: int) -> None:
    """Put a job with fresh keys into the heap of its class; what was counted for it before no longer holds."""
    c = s.i[job, CLASS]
    if s.cls[c, C_HEAD] == job:
        s.cls[c, C_HEAD] = -1
    if s.x[N_SHUT] > 0 or s.cls[c, C_POOLS] == 0:
        s.x[UNSURE] = max(s.x[UNSURE], 1)
    push_waiting(s, job)


@entry
def resize(s: State, job: int, gpus: int) -> None:
    """Another number of GPUs, for a job that holds none; cores and memory go with them, so much per GPU."""
    before = max(s.i[job, GPUS], 1)
    s.f[job, CPUS], s.f[job, MEM] = s.f[job, CPUS] / before * gpus, s.f[job, MEM] / before * gpus
    s.i[job, GPUS] = gpus


@kernel
def ask_anew(s: State, job: int) -> None:
    """What a job was given is over: it asks for what it asked for."""
    asked = s.cls[s.i[job, CLASS], C_GPUS]
    if s.i[job, GPUS] != asked:
        resize(s, job, asked)


@kernel
def come_back(s: State, job: int, now: float) -> None:
    """A job is no longer set aside; it has waited meanwhile."""
    s.x[N_ASIDE] -= 1
    s.x[N_BACK] += 1
    s.f[job, WAITED] += now - s.f[job, SINCE]


@entry
def enqueue(s: State, rule: Rule, job: int, now: float) -> None:
    """A job begins to wait: keys, heap of its class, and the event that may change its standing."""
    if s.i[job, STATE] == ASIDE:
        come_back(s, job, now)
    s.i[job, STATE] = WAITING
    s.f[job, SINCE] = now
    s.x[N_WAITING] += 1
    twin = s.cls[s.i[job, CLASS], C_TWIN]
    if twin < -1:
        s.i[job, CLASS] = -2 - twin
    if s.i[job, HOME] >= 0:
        bind_class(s, job)
    elif s.x[LAGS] == 1:
        ask_anew(s, job)
    if rule.flags[WEIGHS] == 1 and len(rule.thresholds) > 0:
        stand_in_queue(s.f, s.i, rule.thresholds, job, 0.0, 0.0)
    list_waiting(s, job, now)
    set_keys(s.f, s.i, rule, job, now)
    stand_in_line(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, s.f[job, BELIEF])
    if rule.numbers[KNOB] < math.inf or rule.numbers[RELAX_S] < math.inf or s.i[job, LEAVING] == 1:
        schedule_wait(s, rule, job)


@entry
def schedule_wait(s: State, rule: Rule, job: int) -> None:
    """Set the event that may change the standing of a waiting job: promotion or relaxed placement."""
    time_s, kind = math.inf, PROMOTE
    if s.i[job, LEAVING] == 1:
        time_s, kind = s.f[job, LEAVES], GONE
    if s.i[job, QUEUE] > 0 and rule.numbers[KNOB] < math.inf:
        promoted = s.f[job, SINCE] + rule.numbers[KNOB] * s.f[job, ATTAINED]
        if promoted < time_s:
            time_s, kind = promoted, PROMOTE
    if rule.numbers[RELAX_S] < math.inf and s.cls[s.i[job, CLASS], C_TWIN] >= 0:
        relax = s.f[job, SINCE] + rule.numbers[RELAX_S]
        if relax < time_s:
            time_s, kind = relax, RELAX
    if s.i[job, HOME] >= 0 and s.i[job, LEAVING] == 0 and not math.isnan(s.f[job, BARRED]):
        lost = s.f[job, LOST] / s.i[job, GPUS]  # and the longer, the more it has lost before
        unbind = s.f[job, BARRED] + min(s.f[job, DONE] - s.f[job, SAVED], s.t[PATIENCE]) + lost
        if unbind < time_s:
            time_s, kind = unbind, UNBIND
    if time_s < math.inf:
        set_event(s, job, time_s, kind)
    else:
        drop_event(s, job)


@entry
def bar(s: State, rule: Rule, job: int, barred: bool, now: float) -> None:
    """Note since when a suspended job could have started elsewhere, but not where it is bound; or that it can."""
    if barred == math.isnan(s.f[job, BARRED]):
        s.f[job, BARRED] = now if barred else math.nan
        schedule_wait(s, rule, job)


@kernel
def dequeue(s: State, rule: Rule, job: int) -> None:
    """A job stops waiting."""
    if s.i[job, HEAP_AT] >= 0:
        remove_waiting(s, job)
    s.x[N_WAITING] -= 1
    if rule.flags[EASY] == 1:
        set_leaf(s, job, math.inf)
    drop_event(s, job)


@entry
def schedule_run(s: State, rule: Rule, job: int) -> None:
    """Set the next event of a running job: its end, the end of a failing attempt, or a queue crossing.

    One that was only promised its GPUs has none of these; it may still have to leave its last ones.
    """
    f, i = s.f, s.i
    if i[job, PROMISED] == 1:
        set_event(s, job, f[job, LEAVES], GONE)
        return
    target, kind = f[job, WORK], END
    if f[job, FAIL_AT] < target:
        target, kind = f[job, FAIL_AT], FAIL
    time_s = max(f[job, WARM], f[job, RATED]) + (target - f[job, DONE]) / f[job, SPEED]
    if i[job, QUEUE] < len(rule.thresholds):
        crossing = crossing_s(f, i, rule, job, s.x[FULL] == 1)
        if crossing < time_s:
            time_s, kind = crossing, CROSS
    set_event(s, job, time_s, kind)


@kernel
def _take_gpus(s: State, job: int, head: int, sign: int) -> int:
    """Take (+1) or give back (-1) GPUs of a list of slices that nobody shares; how many."""
    at = head
    while at >= 0:
        n = s.slices[at, SLICE_NODE]
        s.node[n, NODE_FREE] -= sign * s.slices[at, SLICE_GPUS]
        if sign > 0:
            sit_down(s, job, at)
        else:
            get_up(s, job, at)
        at = s.slices[at, SLICE_NEXT]
    s.x[IDLE] -= sign * s.i[job, GPUS]
    return int(s.i[job, GPUS])


@entry
def count_use(s: State, q: int, now: float) -> None:
    """Bring what a tenant has used up to now, before what it holds changes; the past counts half after a half-life."""
    elapsed, held = now - s.use[q, U_SINCE], float(s.quota[q, Q_USED])
    if elapsed <= 0:
        return
    s.use[q, U_SINCE] = now
    s.use[q, U_USED] += held * elapsed
    s.use[q, U_BORROWED] += max(held - s.quota[q, Q_GUARANTEED], 0.0) * elapsed
    s.use[q, U_PAST] = decayed(s.use[q, U_PAST], held, elapsed, s.t[HALF_LIFE_S])


@kernel
def hold(s: State, job: int, sign: int, now: float) -> None:
    """A job takes (+1) or gives back (-1) its GPUs: what its tenant holds, by row of the tree and pool."""
    if s.x[TENANTS] > 0:
        count_use(s, s.i[job, TENANT], now)
        pool = s.node[s.slices[s.i[job, SLICE], SLICE_NODE], NODE_POOL]
        s.asked.running[s.cls[s.i[job, CLASS], C_LEAF], pool] += sign * s.i[job, GPUS]


@entry
def start(s: State, rule: Rule, job: int, head: int, now: float) -> None:
    """A waiting job is given the slices of `head`; it begins at once unless others still have to leave them.

    Where jobs take turns it is decided at the end of the step whose turn it is. A suspended job that is
    given its own GPUs goes on there; it is never given others.
    """
    dequeue(s, rule, job)
    if s.x[SHARING] == 1:
        busy = occupy(s.i, s.node, s.slices, s.gpu, s.gpu_first, s.gpu_leaving, s.gpu_bound, s.x, job, head)
    else:
        busy = _take_gpus(s, job, head, 1)
    count_busy(s.x, s.t, now, busy)
    s.i[job, SLICE] = head
    hold(s, job, 1, now)
    nodes = take_host(s.f, s.i, s.host, s.slices, s.quota, s.x, job, head, 1)
    pool = s.node[s.slices[head, SLICE_NODE], NODE_POOL]
    spread = 1 if nodes > 1 and nodes > fewest_nodes(s.node, s.pool, pool, s.i[job, GPUS]) else 0
    s.i[job, STATE] = RUNNING
    list_last(s, job)
    if rule.flags[WEIGHS] == 1 and len(rule.thresholds) > 0:
        stand_in_queue(s.f, s.i, rule.thresholds, job, 0.0, stop_cost(s.f, s.i, job, s.x[FULL] == 1))
    s.f[job, WAITED] += now - s.f[job, SINCE]
    s.f[job, SINCE] = now
    s.f[job, RATED] = now
    s.f[job, SPEED] = s.f[job, ALONE] = s.speed[s.i[job, SPEED_ROW], s.pool[pool, POOL_TYPE], spread]
    if s.x[LAGS] == 1 and (s.x[ROTATES] == 1 or not may_begin(s, job)):
        s.i[job, PROMISED] = 1
        s.x[N_PROMISED] += 1
        s.f[job, WARM] = math.inf
        note(s, T_PROMISE, job, 0)
    else:
        _begin(s, job, now)
    if s.x[N_RUN] > s.run.shape[0] - 2 or s.x[N_RUN] > 2 * s.x[N_RUNNING] + 16:
        compact_running(s)
    s.run[s.x[N_RUN]] = job
    s.i[job, RUN_AT] = s.x[N_RUN]
    heat(s.f, s.i, s.slices, s.hot, s.x, job, s.x[N_RUN])
    schedule_run(s, rule, job)
    s.x[N_RUN] += 1
    s.x[N_RUNNING] += 1
    s.x[N_STARTED_GPUS] += s.i[job, GPUS]
    s.t[LAST_KEY] = max(s.t[LAST_KEY], with_slack(s.f[job, KEY1]))
    note_shield(s, rule, job, now)


@kernel
def note(s: State, kind: int, job: int, detail: int) -> None:
    """Write a transition down, where anybody wants to know."""
    if s.x[LOGGING] == 1 and s.x[N_LOG] < s.log.shape[0]:
        row = s.x[N_LOG]
        s.log[row, 0], s.log[row, 1], s.log[row, 2] = kind, job, detail
        s.x[N_LOG] = row + 1


@kernel
def may_begin(s: State, job: int) -> bool:
    """Whether a job has left its last GPUs, and others have left those that it was given."""
    return bool(s.i[job, LEAVING] == 0 and is_clear(s.slices, s.gpu_first, s.gpu_leaving, s.i[job, SLICE]))


@kernel
def _begin(s: State, job: int, now: float) -> None:
    """It has its GPUs: the clocks of the run start."""
    s.i[job, STARTS] += 1
    if math.isnan(s.f[job, FIRST]):
        s.f[job, FIRST] = now
    if s.i[job, HOME] >= 0:
        s.f[job, WARM] = now + s.f[job, RESUME]
        unbind(s, job)
        note(s, T_RESUME, job, 0)
        return
    s.f[job, SAVED] = s.f[job, DONE]
    s.f[job, WARM] = now + (s.f[job, START_UP] + (s.f[job, RESTORE] if s.i[job, OWES] == 1 else 0.0))
    note(s, T_START, job, 0)


@entry
def begin_promised(s: State, rule: Rule, now: float) -> None:
    """Let everybody begin whose GPUs have become free. Where jobs take turns, `turns` says whose turn it is."""
    for k in range(s.x[N_RUN] if s.x[ROTATES] == 0 else 0):
        job = s.run[k]
        if job >= 0 and s.i[job, PROMISED] == 1 and may_begin(s, job):
            begin_now(s, rule, job, k, now)


@kernel
def begin_now(s: State, rule: Rule, job: int, k: int, now: float) -> None:
    """The job at position k, which was promised its GPUs, has them."""
    s.i[job, PROMISED] = 0
    s.x[N_PROMISED] -= 1
    s.f[job, WAITED] += now - s.f[job, SINCE]
    s.f[job, SINCE] = s.f[job, RATED] = now
    _begin(s, job, now)
    rerun(s, rule, job, k)
    note_shield(s, rule, job, now)


@entry
def rerun(s: State, rule: Rule, job: int, k: int) -> None:
    """The run of the job at position k has changed: its hot row and its next event are made anew."""
    if k < s.x[N_KEPT]:
        s.x[LINED] = 0
    s.t[LAST_KEY] = math.inf
    forget_nodes_of(s, job)
    heat(s.f, s.i, s.slices, s.hot, s.x, job, k)
    schedule_run(s, rule, job)


@entry
def heat(f: Matrix, i: IntMatrix, slices: IntMatrix, hot: Matrix, x: Ints, job: int, k: int) -> None:
    """Write the hot row of the running job at position k, from which every walk computes its keys."""
    hot[H_LEFT, k] = f[job, BELIEF] - f[job, DONE]
    hot[H_WARM, k] = max(f[job, WARM], f[job, RATED])
    hot[H_SPEED, k] = f[job, SPEED]
    hot[H_GPUS, k] = i[job, GPUS]
    hot[H_ATTAINED, k] = f[job, ATTAINED]
    hot[H_SINCE, k] = f[job, SINCE]
    hot[H_QUEUE, k] = i[job, QUEUE]
    hot[H_FIRST, k] = f[job, FIRST]
    hot[H_LISTED, k] = listed_key(f, i, job)
    hot[H_TENANT, k] = i[job, TENANT]
    hot[H_BELOW, k] = hot[H_WITHIN, k] = hot[H_NOTED, k] = -1.0
    heat_cost(f, i, hot, x, job, k)
    head = i[job, SLICE]
    one_node = slices[head, SLICE_NEXT] < 0 and x[USE_HOST] == 0
    hot[H_NODE, k] = slices[head, SLICE_NODE] if one_node else -1


@kernel
def heat_cost(f: Matrix, i: IntMatrix, hot: Matrix, x: Ints, job: int, k: int) -> None:
    """The part of it that is about what stopping the job costs."""
    hot[H_COST, k] = stop_cost(f, i, job, x[FULL] == 1)
    hot[H_RISK, k] = 1.0 if loses_work(i, job, x[FULL] == 1) else 0.0
    hot[H_BEGAN, k] = f[job, WARM]


@kernel
def count_standing(s: State, rule: Rule, now: float) -> None:
    """Nobody more can stand still, or somebody can again: that changes what stops cost."""
    full = 1 if s.x[LAGS] == 1 and free_bound(s) < 0 else 0
    if full == s.x[FULL]:
        return
    s.x[FULL] = full
    s.x[EPOCH] += 1
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0 and s.i[job, RUNG] == 1 and s.i[job, PROMISED] == 0:
            if rule.flags[WEIGHS] == 1 and len(rule.thresholds) > 0:
                cost = stop_cost(s.f, s.i, job, full == 1)
                stand_in_queue(s.f, s.i, rule.thresholds, job, now - s.f[job, SINCE], cost)
            rerun(s, rule, job, k)


@kernel
def release(s: State, job: int, now: float) -> None:
    """A running job leaves its GPUs at once: clocks are settled, slices go back, the window of the Gantt is fed."""
    free_slices(s, let_go_of(s, job, now))


@kernel
def let_go_of(s: State, job: int, now: float) -> int:
    """The same, but for the list of slices, which is returned. A promise that is taken back settles no run."""
    head = s.i[job, SLICE]
    if s.i[job, PROMISED] == 1:
        s.f[job, WAITED] += now - s.f[job, SINCE]
        s.i[job, PROMISED] = 0
        s.x[N_PROMISED] -= 1
        note(s, T_WITHDRAW, job, 0)
    else:
        s.f[job, DONE] = min(work_done(s.f, s.i, job, now), s.f[job, WORK])
        elapsed = now - s.f[job, SINCE]
        restoring = min(now, s.f[job, WARM]) - s.f[job, RATED]
        if restoring > 0:
            s.f[job, LOST] += restoring * s.i[job, GPUS]
        if now >= s.f[job, WARM]:
            s.i[job, OWES] = 0
        s.f[job, OCCUPIED] += elapsed
        s.f[job, ATTAINED] += elapsed
        if now > s.t[WINDOW_FROM] and s.f[job, SINCE] < s.t[WINDOW_TO]:
            _keep_segments(s, job, head, now)
    if s.x[SHARING] == 1:
        busy = vacate(s.i, s.node, s.slices, s.gpu, s.gpu_first, s.x, job, head)
    else:
        busy = _take_gpus(s, job, head, -1)
    count_busy(s.x, s.t, now, -busy)
    hold(s, job, -1, now)
    take_host(s.f, s.i, s.host, s.slices, s.quota, s.x, job, head, -1)
    s.i[job, SLICE] = -1
    empty_place(s, job)
    s.x[N_RUNNING] -= 1
    s.x[STAMP] += 1
    s.x[DIRTY] = 1
    drop_event(s, job)
    return int(head)


@kernel
def _keep_segments(s: State, job: int, head: int, now: float) -> None:
    while head >= 0 and s.x[N_SEGMENTS] < s.segments.shape[0]:
        row = s.x[N_SEGMENTS]
        s.segments[row, 0] = job
        s.segments[row, 1] = s.slices[head, SLICE_NODE]
        s.segments[row, 2] = s.slices[head, SLICE_GPUS]
        s.segments[row, 3] = s.f[job, SINCE]
        s.segments[row, 4] = now
        s.x[N_SEGMENTS] += 1
        head = s.slices[head, SLICE_NEXT]


@kernel
def promote(s: State, rule: Rule, job: int, now: float) -> None:
    """A starved job goes back to the first queue with a fresh priority clock; its progress is untouched."""
    remove_waiting(s, job)
    s.i[job, QUEUE] = 0
    s.f[job, ATTAINED] = 0.0
    list_last(s, job)
    set_keys(s.f, s.i, rule, job, now)
    stand_in_line(s, job)
    schedule_wait(s, rule, job)
    s.x[DIRTY] = 1


@kernel
def relax(s: State, rule: Rule, job: int) -> None:
    """A job that has waited long enough may be placed anywhere: it moves to the twin of its class."""
    remove_waiting(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, math.inf)
    s.i[job, CLASS] = s.cls[s.i[job, CLASS], C_TWIN]
    stand_in_line(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, s.f[job, BELIEF])
    schedule_wait(s, rule, job)
    s.x[DIRTY] = 1
