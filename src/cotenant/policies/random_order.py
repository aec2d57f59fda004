"""A random order: the floor that every policy should beat."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_DRAW
from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class RandomOrder(OrderPolicy):
    """By a number drawn once per job at arrival (from --seed), without preemption."""

    name = "random"
    source = "the floor"
    order = (BY_DRAW,)
    defaults: ClassVar[dict[str, Value]] = {"strict": False}
