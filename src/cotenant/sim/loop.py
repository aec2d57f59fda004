"""The event loop in virtual time: the next moment at which anything happens, then one decision.

Between events progress is closed-form, so time in which nothing changes costs nothing. Rounds are visited
only while somebody waits. The loop returns to Python when it needs it (see the codes below).
"""

from __future__ import annotations

import math

from cotenant.core.columns import (
    ARRIVED,
    ATTEMPT,
    CHECKPOINT_S,
    CROSS,
    DIRTY,
    DONE,
    END,
    EPOCH,
    EVENT,
    EVENT_KIND,
    EXTERNAL,
    FAIL,
    FAIL_AT,
    FINISH,
    FINISHED,
    GONE,
    GPUS,
    IDLE,
    LAST_SAMPLE,
    LOST,
    MEASURE_FROM,
    MEASURE_TO,
    N_BUSY,
    N_DECISIONS,
    N_EVENTS,
    N_FINISHED,
    N_HANDLED,
    N_MEASURED_LEFT,
    N_PROMISED,
    N_RUN,
    N_RUNNING,
    N_SERIES,
    N_WAITING,
    NEWEST,
    NEXT_ARRIVAL,
    NEXT_CALL,
    NEXT_OUTAGE,
    NODE_CAP,
    NODE_FAILURES,
    NODE_FREE,
    NODE_SIZE,
    NOW,
    OWES,
    PROMOTE,
    QUEUE,
    ROUND_S,
    SERIES_GAP,
    SLICE,
    SLICE_NEXT,
    SLICE_NODE,
    STAMP,
    STATE,
    SUBMIT,
    UNBIND,
    WAKES,
    WORK,
)
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Matrix, Rule, State
from cotenant.engine.decide import decide
from cotenant.engine.keys import position_of, round_number, round_start
from cotenant.engine.ledger import (
    begin_promised,
    end_suspended,
    enqueue,
    gone,
    heat,
    promote,
    relax,
    release,
    schedule_run,
)

FINISHED_ALL, NEEDS_DECISION, PAUSED, STUCK, NEEDS_OUTAGES, REACHED_UNTIL = 0, 1, 2, 3, 4, 5
OUTAGE_TIME, OUTAGE_NODE, OUTAGE_UP = 0, 1, 2


@kernel
def _end_attempt(s: State, rule: Rule, job: int, now: float) -> None:
    """An attempt of the log failed here: the job is queued again and goes on with the next attempt."""
    release(s, job, now)
    s.f[job, DONE] = s.f[job, FAIL_AT]
    s.i[job, ATTEMPT] += 1
    s.i[job, OWES] = 0
    first, count = s.attempt_of[job, 0], s.attempt_of[job, 1]
    at = s.i[job, ATTEMPT]
    s.f[job, FAIL_AT] = s.attempts[first + at, 0] if at < count else math.inf
    enqueue(s, rule, job, now)


@kernel
def _handle(s: State, rule: Rule, job: int, now: float) -> None:
    """One event of one job."""
    kind = s.i[job, EVENT_KIND]
    if kind == END:
        release(s, job, now)
        s.f[job, DONE] = s.f[job, WORK]
        s.f[job, FINISH] = now
        s.i[job, STATE] = FINISHED
        s.x[N_FINISHED] += 1
        if s.x[MEASURE_FROM] <= job <= s.x[MEASURE_TO]:
            s.x[N_MEASURED_LEFT] -= 1
    elif kind == FAIL:
        _end_attempt(s, rule, job, now)
    elif kind == CROSS:
        s.i[job, QUEUE] += 1
        s.x[EPOCH] += 1
        heat(s.f, s.i, s.slices, s.hot, s.x, job, position_of(s.run, s.x[N_RUN], job))
        schedule_run(s.f, s.i, s.events, s.x, rule.thresholds, job)
        s.x[DIRTY] = 1
    elif kind == GONE:
        gone(s, rule, job, now)
    elif kind == PROMOTE:
        promote(s, rule, job, now)
    elif kind == UNBIND:
        end_suspended(s, rule, job, now)
    else:
        relax(s, rule, job)


@kernel
def _node_down(s: State, rule: Rule, node: int, now: float) -> None:
    """A node fails: its jobs lose what they did since their last checkpoint and wait again."""
    if s.node[node, NODE_CAP] == 0:
        return
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job < 0:
            continue
        at = s.i[job, SLICE]
        while at >= 0 and s.slices[at, SLICE_NODE] != node:
            at = s.slices[at, SLICE_NEXT]
        if at < 0:
            continue
        release(s, job, now)
        done = s.f[job, DONE]
        kept = math.floor(done / rule.numbers[CHECKPOINT_S]) * rule.numbers[CHECKPOINT_S]
        at_attempt = s.i[job, ATTEMPT]
        if at_attempt > 0:
            kept = max(kept, s.attempts[s.attempt_of[job, 0] + at_attempt - 1, 0])
        s.f[job, LOST] += (done - kept) * s.i[job, GPUS]
        s.f[job, DONE] = kept
        s.i[job, OWES] = 1 if kept > 0 else 0
        enqueue(s, rule, job, now)
    s.x[IDLE] -= s.node[node, NODE_FREE]
    s.node[node, NODE_CAP] = 0
    s.node[node, NODE_FREE] = 0
    s.x[NODE_FAILURES] += 1
    s.x[DIRTY] = 1


@kernel
def _node_up(s: State, node: int) -> None:
    size = s.node[node, NODE_SIZE]
    if s.node[node, NODE_CAP] == 0:
        s.node[node, NODE_CAP] = size
        s.node[node, NODE_FREE] = size
        s.x[IDLE] += size
        s.x[STAMP] += 1
        s.x[DIRTY] = 1


@kernel
def sample(s: State, now: float) -> None:
    """Keep a point of the utilisation and queue curves; when the table is full, keep every second one."""
    if now - s.t[LAST_SAMPLE] < s.t[SERIES_GAP]:
        return
    rows = s.series.shape[0]
    if s.x[N_SERIES] == rows:
        for k in range(rows // 2):
            for c in range(4):
                s.series[k, c] = s.series[2 * k, c]
        s.x[N_SERIES] = rows // 2
        s.t[SERIES_GAP] = 2 * max(s.t[SERIES_GAP], (now - s.series[0, 0]) / rows)
    at = s.x[N_SERIES]
    s.series[at, 0] = now
    s.series[at, 1] = s.x[N_BUSY]
    s.series[at, 2] = s.x[N_WAITING]
    s.series[at, 3] = s.x[N_RUNNING]
    s.x[N_SERIES] = at + 1
    s.t[LAST_SAMPLE] = now


@entry
def settle_decision(s: State, now: float) -> None:
    """Close a decision: forget what led to it, count it, sample the curves."""
    s.x[DIRTY] = 0
    s.x[ARRIVED] = 0
    s.x[N_DECISIONS] += 1
    sample(s, now)


@kernel
def _next_time(s: State, rule: Rule, outages: Matrix) -> float:
    time_s = math.inf
    if s.x[NEXT_ARRIVAL] < s.f.shape[0]:
        time_s = s.f[s.x[NEXT_ARRIVAL], SUBMIT]
    if s.x[N_EVENTS] > 0:
        time_s = min(time_s, s.f[s.events[0], EVENT])
    if s.x[N_WAITING] > 0 and rule.numbers[ROUND_S] < math.inf and s.x[N_RUNNING] > 0:
        time_s = min(time_s, (round_number(rule.numbers[ROUND_S], s.t[NOW]) + 1) * rule.numbers[ROUND_S])
    if rule.flags[EXTERNAL] == 3 and s.x[N_WAITING] + s.x[N_RUNNING] > 0 and s.t[NEXT_CALL] > s.t[NOW]:
        time_s = min(time_s, s.t[NEXT_CALL])
    pending = time_s < math.inf or s.x[N_WAITING] > 0
    if pending and s.x[NEXT_OUTAGE] < outages.shape[0]:
        time_s = min(time_s, outages[s.x[NEXT_OUTAGE], OUTAGE_TIME])
    return float(time_s)


@entry
def run(s: State, rule: Rule, outages: Matrix, horizon: float, until: float, budget: int) -> int:
    """Advance until something needs Python, or for `budget` events and decisions. `outages` is complete up to
    `horizon`."""
    jobs = s.f.shape[0]
    external = rule.flags[EXTERNAL]
    while budget > 0:
        if s.x[N_MEASURED_LEFT] <= 0:
            return FINISHED_ALL
        now = _next_time(s, rule, outages)
        if now == math.inf:
            return STUCK if horizon == math.inf else NEEDS_OUTAGES
        if now > until:
            s.t[NOW] = until
            return REACHED_UNTIL
        if now > horizon:
            return NEEDS_OUTAGES
        if rule.numbers[ROUND_S] < math.inf and now == round_start(rule, now):
            s.x[DIRTY] = 1
            s.x[EPOCH] += 1
        s.t[NOW] = now
        while s.x[N_EVENTS] > 0 and s.f[s.events[0], EVENT] <= now:
            _handle(s, rule, s.events[0], now)
            s.x[N_HANDLED] += 1
            budget -= 1
        while s.x[NEXT_OUTAGE] < outages.shape[0] and outages[s.x[NEXT_OUTAGE], OUTAGE_TIME] <= now:
            node = int(outages[s.x[NEXT_OUTAGE], OUTAGE_NODE])
            if outages[s.x[NEXT_OUTAGE], OUTAGE_UP] > 0:
                _node_up(s, node)
            else:
                _node_down(s, rule, node, now)
            s.x[NEXT_OUTAGE] += 1
            s.x[N_HANDLED] += 1
        while s.x[NEXT_ARRIVAL] < jobs and s.f[s.x[NEXT_ARRIVAL], SUBMIT] <= now:
            enqueue(s, rule, s.x[NEXT_ARRIVAL], now)
            s.x[NEWEST] = s.x[NEXT_ARRIVAL]
            s.x[NEXT_ARRIVAL] += 1
            s.x[ARRIVED] += 1
            s.x[N_HANDLED] += 1
            budget -= 1
        if external == 3:
            idle = s.x[N_RUNNING] == 0 and s.x[N_WAITING] > 0
            if rule.flags[WAKES] == 1 or now >= s.t[NEXT_CALL] or idle:
                return NEEDS_DECISION
        elif external == 2 or (external == 1 and s.x[N_WAITING] > 0):
            return NEEDS_DECISION
        if external == 0:
            decide(s, rule, now)
            if s.x[N_PROMISED] > 0:
                begin_promised(s, rule, now)
        settle_decision(s, now)
        budget -= 1
    return PAUSED
