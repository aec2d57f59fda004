"""A policy that ranks jobs by how much service others took (Tiresias-G) hears of those that have ended meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from cotenant.core import columns as col
from cotenant.core.state import Rule
from cotenant.engine.cycle import Engine
from cotenant.engine.live_rows import LiveRows
from cotenant.policies.base import Context
from cotenant.service.options import Options
from cotenant.service.planner.facts import services_of
from cotenant.service.store.book import Book

EVERY_S = 60.0


def context_of(book: Book, options: Options) -> Context:
    """What a policy may know beforehand: what became of jobs that have ended."""
    return Context(round_s=options.round_s, services_gpu_s=services_of(book))


class Relearned:
    """Renews the rule of such a policy, at most once a minute; others have no samples in theirs."""

    def __init__(self, engine: Engine, tables: LiveRows, rule: Callable[[], Rule], now_s: float) -> None:
        self._engine, self._tables, self._rule, self._last_s = engine, tables, rule, now_s

    def look(self, now_s: float) -> None:
        """Take the services of all who have ended by now."""
        if not len(self._engine.rule.samples) or now_s < self._last_s + EVERY_S:
            return
        self._last_s = now_s
        self._engine.rule = self._tables.rule = self._rule()
        self._tables.state.hot[col.H_BELOW] = -1.0
