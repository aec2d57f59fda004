"""Shortest job first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_BELIEF
from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class Sjf(OrderPolicy):
    """By believed duration, without preemption; what does not fit is skipped."""

    name = "sjf"
    source = "classic; oracle baseline of Helios, SC'21"
    order = (BY_BELIEF,)
    defaults: ClassVar[dict[str, Value]] = {"strict": False}
