"""What a stop gains by the lights of the order that makes it, written down beside what it costs.

Both in seconds on the GPUs of whoever is stopped. Gained is by how much longer that one is believed to need its GPUs
than whoever comes instead: remaining time, or attained service where nobody knows durations (whoever has run for long
is believed to run for as long again), or the service per completion of a Gittins index. Where who started first comes
first, it is by how much sooner the other did. An owner's priority outweighs everything.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.keys import attained_s, cost_now, gittins_key, needs_s


@kernel
def _own_column(rule: Rule, place: int) -> int:
    """The order columns of the policy itself, without the tier."""
    return int(rule.columns[place + (1 if rule.columns[0] == BY_TIER else 0)])


@kernel
def believed_s(s: State, rule: Rule, column: int, job: int, now: float) -> float:
    """For how long a job is believed to need its GPUs, by the measure of an order column; NaN where it has none."""
    if column in (BY_REMAINING, BY_REMAINING_GPU):
        return needs_s(s.f, s.i, job, now)
    if column == BY_ATTAINED_GPU:
        return attained_s(s.f, s.i, rule, job, now)
    if column == BY_GITTINS:
        index = -gittins_key(s.f, s.i, rule, job, now)
        return 1.0 / index / s.i[job, GPUS] if index > 0 else math.inf
    if column == BY_QUEUE:
        return float(s.f[job, ATTAINED] + (now - s.f[job, SINCE] if s.i[job, STATE] == RUNNING else 0.0))
    return math.nan


@kernel
def _decisive_column(s: State, rule: Rule, job: int, other: int, now: float) -> int:
    """The order column by which a waiting job comes before a running one: the first in which they differ."""
    column = _own_column(rule, 0)
    if column != BY_QUEUE or s.i[job, QUEUE] != s.i[other, QUEUE]:
        return column
    column = _own_column(rule, 1)
    same = column == BY_GITTINS and gittins_key(s.f, s.i, rule, job, now) == gittins_key(s.f, s.i, rule, other, now)
    return _own_column(rule, 2) if same else column


@kernel
def gain_s(s: State, rule: Rule, job: int, other: int, moved: bool, now: float) -> float:
    """What is gained when a running job leaves its GPUs to a waiting one; who is moved does not wait for its end."""
    if s.f[other, TIER] < s.f[job, TIER] and rule.columns[0] == BY_TIER:
        return math.inf
    column = _decisive_column(s, rule, job, other, now)
    if column == BY_FIRST_START:
        return float(s.f[job, FIRST] - s.f[other, FIRST])
    mine = believed_s(s, rule, column, job, now)
    if moved or mine == math.inf:
        return mine
    by_gpu = 1.0 if column == BY_REMAINING else s.i[other, GPUS] / s.i[job, GPUS]
    return mine - believed_s(s, rule, column, other, now) * by_gpu


@kernel
def _touch(s: State, one: int, two: int) -> bool:
    """Whether two lists of slices have a node in common."""
    while one >= 0:
        at = two
        while at >= 0:
            if s.slices[at, SLICE_NODE] == s.slices[one, SLICE_NODE]:
                return True
            at = s.slices[at, SLICE_NEXT]
        one = s.slices[one, SLICE_NEXT]
    return False


@kernel
def _for_whom(s: State, job: int) -> int:
    """The last waiting job that is planned to start where a job runs, or else at all; -1 if nobody is."""
    anywhere = -1
    for k in range(s.x[N_PLANNED] - 1, -1, -1):
        if s.starts[k, START_MOVED] == 0:
            if _touch(s, s.i[job, SLICE], s.starts[k, START_HEAD]):
                return int(s.starts[k, START_JOB])
            if anywhere < 0:
                anywhere = s.starts[k, START_JOB]
    return int(anywhere)


@kernel
def worth_moving(s: State, rule: Rule, job: int, now: float) -> bool:
    """Whether a job that could stand still on its GPUs rather begins anew elsewhere."""
    other = _for_whom(s, job)
    return bool(other < 0 or gain_s(s, rule, job, other, True, now) > cost_now(s.f, s.i, job, now, True))


@kernel
def weigh_stop(s: State, rule: Rule, job: int, moved: bool, now: float) -> None:
    """Write down what the stop of a running job gains and costs."""
    if s.i[job, PROMISED] == 1:
        return
    other = _for_whom(s, job)
    gain = math.nan if other < 0 else gain_s(s, rule, job, other, moved, now)
    s.f[job, GAIN], s.f[job, COST] = gain, cost_now(s.f, s.i, job, now, moved or s.x[FULL] == 1)
    if gain < math.inf:
        s.x[N_WEIGHED] += 1
        s.t[GAINED_S] += gain
        s.t[PAID_S] += s.f[job, COST]
