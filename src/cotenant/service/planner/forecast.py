"""The live state played forward in the simulator: when each job is expected to finish."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import Event
from cotenant.core.jit_later import LATER
from cotenant.engine.leaving import gone
from cotenant.engine.ledger import begin_promised, schedule_run
from cotenant.service.facade import WhatIfWatch
from cotenant.service.planner.session import Session
from cotenant.sim import loop
from cotenant.sim.stall import Stall

_LOOK_EVENTS = 500  # between two looks at the clock
_LONG_S = 2.0  # from then on compiled kernels pay


def forecast(session: Session, events: Sequence[Event], now_s: float, watch: WhatIfWatch) -> dict[str, float | None]:
    """Expected finish per job, Unix seconds, if nobody else arrives, beliefs are true and leaving takes no time.

    Jobs that have not finished when time is up have none, and `watch` names the policy as partial.
    """
    engine = session.engine
    session.begin_forecast(events, now_s)
    state, rule = engine.state, engine.rule
    rows = np.arange(len(session.tables))
    active = rows[np.isin(state.i[rows, col.STATE], (col.WAITING, col.RUNNING, col.PINNED))]
    state.f[rows, col.WORK] = np.maximum(state.f[rows, col.BELIEF], state.f[rows, col.DONE])
    state.x[col.LAGS] = state.x[col.LOGGING] = state.x[col.ROTATES] = 0
    for row in active.tolist():
        gone(state, rule, row, now_s)
    begin_promised(state, rule, now_s)
    for row in active[state.i[active, col.STATE] == col.RUNNING].tolist():
        schedule_run(state, rule, row)
    state.x[col.NEXT_ARRIVAL] = len(state.f)
    state.x[col.MEASURE_FROM], state.x[col.MEASURE_TO] = 0, len(state.f)
    state.x[col.N_MEASURED_LEFT] = int((state.i[active, col.STATE] != col.PINNED).sum())
    watch.policy, watch.done, watch.jobs = session.policy_name, 0, int(state.x[col.N_MEASURED_LEFT])
    if not _play(session, now_s, watch):
        watch.partial.append(session.policy_name)
    return {
        job: float(state.f[row, col.FINISH]) if np.isfinite(state.f[row, col.FINISH]) else None
        for job, row in session.follower.row_of.items()
    }


def _play(session: Session, now_s: float, watch: WhatIfWatch) -> bool:
    """Whether it came to its end in time."""
    began_s = time.monotonic()
    engine = session.engine
    state = engine.state
    state.x[col.DIRTY] = 1
    engine.cycle(now_s)
    loop.settle_decision(state, now_s)
    none, stall = np.zeros((0, 3)), Stall(state)
    while True:
        code = loop.run(state, engine.rule, none, np.inf, np.inf, _LOOK_EVENTS)
        watch.done = watch.jobs - int(state.x[col.N_MEASURED_LEFT])
        if code == loop.NEEDS_DECISION:
            now = float(state.t[col.NOW])
            engine.cycle(now)
            loop.settle_decision(state, now)
        elif code == loop.NEEDS_TURNS:
            engine.settle(float(state.t[col.NOW]))
        elif code != loop.PAUSED:
            return True
        if stall.at() >= 0:  # jobs stop each other before they have restored: whoever is left has no finish
            return True
        took_s = time.monotonic() - began_s
        if took_s > watch.budget_s:
            return False
        if took_s > _LONG_S:
            LATER.want()
