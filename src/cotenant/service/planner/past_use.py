"""What tenants held in the past, for tables that are laid out anew: from the attempts that the book still knows.

The engine keeps it as a mean of the GPUs that a tenant held, in which the past counts half after a half-life; here the
same is worked out at once for all that happened before (`engine.ledger.count_use` goes on from there).
"""

from __future__ import annotations

from math import inf

from cotenant.core import columns as col
from cotenant.engine.live_rows import LiveRows
from cotenant.service.store.book import Book


def past_use(book: Book, half_life_s: float, now_s: float) -> dict[str, float]:
    """GPUs that each tenant held, as a mean that fades. Time suspended within an attempt counts as if before it."""
    found: dict[str, float] = {}
    for job in book.jobs.values():
        for attempt in job.attempts:
            end_s = now_s if attempt.ended_s is None else attempt.ended_s
            begin_s = end_s - attempt.active_s(now_s)
            weight = 0.5 ** ((now_s - end_s) / half_life_s) - 0.5 ** ((now_s - begin_s) / half_life_s)
            gpus = sum(len(indexes) for _, indexes in attempt.gpus)
            found[job.tenant] = found.get(job.tenant, 0.0) + gpus * weight
    return found


class TenantPasts:
    """Writes the past of a tenant into the tables when these hear of it, and of all when another half-life counts."""

    def __init__(self, book: Book, tables: LiveRows) -> None:
        self._book, self._tables = book, tables
        self._half_life_s, self._known = inf, 0
        self._past: dict[str, float] = {}
        self._at_s = 0.0

    def write(self, now_s: float) -> None:
        """Bring the tables up to now, where that is needed."""
        tree, names = self._book.tenants.tree, self._tables.tenants
        half_life_s = tree.half_life_s if tree is not None else inf
        if half_life_s != self._half_life_s:
            self._half_life_s, self._known, self._at_s = half_life_s, 0, now_s
            self._past = past_use(self._book, half_life_s, now_s) if half_life_s < inf else {}
        fades = 0.5 ** ((now_s - self._at_s) / half_life_s)
        for number in range(self._known, len(names) if half_life_s < inf else 0):
            use = self._tables.state.use[number]
            use[col.U_PAST], use[col.U_SINCE] = fades * self._past.get(names[number], 0.0), now_s
        self._known = len(names)
