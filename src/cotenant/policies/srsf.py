"""Shortest remaining service first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_REMAINING_GPU
from cotenant.core.spec import Value
from cotenant.policies.base import WEIGHING, OrderPolicy


class Srsf(OrderPolicy):
    """By believed remaining time times GPUs, with preemption."""

    name = "srsf"
    source = "Tiresias, NSDI'19, section 3.1"
    order = (BY_REMAINING_GPU,)
    preemptive = True
    defaults: ClassVar[dict[str, Value]] = WEIGHING
