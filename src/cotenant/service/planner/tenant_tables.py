"""Tenants in the tables of the engine: what they held in the past, written in; how they stand, copied out.

The engine keeps past use as a mean of the GPUs that a tenant held, in which the past counts half after a half-life, and
goes on from there (`engine.ledger.count_use`). What tables that are laid out anew begin with comes from the accounts.
How tenants stand is copied after a decision, and said by name when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from cotenant.core import columns as col
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.tenants import Tree
from cotenant.engine.live_rows import LiveRows
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.service.store.book import Book
from cotenant.tenancy.past import decayed

PastOf = Callable[[float], Mapping[str, float]]
"""GPUs that each tenant held until a moment, as a mean that fades."""


class TenantPasts:
    """Writes the past of a tenant into the tables when these hear of it, and of all when another half-life counts."""

    def __init__(self, book: Book, tables: LiveRows, past_of: PastOf) -> None:
        self._book, self._tables, self._past_of = book, tables, past_of
        self._half_life_s, self._known = inf, 0
        self._past: Mapping[str, float] = {}
        self._at_s = 0.0

    def write(self, now_s: float) -> None:
        """Bring the tables up to now, where that is needed."""
        tree, names = self._book.tenants.tree, self._tables.tenants
        half_life_s = tree.half_life_s if tree is not None else inf
        if half_life_s != self._half_life_s:
            self._half_life_s, self._known, self._at_s = half_life_s, 0, now_s
            self._past = self._past_of(now_s) if half_life_s < inf else {}
        fades = 0.5 ** ((now_s - self._at_s) / half_life_s)
        for number in range(self._known, len(names) if half_life_s < inf else 0):
            use = self._tables.state.use[number]
            use[col.U_PAST], use[col.U_SINCE] = fades * self._past.get(names[number], 0.0), now_s
        self._known = len(names)


@dataclass(frozen=True, slots=True)
class TenantTables:
    """Copies of what the engine knows of tenants, at a moment."""

    at_s: float
    tree: Tree
    names: tuple[str, ...]
    quota: IntMatrix
    use: Matrix

    def numbers(self) -> dict[str, TenantNumbers]:
        """By name, of all tenants that have had jobs since these tables began."""
        found = {}
        columns = self.quota[:, [col.Q_LIMIT, col.Q_USED]].tolist(), self.use[:, [col.U_PAST, col.U_SINCE]].tolist()
        for name, (limit, used), (past_gpus, since_s) in zip(self.names, *columns, strict=True):
            if name:
                past_gpus = decayed(past_gpus, float(used), max(self.at_s - since_s, 0.0), self.tree.half_life_s)
                found[name] = TenantNumbers(limit, used, past_gpus)
        return found


def copied(tables: LiveRows, now_s: float) -> TenantTables | None:
    """None where there is no tree of tenants."""
    tree, names, state = tables.cluster.tenants, tables.tenants, tables.state
    if tree is None:
        return None
    return TenantTables(now_s, tree, names, state.quota[: len(names)].copy(), state.use[: len(names)].copy())
