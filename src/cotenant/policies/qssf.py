"""Quasi-shortest-service-first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_BELIEF, BY_BELIEF_GPU, BY_GPUS
from cotenant.core.errors import unknown
from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy

FIRST = {"gpus": (BY_GPUS, BY_BELIEF), "service": (BY_BELIEF_GPU,)}
"""What counts first: fewer GPUs, and of equals the shorter; or predicted GPU time as a product, as published."""


class Qssf(OrderPolicy):
    """By GPUs, then by predicted duration (`first=service`: by their product), without preemption, in strict order.

    Strict: the first that does not fit ends the pass. A large gang at the head empties nodes until it fits, so a
    prediction that is too short costs the more the larger the gang; between sizes predictions are therefore shrunk to a
    constant and count only among jobs of as many GPUs. `first=service` is the paper's product of both.

    Ties by submit time, then row. Durations are believed as predicted from the log's own past, or the service's
    finished jobs, unless another estimator is named. Nothing ages: a large job may wait while smaller ones keep coming.
    """

    name = "qssf"
    source = "Helios, SC'21, section 4.2"
    default_estimator = "shrunk"
    defaults: ClassVar[dict[str, Value]] = {"strict": True, "first": "gpus"}

    @property
    def order(self) -> tuple[int, ...]:  # type: ignore[override]
        """The columns."""
        return FIRST[str(self.params["first"])]

    def __init__(self, **params: Value) -> None:
        super().__init__(**params)
        if self.params["first"] not in FIRST:
            raise unknown("first of policy 'qssf'", str(self.params["first"]), FIRST)
