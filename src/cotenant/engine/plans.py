"""Whole plans of Python policies: checked against the cluster, then turned into stops and starts.

A plan that passes a limit is an error of the policy, told in one line (`check`); nothing is changed then. What is left
is the difference to what runs: a job that stays where it is goes on, an elastic one that changes its GPUs does too,
after a pause; whoever else moves is stopped and started.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.core import columns as col
from cotenant.core.plan import ALONE, Places, Plan
from cotenant.core.state import Rule, State
from cotenant.core.view import View
from cotenant.engine.check import changed_by, check_plan, check_starts, memory_gib, only_shares, only_starts, size_of
from cotenant.engine.leaving import end_suspended, preempt
from cotenant.engine.ledger import bar, resize
from cotenant.engine.observe import pieces_of
from cotenant.engine.resizing import go_on, lay_slices, let_go
from cotenant.engine.staying import let_stay
from cotenant.engine.walk import commit

Start = tuple[int, Places, int]
"""A row, where it is to be, and 1 where it runs elsewhere now."""


def carry_out_plan(state: State, rule: Rule, plan: Plan, view: View, name: str, now_s: float) -> None:
    """Check a whole plan, then turn the difference to what runs into stops and starts."""
    exact = bool(state.x[col.SHARING])
    if plan.keep and not plan.run and not plan.stop and only_shares(state, plan.terms):
        for row, terms in plan.terms.items():
            state.f[row, col.SHARE] = terms.share
        return
    if only_starts(state, plan, view):
        starting = check_starts(state, plan, view, name)
        if exact:
            _write_terms(plan, [*starting, *(plan.terms.keys() - starting.keys())], list(starting), state, view)
        _lay_down([], [(row, places, 0) for row, places in sorted(starting.items())], state)
        commit(state, rule, now_s)
        return
    named = changed_by(state, plan, view)
    if named is not None:
        starts = _starting(sorted(named, key=view.at), named, view, exact)
        stops: list[int] = []
        starts = _whole(starts, stops, state)
        _write_terms(plan, named, [row for row, _, _ in starts], state, view)
        _lay_down(stops, starts, state)
        commit(state, rule, now_s)
        return
    plan, wanted = let_stay(state, plan, check_plan(state, plan, view, name), view)
    stops, starts = _difference(wanted, view, exact)
    starts = starts if not state.x[col.LAGS] else _at_home(starts, wanted, state, rule, now_s)
    starts, resized = _resized(starts, state, view)
    starts = _whole(starts, stops, state)
    if exact:  # before anybody leaves: what was agreed with those who run is theirs until then
        _write_terms(plan, wanted, [row for row, _, _ in starts], state, view)
    if state.x[col.LAGS]:  # whoever changes its size leaves, and has its new GPUs as soon as it has left
        for row, places in resized:
            preempt(state, rule, row, now_s, 2)
            resize(state, row, size_of(places))
            starts.append((row, places, 0))
        resized = []
    for row, places in resized:
        let_go(state, rule, row, size_of(places), now_s)
    _lay_down(stops, starts, state)
    commit(state, rule, now_s)
    for row, places in resized:
        go_on(state, rule, row, lay_slices(state, places), float(plan.pause_s.get(row, 0.0)), now_s)


def _lay_down(stops: list[int], starts: list[Start], state: State) -> None:
    """Write down who stops and who starts where, to be carried out."""
    state.stops[: len(stops)] = stops
    state.x[col.N_STOPS], state.x[col.N_PLANNED] = len(stops), len(starts)
    for at, (row, places, moved) in enumerate(starts):
        state.starts[at] = row, lay_slices(state, places), moved, -1


def _at_home(starts: list[Start], wanted: dict[int, Places], state: State, rule: Rule, now_s: float) -> list[Start]:
    """Suspended jobs go on where they stand, if nobody else is planned there; else they wait, until they are ended."""
    kept: list[Start] = []
    taken: dict[int, int] = {}
    for row, places in wanted.items():
        free = state.i[row, col.HOME] < 0 or state.i[row, col.STATE] == col.RUNNING
        if free or sorted(pieces_of(state, int(state.i[row, col.HOME]))) == sorted(places):
            for node, _, mask in places:
                taken[node] = taken.get(node, 0) | mask
    for row, places, moved in starts:
        head = int(state.i[row, col.HOME])
        if head < 0:
            kept.append((row, places, moved))
            continue
        if moved:  # it stands still where it is to have its next turn: elsewhere it begins anew
            preempt(state, rule, row, now_s, 1)
            end_suspended(state, rule, row, now_s)
            if size_of(places) == state.i[row, col.GPUS]:
                kept.append((row, places, 0))
            continue
        home = pieces_of(state, head)
        barred = sorted(home) != sorted(places) and (
            size_of(home) != size_of(places) or any(taken.get(node, 0) & mask for node, _, mask in home)
        )
        barred = barred or any(not _within(state, node, mask) for node, _, mask in home)
        bar(state, rule, row, barred, now_s)
        if not barred:
            kept.append((row, home, moved))
            for node, _, mask in home:
                taken[node] = taken.get(node, 0) | mask
    return kept


def _within(state: State, node: int, mask: int) -> bool:
    """Whether these GPUs may be given away: the node is open, and nobody is pinned to them."""
    first = int(state.gpu_first[node])
    users = (int(state.gpu[first + k, 0]) for k in range(int(state.node[node, col.NODE_SIZE])) if (mask >> k) & 1)
    return state.node[node, col.NODE_CAP] > 0 and all(row < 0 or state.i[row, col.STATE] != col.PINNED for row in users)


def _starting(rows: Iterable[int], wanted: dict[int, Places], view: View, exact: bool) -> list[Start]:
    """Who of these starts, or goes on elsewhere (1), and where."""
    starts: list[Start] = []
    running = view.running
    for row in rows:
        places = wanted[row]
        if not running[view.at(row)]:
            starts.append((row, places, 0))
        elif sorted(_seen(places, exact)) != sorted(_seen(view.places(row), exact)):
            starts.append((row, places, 1))
    return starts


def _difference(wanted: dict[int, Places], view: View, exact: bool) -> tuple[list[int], list[Start]]:
    """Who stops, and who starts where (1: it runs elsewhere now)."""
    stops = [row for row in view.rows[view.running].tolist() if row not in wanted]
    return stops, _starting((row for row in view.rows.tolist() if row in wanted), wanted, view, exact)


def _resized(starts: list[Start], state: State, view: View) -> tuple[list[Start], list[tuple[int, Places]]]:
    """Elastic jobs that run go on elsewhere without a stop; those that start get the size of their place."""
    elastic = view.facts.elastic
    if elastic is None:
        return starts, []
    for row, places, moved in starts:
        if elastic[row] and not moved:
            resize(state, row, size_of(places))
    rest = [item for item in starts if not (item[2] and elastic[item[0]])]
    return rest, [(row, places) for row, places, moved in starts if moved and elastic[row]]


def _whole(starts: list[Start], stops: list[int], state: State) -> list[Start]:
    """Who runs with another size than it asked for keeps that only where it is: elsewhere it would have to begin with
    what it asked for, so it stops and waits for that."""
    asked = {row: int(state.cls[state.i[row, col.CLASS], col.C_GPUS]) for row, _, moved in starts if moved}
    broken = [row for row, places, _ in starts if asked.get(row, size_of(places)) != size_of(places)]
    stops += broken
    return [start for start in starts if start[0] not in broken] if broken else starts


def _seen(places: Places, exact: bool) -> list[tuple[int, ...]]:
    return [place if exact else place[:2] for place in places]


def _write_terms(plan: Plan, wanted: Iterable[int], starts: list[int], state: State, view: View) -> None:
    """What was agreed with each job; jobs that go on unnamed keep what they have."""
    new = set(starts)
    for row in wanted:
        terms = plan.terms.get(row)
        if terms is None:
            if row not in new:
                continue
            terms = ALONE
        if row in new:
            state.i[row, col.LEVEL] = terms.level
        state.f[row, col.GPU_GIB] = memory_gib(state, terms, row, view)
        state.f[row, col.SHARE], state.f[row, col.CAP] = terms.share, terms.cap
        if state.i[row, col.STATE] == col.RUNNING:  # what it holds now changes sides at once
            counted = int(state.i[row, col.OPPORTUNISTIC]) - int(terms.opportunistic)
            state.quota[state.i[row, col.TENANT], col.Q_USED] += counted * state.i[row, col.GPUS]
        state.i[row, col.OPPORTUNISTIC] = int(terms.opportunistic)
        state.i[row, [col.TURN, col.SLICED, col.COLUMN]] = terms.turn, terms.sliced, terms.column
