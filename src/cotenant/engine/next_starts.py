"""Whom the engine would start if running jobs ended one after the other: asked of a copy of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cotenant.core import columns as col
from cotenant.core.decision import CHANGES, Change, Event, Kind
from cotenant.core.plan import Places
from cotenant.core.state import copy_state
from cotenant.engine.cycle import Engine
from cotenant.engine.decide import decide
from cotenant.engine.ledger import begin_promised
from cotenant.engine.observe import places_of
from cotenant.engine.taking_in import take_in


def next_starts(engine: Engine, ends: Iterable[int], now_s: float) -> Iterator[list[tuple[int, Places]]]:
    """For each of these rows who starts where when it ends after those before it. Only for orders of columns."""
    state = copy_state(engine.state)
    for row in ends:
        state.x[col.N_LOG] = state.x[col.LOGGING] = 0
        take_in(state, engine.rule, Event(Kind.OVER, row), now_s)
        state.x[col.LOGGING] = 1
        decide(state, engine.rule, now_s)
        begin_promised(state, engine.rule, now_s)
        state.x[col.DIRTY] = state.x[col.ARRIVED] = 0
        changes = state.log[: state.x[col.N_LOG]].tolist()
        yield [(job, places_of(state, job)) for kind, job, _ in changes if CHANGES[kind] == Change.START]
