"""The live state played forward in the simulator: when each job is expected to finish."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.service.planner.live import Tables
from cotenant.sim import loop
from cotenant.sim.stall import Stall
from cotenant.sim.truth import PairTruth, SharedTruth


def forecast(tables: Tables) -> dict[str, float | None]:
    """Expected finish per job, Unix seconds, if nobody else arrives and beliefs are true."""
    state = tables.state
    if tables.pair is not None:  # a pair that is about to be split goes on as if it took turns
        tables.engine.rates = PairTruth(np.where(tables.pair > 0, tables.pair, 0.5))
    if tables.together is not None:
        tables.engine.rates = SharedTruth(tables.together)
    state.x[col.DIRTY] = 1
    tables.engine.cycle(tables.now_s)
    loop.settle_decision(state, tables.now_s)
    none, stall = np.zeros((0, 3)), Stall(state)
    while True:
        code = loop.run(state, tables.engine.rule, none, np.inf, np.inf, 20_000)
        if code == loop.NEEDS_DECISION:
            now = float(state.t[col.NOW])
            tables.engine.cycle(now)
            loop.settle_decision(state, now)
        elif code != loop.PAUSED:
            break
        if stall.at() >= 0:  # jobs stop each other before they have restored: whoever is left has no finish
            break
    finish = state.f[:, col.FINISH]
    ids = tables.jobs.ids.tolist()
    return {job: at if np.isfinite(at) else None for job, at in zip(ids, finish.tolist(), strict=True)}
