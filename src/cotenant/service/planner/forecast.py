"""The live state played forward in the simulator: when each job is expected to finish."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import Event
from cotenant.engine.leaving import gone
from cotenant.engine.ledger import begin_promised, schedule_run
from cotenant.service.planner.session import Session
from cotenant.sim import loop
from cotenant.sim.stall import Stall


def forecast(session: Session, events: Sequence[Event], now_s: float) -> dict[str, float | None]:
    """Expected finish per job, Unix seconds, if nobody else arrives, beliefs are true and leaving takes no time."""
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
        schedule_run(state.f, state.i, state.events, state.x, rule.thresholds, row)
    state.x[col.NEXT_ARRIVAL] = len(state.f)
    state.x[col.MEASURE_FROM], state.x[col.MEASURE_TO] = 0, len(state.f)
    state.x[col.N_MEASURED_LEFT] = int((state.i[active, col.STATE] != col.PINNED).sum())
    _play(session, now_s)
    return {
        job: float(state.f[row, col.FINISH]) if np.isfinite(state.f[row, col.FINISH]) else None
        for job, row in session.follower.row_of.items()
    }


def _play(session: Session, now_s: float) -> None:
    engine = session.engine
    state = engine.state
    state.x[col.DIRTY] = 1
    engine.cycle(now_s)
    loop.settle_decision(state, now_s)
    none, stall = np.zeros((0, 3)), Stall(state)
    while True:
        code = loop.run(state, engine.rule, none, np.inf, np.inf, 20_000)
        if code == loop.NEEDS_DECISION:
            now = float(state.t[col.NOW])
            engine.cycle(now)
            loop.settle_decision(state, now)
        elif code != loop.PAUSED:
            break
        if stall.at() >= 0:  # jobs stop each other before they have restored: whoever is left has no finish
            break
