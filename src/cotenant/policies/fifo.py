"""First in, first out."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class Fifo(OrderPolicy):
    """By submit time; the first job that does not fit holds back everybody behind it."""

    name = "fifo"
    source = "YARN capacity scheduler, the baseline of Tiresias and Helios"
    defaults: ClassVar[dict[str, Value]] = {"strict": True}
