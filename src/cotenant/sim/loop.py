"""The event loop in virtual time: the next moment at which anything happens, then one decision.

Between events progress is closed-form, so time in which nothing changes costs nothing. Rounds are visited
only while somebody waits. The loop returns to Python when it needs it (see the codes below).
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Matrix, Rule, State
from cotenant.engine.aside import set_aside
from cotenant.engine.decide import decide
from cotenant.engine.events import asks, handle, loosen, next_own_time, node_down, node_up
from cotenant.engine.giving import give_idle, gives, repeats
from cotenant.engine.keys import round_start
from cotenant.engine.ledger import begin_promised, enqueue
from cotenant.engine.whole_steps import pace_alone

FINISHED_ALL, NEEDS_DECISION, PAUSED, STUCK, NEEDS_OUTAGES, REACHED_UNTIL, NEEDS_TURNS = 0, 1, 2, 3, 4, 5, 6
OUTAGE_TIME, OUTAGE_NODE, OUTAGE_UP = 0, 1, 2


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
    s.series[at, 2] = s.x[N_WAITING] + s.x[N_ASIDE]
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
    time_s = next_own_time(s, rule)
    if s.x[NEXT_ARRIVAL] < s.f.shape[0]:
        time_s = min(time_s, s.f[s.x[NEXT_ARRIVAL], SUBMIT])
    pending = time_s < math.inf or s.x[N_WAITING] + s.x[N_ASIDE] > 0
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
        claims = s.t[NEXT_CLAIM] <= now
        loosen(s, now)
        s.t[NOW], handled = now, s.x[N_HANDLED]
        while s.x[N_EVENTS] > 0 and s.when[0] <= now:
            handle(s, rule, s.events[0], now)
            s.x[N_HANDLED] += 1
            budget -= 1
        while s.x[NEXT_OUTAGE] < outages.shape[0] and outages[s.x[NEXT_OUTAGE], OUTAGE_TIME] <= now:
            node = int(outages[s.x[NEXT_OUTAGE], OUTAGE_NODE])
            if outages[s.x[NEXT_OUTAGE], OUTAGE_UP] > 0:
                node_up(s, node)
            else:
                node_down(s, rule, node, now)
            s.x[NEXT_OUTAGE] += 1
            s.x[N_HANDLED] += 1
        while s.x[NEXT_ARRIVAL] < jobs and s.f[s.x[NEXT_ARRIVAL], SUBMIT] <= now:
            enqueue(s, rule, s.x[NEXT_ARRIVAL], now)
            s.x[NEWEST] = s.x[NEXT_ARRIVAL]
            s.x[NEXT_ARRIVAL] += 1
            s.x[ARRIVED] += 1
            s.x[N_HANDLED] += 1
            budget -= 1
        if s.x[UNSURE] > 0:
            set_aside(s, rule, now)
        speeds = s.x[ROTATES] == 1 or s.t[NEXT_WARM] <= now
        same = s.x[N_HANDLED] == handled and not claims
        quiet = speeds and same and now < s.t[NEXT_CALL]  # only a turn or a start-up is over
        if external > 0 and not quiet and asks(s, rule, now):
            if gives(s, now):
                give_idle(s, rule, now)
            elif repeats(s, now):
                s.t[NEXT_CALL] = pace_alone(s, rule, s.t[PACE_S], now)
            else:
                return NEEDS_DECISION
        if speeds:
            return NEEDS_TURNS
        if external == 0:
            decide(s, rule, now)
        if s.x[N_PROMISED] > 0:
            begin_promised(s, rule, now)
        settle_decision(s, now)
        budget -= 1
    return PAUSED
