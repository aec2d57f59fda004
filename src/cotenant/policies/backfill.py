"""First in, first out, but skip what does not fit."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class Backfill(OrderPolicy):
    """By submit time; what does not fit is skipped, so large jobs may starve."""

    name = "backfill"
    source = "'best-effort' of Tiresias, NSDI'19"
    defaults: ClassVar[dict[str, Value]] = {"strict": False}
