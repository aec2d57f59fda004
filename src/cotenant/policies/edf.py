"""Earliest deadline first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_DEADLINE
from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class Edf(OrderPolicy):
    """By first deadline, best effort last, without preemption; the first that does not fit blocks the line."""

    name = "edf"
    source = "Liu and Layland, JACM'73; baseline of Chronus, SoCC'21"
    order = (BY_DEADLINE,)
    defaults: ClassVar[dict[str, Value]] = {"strict": True}


class EdfBackfill(OrderPolicy):
    """By first deadline, best effort last, without preemption; what does not fit is skipped."""

    name = "edf-backfill"
    source = "baseline of Chronus, SoCC'21"
    order = (BY_DEADLINE,)
    defaults: ClassVar[dict[str, Value]] = {"strict": False}
