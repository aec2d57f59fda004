"""Training beside jobs that nobody may stop: the one place that lets a policy's plan onto their GPUs, or does not.

Before a decision the guard opens GPUs to whoever of those that wait could join there, and shuts the others. To a policy
an open one is a GPU like any other. What it plans is shown to the guard before anything is carried out; if somebody is
refused, those GPUs are shut and the policy is asked again, so that the refused find other places. Whoever waits behind
them and may join is asked for afterwards, without those.
Policies that name pools have their places found by the engine: what it found is undone in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.errors import InputError
from cotenant.core.plan import Places, Plan, Why
from cotenant.core.state import State, copy_state
from cotenant.core.workload import Ints
from cotenant.engine.check import check_plan
from cotenant.engine.observe import places_of, running_rows
from cotenant.engine.plans import carry_out_plan
from cotenant.engine.taking_in import take_in

if TYPE_CHECKING:
    from cotenant.engine.cycle import Engine

Wanted = Mapping[int, Places]


class Guard(Protocol):
    """Whoever knows what pinned jobs can bear beside them."""

    left: int  # guests that had to leave so far

    def waiting(self) -> list[int]:
        """Jobs that wait to be pinned somewhere, whatever the policy; in this order."""

    def place_of(self, row: int, state: State, shares: bool, now_s: float) -> tuple[Places, frozenset[int]] | None:
        """Where such a job goes, and who has to leave for it; None while there is no such place."""

    def to_leave(self, state: State, now_s: float) -> list[int]:
        """Those who have joined pinned jobs and must leave them."""

    def open_to(self, state: State, waiting: Ints, now_s: float) -> bool:
        """Open the GPUs that some of those who wait may join, shut the others; whether any are open."""

    def refused(self, state: State, wanted: Wanted, now_s: float) -> dict[int, tuple[int, ...]]:
        """Of those who are to run somewhere, whoever may not, and beside which pinned jobs."""

    def shut(self, state: State, pinned: Ints) -> None:
        """Nobody more may join these."""

    def answers(self, state: State) -> Why:
        """Why jobs may join nobody, as of the last decision; empty where they may, or there is nobody."""


def decide_guarded(engine: Engine, guard: Guard, now_s: float) -> None:
    """Stop whoever must leave, ask a policy that plans, and once more for those who wait behind who was refused."""
    if leaving := guard.to_leave(engine.state, now_s):
        stop_guests(engine, leaving, now_s)
        guard.left += len(leaving)
    rows = engine.active_rows().copy()
    refused = _ask(engine, guard, rows, now_s)
    if not refused:
        return
    next_s, said = float(engine.state.t[col.NEXT_CALL]), engine.said()
    rows = engine.active_rows().copy()
    still = np.isin(rows, list(refused)) & (engine.state.i[rows, col.STATE] == col.WAITING)
    others = rows[~still]
    if still.any() and _open_to(engine, guard, others, now_s):
        _ask(engine, guard, others, now_s)
        engine.say_also(*said)
        engine.state.t[col.NEXT_CALL] = min(next_s, float(engine.state.t[col.NEXT_CALL]))


def place_waiting(engine: Engine, guard: Guard, now_s: float) -> None:
    """Give their GPUs to those whose places are not the policy's to choose.

    Where quotas, cores or memory do not allow it they wait as any other job does.
    """
    state = engine.state
    for row in guard.waiting() if not state.x[col.TENANTS] else ():
        if state.i[row, col.STATE] != col.WAITING or state.i[row, col.LEAVING]:
            continue
        if (found := guard.place_of(row, state, engine.traits.shares, now_s)) is None:
            continue
        places, stops = found
        plan = Plan({row: places}, keep=True, stop=stops)
        try:
            carry_out_plan(state, engine.rule, plan, engine.view(now_s), "services", now_s)
        except InputError:
            continue
        guard.left += len(stops)
        take_in(state, engine.rule, Event(Kind.PINNED, row), now_s)  # unless others have to leave first
        engine.policy.refresh()


def stop_guests(engine: Engine, rows: list[int], now_s: float) -> None:
    """Stop some jobs in the way of all stops, whatever the policy."""
    plan, view = Plan(keep=True, stop=frozenset(rows)), engine.view(now_s)
    carry_out_plan(engine.state, engine.rule, plan, view, "services", now_s)
    engine.policy.refresh()


def _ask(engine: Engine, guard: Guard, rows: Ints, now_s: float) -> set[int]:
    """Decide about some jobs until nobody is refused any more; who was."""
    opened = _open_to(engine, guard, rows, now_s)
    found: set[int] = set()
    while opened:
        ask = _by_pools if engine.traits.names_pools else _by_places
        refused = ask(engine, guard, rows, now_s)
        if not refused:
            return found
        found |= refused.keys()
        guard.shut(engine.state, np.unique(np.concatenate([np.array(who, np.int64) for who in refused.values()])))
        engine.policy.refresh()
        opened = bool(engine.state.i[engine.state.i[:, col.STATE] == col.PINNED, col.LETS_IN].any())
    engine.carry_out(engine.view_of(rows, now_s), now_s)
    return found


def _by_places(engine: Engine, guard: Guard, rows: Ints, now_s: float) -> dict[int, tuple[int, ...]]:
    view = engine.view_of(rows, now_s)
    plan = engine.plan(view)
    refused = guard.refused(engine.state, check_plan(engine.state, plan, view, engine.name), now_s)
    if not refused:
        engine.carry_out(view, now_s, plan)
    return refused


def _by_pools(engine: Engine, guard: Guard, rows: Ints, now_s: float) -> dict[int, tuple[int, ...]]:
    before = copy_state(engine.state)
    engine.carry_out(engine.view_of(rows, now_s), now_s)
    state = engine.state
    refused = guard.refused(state, {row: places_of(state, row) for row in running_rows(state).tolist()}, now_s)
    if refused:
        _restore(state, before)
    return refused


def _restore(state: State, before: State) -> None:
    """The tables as they were."""
    for now, then in zip(state, before, strict=True):
        for part, old in zip(now, then, strict=True) if isinstance(now, tuple) else ((now, then),):
            part[...] = old


def _open_to(engine: Engine, guard: Guard, rows: Ints, now_s: float) -> bool:
    """Open GPUs to those of the rows that wait; a policy is told when there are others than before."""
    state, before = engine.state, engine.state.node[:, col.NODE_CAP].copy()
    opened = guard.open_to(state, rows[state.i[rows, col.STATE] == col.WAITING], now_s)
    if (state.node[:, col.NODE_CAP] != before).any():
        engine.policy.refresh()
    return opened
