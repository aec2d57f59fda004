"""Shortest remaining service first."""

from __future__ import annotations

from cotenant.core.columns import BY_REMAINING_GPU
from cotenant.policies.base import OrderPolicy


class Srsf(OrderPolicy):
    """By believed remaining time times GPUs, with preemption."""

    name = "srsf"
    source = "Tiresias, NSDI'19, section 3.1"
    order = (BY_REMAINING_GPU,)
    preemptive = True
