"""What tenants held in the past, for tables that are laid out anew: from the accounts.

The engine keeps it as a mean of the GPUs that a tenant held, in which the past counts half after a half-life, and goes
on from there (`engine.ledger.count_use`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from cotenant.core import columns as col
from cotenant.engine.live_rows import LiveRows
from cotenant.service.store.book import Book

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
