"""Nobody is displaced inside a tenant that does not let its jobs be (`preempts: false`), whatever a plan says.

A running job of such a tenant that a plan would stop, or begin anew elsewhere, goes on where it is. Whoever was to have
its GPUs, or would pass a limit beside it, stays as it is too: it goes on waiting, or running where it runs. Where all
stay as they are every limit holds, so this comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Plan
from cotenant.core.state import State
from cotenant.core.view import View
from cotenant.engine.check import Wanted, held_by, on_hosts, over_nodes, size_of


def let_stay(state: State, plan: Plan, wanted: Wanted, view: View) -> tuple[Plan, Wanted]:
    """A plan that was checked, and who is to run where by it, such that nobody of these tenants is broken off."""
    calm = state.x[col.TENANTS] == 1 and state.quota[:, col.Q_STAYS].any()
    stay = {row: view.places(row) for row in _broken_off(state, wanted, view)} if calm else {}
    if not stay:
        return plan, wanted
    running, laid = set(view.rows[view.running].tolist()), {**wanted, **stay}
    while (row := next(_in_the_way(state, plan, laid, stay, view), -1)) >= 0:
        del laid[row]
        if row in running:
            stay[row] = laid[row] = view.places(row)
    return replace(plan, terms={row: terms for row, terms in plan.terms.items() if row not in stay}), laid


def _broken_off(state: State, wanted: Wanted, view: View) -> Iterator[int]:
    """Running jobs of these tenants that would lose their GPUs; whoever only changes its size goes on."""
    runs, elastic = view.rows[view.running], view.facts.elastic
    for row in runs[state.quota[state.i[runs, col.TENANT], col.Q_STAYS] == 1].tolist():
        goes_on = row in wanted and elastic is not None and elastic[row]
        if not (goes_on or state.i[row, col.PROMISED] or sorted(wanted.get(row, ())) == sorted(view.places(row))):
            yield row


def _in_the_way(state: State, plan: Plan, laid: Wanted, stay: Wanted, view: View) -> Iterator[int]:
    """Rows that would start or move where others stay, or beyond a limit; the last come first."""
    comers = [row for row in sorted(laid, reverse=True) if row not in stay and laid[row] != view.places(row)]
    taken: dict[int, int] = {}
    for places in stay.values():
        for node, _, mask in places:
            taken[node] = taken.get(node, 0) | mask
    yield from (row for row in comers if any(taken.get(node, 0) & mask for node, _, mask in laid[row]))
    full = np.asarray(on_hosts(state, laid)[1].any(axis=1))
    if not state.x[col.SHARING]:
        full[list(over_nodes(state, laid))] = True
    yield from (row for row in comers if any(full[node] for node, _, _ in laid[row]))
    over = held_by(state, laid, plan) > state.quota[:, col.Q_LIMIT]
    more = (row for row in comers if size_of(laid[row]) > size_of(view.places(row)))
    yield from (row for row in more if over[state.i[row, col.TENANT]])
