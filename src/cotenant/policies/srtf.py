"""Shortest remaining time first."""

from __future__ import annotations

from cotenant.core.columns import BY_REMAINING
from cotenant.policies.base import OrderPolicy


class Srtf(OrderPolicy):
    """By believed remaining time, with preemption."""

    name = "srtf"
    source = "Schrage, 1968; oracle baseline of Tiresias, NSDI'19"
    order = (BY_REMAINING,)
    preemptive = True
