"""EASY backfill."""

from __future__ import annotations

from cotenant.core import columns as col
from cotenant.core.state import Rule, make_rule
from cotenant.core.view import View
from cotenant.policies.base import Context, OrderPolicy


class Easy(OrderPolicy):
    """By submit time; others may pass the head of the line if they do not delay its reservation."""

    name = "easy"
    source = "Lifka, JSSPP'95"

    def rule(self, context: Context) -> Rule:
        """Submit order with a reservation for the head."""
        return make_rule((), {col.EASY: 1}, {})

    def why(self, view: View) -> str:
        """Its place in the line, and what passing it depends on."""
        takes = f"it is believed to take {view.remaining_s[0]:.0f} s, and may pass the head only if that delays nobody"
        return f"{super().why(view)}; {takes}"
