"""Shortest remaining time first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_REMAINING
from cotenant.core.spec import Value
from cotenant.policies.base import WEIGHING, OrderPolicy


class Srtf(OrderPolicy):
    """By believed remaining time, with preemption."""

    name = "srtf"
    source = "Schrage, 1968; oracle baseline of Tiresias, NSDI'19"
    order = (BY_REMAINING,)
    preemptive = True
    defaults: ClassVar[dict[str, Value]] = WEIGHING
