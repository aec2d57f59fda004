"""EASY backfill."""

from __future__ import annotations

from cotenant.core import columns as col
from cotenant.core.state import Rule, make_rule
from cotenant.policies.base import Context, OrderPolicy


class Easy(OrderPolicy):
    """By submit time; others may pass the head of the line if they do not delay its reservation."""

    name = "easy"
    source = "Lifka, JSSPP'95"

    def rule(self, context: Context) -> Rule:
        """Submit order with a reservation for the head."""
        return make_rule((), {col.EASY: 1}, {})
