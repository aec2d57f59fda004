"""Least attained service."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.spec import Value
from cotenant.core.state import Rule, make_rule
from cotenant.policies.base import WEIGHING, Context, OrderPolicy


class Las(OrderPolicy):
    """By GPU time attained up to the last round boundary, with preemption; needs no durations."""

    name = "las"
    source = "2D-LAS of Tiresias, NSDI'19, in rounds as in Gavel, OSDI'20"
    order = (col.BY_ATTAINED_GPU,)
    preemptive = True
    defaults: ClassVar[dict[str, Value]] = {"round": 0.0, **WEIGHING}

    def rule(self, context: Context) -> Rule:
        """Attained service stands still between rounds, so that ties do not swap all the time."""
        round_s = self.number("round") or context.round_s
        if not round_s > 0:
            raise InputError(f"policy 'las': round={round_s:g} must be above 0 seconds")
        rule = make_rule(self.order, {col.PREEMPTIVE: 1, col.STABLE: 1}, {col.ROUND_S: round_s})
        return self.weighed(rule, context)
