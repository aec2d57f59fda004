"""What happens to jobs and nodes, taken into the tables: the engine's stage `observe`.

The simulator's events come from the heap of what jobs do next, those of the live service from the world. Both end here.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.heaps import drop_event, remove_waiting
from cotenant.engine.keys import empty_place, position_of, round_number, set_keys
from cotenant.engine.leaving import begin_leaving, bind_late, end_suspended, forget_home, gone
from cotenant.engine.ledger import (
    come_back,
    dequeue,
    enqueue,
    heat_cost,
    promote,
    relax,
    release,
    rerun,
    set_leaf,
    stand_in_line,
    start,
)
from cotenant.engine.letting_in import keep_out, recount, recount_of
from cotenant.engine.listing import list_demoted
from cotenant.engine.openings import forget_node
from cotenant.engine.sharing import count_cells


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


@entry
def handle(s: State, rule: Rule, job: int, now: float) -> None:
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
        list_demoted(s, job)
        s.x[EPOCH] += 1
        rerun(s, rule, job, position_of(s.run, s.x[N_RUN], job))
        s.x[DIRTY] = 1
    elif kind == GONE:
        gone(s, rule, job, now)
    elif kind == PROMOTE:
        promote(s, rule, job, now)
    elif kind == UNBIND:
        end_suspended(s, rule, job, now)
    else:
        relax(s, rule, job)


@entry
def node_down(s: State, rule: Rule, node: int, now: float) -> None:
    """A node fails: its jobs lose what they did since their last checkpoint and wait again."""
    if s.node[node, NODE_CAP] == 0:
        return
    logging = s.x[LOGGING]
    s.x[LOGGING] = 0  # nobody decides this
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job < 0 or not _sits_on(s, s.i[job, SLICE], node):
            continue
        if s.i[job, PROMISED] == 1:
            unpromise(s, rule, job, now)
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
    if s.x[LAGS] == 1:
        _gone_with_node(s, rule, node, now)
    s.x[LOGGING] = logging
    s.x[IDLE] -= s.node[node, NODE_FREE]
    s.node[node, NODE_CAP] = 0
    s.node[node, NODE_FREE] = 0
    forget_node(s, node)
    _note_shut(s, node, 1)
    s.x[NODE_FAILURES] += 1
    s.x[DIRTY] = 1


@kernel
def _gone_with_node(s: State, rule: Rule, node: int, now: float) -> None:
    """Whoever was about to leave a node, or stood still on it, is gone with it."""
    for job in range(s.x[NEXT_ARRIVAL]):
        if s.i[job, HOME] >= 0 and _sits_on(s, s.i[job, HOME], node):
            end_suspended(s, rule, job, now)
            gone(s, rule, job, now)
        elif s.i[job, LEAVING] == 1 and _sits_on(s, s.i[job, OLD], node):
            gone(s, rule, job, now)


@kernel
def _sits_on(s: State, head: int, node: int) -> bool:
    at = head
    while at >= 0:
        if s.slices[at, SLICE_NODE] == node:
            return True
        at = s.slices[at, SLICE_NEXT]
    return False


@entry
def node_up(s: State, node: int) -> None:
    """A node is back."""
    size = s.node[node, NODE_SIZE]
    if s.node[node, NODE_CAP] == 0:
        s.node[node, NODE_CAP] = size
        s.node[node, NODE_FREE] = size
        forget_node(s, node)
        _note_shut(s, node, 0)
        s.x[IDLE] += size
        s.x[STAMP] += 1
        s.x[DIRTY] = 1


@kernel
def _note_shut(s: State, node: int, shut: int) -> None:
    """A node is shut, or open again: what it can hold counts when it is asked who could run at all."""
    s.x[N_SHUT] += shut - s.node[node, NODE_SHUT]
    s.node[node, NODE_SHUT] = shut
    s.x[NODES] += 1
    s.x[UNSURE] = 2


@kernel
def asks(s: State, rule: Rule, now: float) -> bool:
    """Whether a policy in Python is to be asked after what happened: at its own times only, or at every event."""
    external = rule.flags[EXTERNAL]
    if s.x[NEW_TREE] == 1:
        return True
    if external == 3:
        idle = s.x[N_RUNNING] == 0 and s.x[N_WAITING] > 0
        return bool(rule.flags[WAKES] == 1 or now >= s.t[NEXT_CALL] or idle)
    return bool(external == 2 or (external == 1 and s.x[N_WAITING] > 0))


@entry
def next_own_time(s: State, rule: Rule) -> float:
    """When something happens by itself: an event of a job, a new round while somebody waits, a time of the policy."""
    time_s = math.inf
    if s.x[N_EVENTS] > 0:
        time_s = s.when[0]
    if s.x[N_WAITING] > 0 and rule.numbers[ROUND_S] < math.inf and s.x[N_RUNNING] > 0:
        time_s = min(time_s, (round_number(rule.numbers[ROUND_S], s.t[NOW]) + 1) * rule.numbers[ROUND_S])
    if rule.flags[EXTERNAL] == 3 and s.x[N_WAITING] + s.x[N_RUNNING] > 0 and s.t[NEXT_CALL] > s.t[NOW]:
        time_s = min(time_s, s.t[NEXT_CALL])
    if s.x[ROTATES] == 1:
        time_s = min(time_s, s.t[NEXT_TURN])
    if s.x[N_WAITING] > 0 and s.t[NEXT_LOOSE] > s.t[NOW]:
        time_s = min(time_s, s.t[NEXT_LOOSE])
    if s.t[NEXT_WARM] > s.t[NOW]:
        time_s = min(time_s, s.t[NEXT_WARM])
    if s.x[N_WAITING] > 0 and s.t[NEXT_CLAIM] > s.t[NOW]:
        time_s = min(time_s, s.t[NEXT_CLAIM])
    return float(time_s)


@kernel
def loosen(s: State, now: float) -> bool:
    """Whether a minimum run is over that held somebody back: whoever had it may fall behind, or has to give back what
    it borrowed."""
    due = s.t[NEXT_CLAIM] <= now or s.x[NEW_TREE] == 1
    if s.t[NEXT_CLAIM] <= now:
        s.t[NEXT_CLAIM] = math.inf
    if s.t[NEXT_LOOSE] > now:
        return bool(due)
    s.t[NEXT_LOOSE] = math.inf
    s.x[DIRTY] = 1
    s.x[EPOCH] += 1
    return True


@entry
def begin_step(s: State, rule: Rule, now: float) -> bool:
    """Move the clock and let everything happen that jobs do by themselves; whether anything is due."""
    due = rule.flags[EXTERNAL] == 3 and s.t[NEXT_CALL] <= now
    if rule.numbers[ROUND_S] < math.inf and round_number(rule.numbers[ROUND_S], now) > round_number(
        rule.numbers[ROUND_S], s.t[NOW]
    ):
        s.x[DIRTY] = 1
        s.x[EPOCH] += 1
        due = s.x[N_WAITING] > 0
    due = loosen(s, now) or due
    s.t[NOW] = now
    while s.x[N_EVENTS] > 0 and s.when[0] <= now:
        handle(s, rule, s.events[0], now)
        due = True
    return bool(due)


@entry
def wants_decision(s: State, rule: Rule, now: float) -> bool:
    """`asks`, for Python."""
    return bool(rule.flags[EXTERNAL] == 0 or asks(s, rule, now))


# -- what the world tells of live jobs -----------------------------------------------------------------------------


@entry
def arrive(s: State, rule: Rule, job: int, now: float) -> None:
    """A job begins to wait."""
    enqueue(s, rule, job, now)
    s.x[NEWEST] = job
    s.x[ARRIVED] += 1


@entry
def ran_out(s: State, rule: Rule, job: int, now: float, waits: bool, lost: float) -> None:
    """The process of a job is gone, and with it the last `lost` seconds of its work; it waits again, or does not.

    One that was leaving for others waits already, perhaps with GPUs promised to it.
    """
    if s.i[job, STATE] == PINNED:
        unpin(s, rule, job)
    if s.i[job, HOME] >= 0:
        forget_home(s, rule, job, now)
    if s.i[job, LEAVING] == 1:
        gone(s, rule, job, now)
    elif s.i[job, STATE] == RUNNING and s.i[job, PROMISED] == 0:
        release(s, job, now)
        s.i[job, STATE] = HELD
    _recount_shut(s)
    s.f[job, DONE] = max(s.f[job, DONE] - lost, 0.0)
    s.f[job, LOST] += lost * s.i[job, GPUS]
    s.i[job, OWES] = 1 if s.f[job, DONE] > 0 else 0
    if not waits:
        withdraw(s, rule, job, now)
    elif s.i[job, STATE] == HELD:
        enqueue(s, rule, job, now)
    elif s.i[job, STATE] == WAITING:
        rekey(s, rule, job, now)


@entry
def rekey(s: State, rule: Rule, job: int, now: float) -> None:
    """Something that a waiting job is sorted by has changed."""
    remove_waiting(s, job)
    set_keys(s.f, s.i, rule, job, now)
    stand_in_line(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, s.f[job, BELIEF])
    s.x[DIRTY] = 1


@entry
def reheat(s: State) -> None:
    """What is believed of running jobs has changed."""
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0:
            s.x[ROUND] = -1
            s.hot[H_LEFT, k] = s.f[job, BELIEF] - s.f[job, DONE]
            s.hot[H_WARM, k] = max(s.f[job, WARM], s.f[job, RATED])
            heat_cost(s.f, s.i, s.hot, s.x, job, k)


@entry
def stands_still(s: State, rule: Rule, job: int, now: float) -> None:
    """A job that was told to leave was suspended, whatever was planned: it is bound to the GPUs that it had."""
    if s.i[job, HOME] < 0 and s.i[job, OLD] >= 0:
        if s.i[job, STATE] == RUNNING and s.i[job, PROMISED] == 1:  # it was promised others meanwhile
            unpromise(s, rule, job, now)
        if s.i[job, STATE] == WAITING:
            bind_late(s, rule, job, now)
    gone(s, rule, job, now)


@entry
def adopt(s: State, rule: Rule, job: int, head: int, since: float, now: float) -> None:
    """A waiting job is in fact running on the slices of `head`, since a moment in the past."""
    s.i[job, OWES], s.i[job, LEAVING] = 0, 0
    start(s, rule, job, head, now)
    if s.i[job, PROMISED] == 1:  # others have not left yet, and yet it runs
        s.i[job, PROMISED] = 0
        s.x[N_PROMISED] -= 1
    s.f[job, SINCE] = since
    s.f[job, WARM] = s.f[job, RATED] = now
    s.f[job, ATTAINED] -= now - since
    s.f[job, OCCUPIED] -= now - since
    rerun(s, rule, job, s.x[N_RUN] - 1)  # it started last


@entry
def adopt_suspended(s: State, rule: Rule, job: int, head: int, now: float) -> None:
    """A waiting job in fact stands still on the slices of `head`."""
    s.i[job, OLD], s.i[job, LEAVING] = head, 1
    count_cells(s.slices, s.gpu_first, s.gpu_leaving, head, 1)
    stands_still(s, rule, job, now)


@entry
def withdraw(s: State, rule: Rule, job: int, now: float) -> None:
    """A job may not run now: it leaves its GPUs, gives up a promise, or does not wait any longer."""
    state = s.i[job, STATE]
    if state == PINNED:
        unpin(s, rule, job)
        state = RUNNING
    if state == RUNNING and s.i[job, PROMISED] == 1:
        release(s, job, now)
    elif state == RUNNING and s.x[LAGS] == 1:
        begin_leaving(s, job, now, 1)
    elif state == RUNNING:
        release(s, job, now)
    elif state == WAITING:
        dequeue(s, rule, job)
        s.f[job, WAITED] += now - s.f[job, SINCE]
    elif state == ASIDE:
        come_back(s, job, now)
    s.f[job, SINCE] = now
    s.i[job, STATE] = HELD
    s.x[DIRTY] = 1
    _recount_shut(s)


@entry
def unpromise(s: State, rule: Rule, job: int, now: float) -> None:
    """A job loses the GPUs that it was promised, and waits."""
    release(s, job, now)
    enqueue(s, rule, job, now)


@entry
def pin(s: State, rule: Rule, job: int, now: float) -> None:
    """A running job that may not be stopped: nobody plans with it, or with its GPUs."""
    at = s.i[job, SLICE]
    while at >= 0:
        _unpromise_on(s, rule, s.slices[at, SLICE_NODE], s.slices[at, SLICE_MASK], now)
        at = s.slices[at, SLICE_NEXT]
    empty_place(s, job)
    s.x[N_RUNNING] -= 1
    drop_event(s, job)
    s.i[job, STATE] = PINNED
    _hold_fast(s, job, 1)
    recount_of(s, job)


@entry
def unpin(s: State, rule: Rule, job: int) -> None:
    """It may be stopped again, or is about to end."""
    keep_out(s, job)
    s.i[job, STATE] = RUNNING
    _hold_fast(s, job, -1)
    s.run[s.x[N_RUN]] = job
    s.i[job, RUN_AT] = s.x[N_RUN]
    rerun(s, rule, job, s.x[N_RUN])
    s.x[N_RUN] += 1
    s.x[N_RUNNING] += 1
    s.x[EPOCH] += 1  # whoever waits may displace it again
    recount_of(s, job)


@kernel
def _hold_fast(s: State, job: int, sign: int) -> None:
    """What a job holds cannot be had by stopping it (+1), or can again (-1)."""
    if s.x[TENANTS] > 0:
        pool = s.node[s.slices[s.i[job, SLICE], SLICE_NODE], NODE_POOL]
        leaf, last = s.cls[s.i[job, CLASS], C_LEAF], s.pool.shape[0]
        s.asked.running[leaf, pool] -= sign * s.i[job, GPUS]
        s.asked.running[leaf, last] += sign * s.i[job, GPUS]


@kernel
def _recount_shut(s: State) -> None:
    """Whoever leaves a node that is shut leaves nothing to others."""
    for n in range(s.node.shape[0]):
        if s.node[n, NODE_SHUT] == 1 and s.node[n, NODE_FREE] > 0:
            recount(s, n)


@kernel
def _unpromise_on(s: State, rule: Rule, n: int, mask: int, now: float) -> None:
    """Nobody may have these GPUs of a node: whoever was promised them waits again."""
    for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
        place = 0
        while place < s.gpu.shape[1]:
            job = s.gpu[g, place]
            if (mask >> (g - s.gpu_first[n])) & 1 and job >= 0 and s.i[job, PROMISED] == 1:
                unpromise(s, rule, job, now)
            else:
                place += 1


@entry
def shut_node(s: State, rule: Rule, n: int, shut: bool, now: float) -> None:
    """Nothing may start on a node any more, or again: whoever was promised its GPUs waits for others."""
    if shut:
        _unpromise_on(s, rule, n, -1, now)
    _note_shut(s, n, 1 if shut else 0)
    for k in range(s.x[N_RUN] if shut else 0):
        job = s.run[k]
        if job >= 0 and s.i[job, PROMISED] == 1 and _sits_on(s, s.i[job, SLICE], n):
            release(s, job, now)
            enqueue(s, rule, job, now)
    recount(s, n)
