"""Quasi-shortest-service-first."""

from __future__ import annotations

from typing import ClassVar

from cotenant.core.columns import BY_BELIEF_GPU
from cotenant.core.spec import Value
from cotenant.policies.base import OrderPolicy


class Qssf(OrderPolicy):
    """By predicted GPU time (believed duration x GPUs), without preemption; the first that does not fit ends the pass.

    Ties by submit time, then row. Durations are believed as predicted from the log's own past unless another
    estimator is named. Nothing ages: a large job may wait for as long as smaller ones keep coming.
    """

    name = "qssf"
    source = "Helios, SC'21, section 4.2"
    order = (BY_BELIEF_GPU,)
    default_estimator = "gbdt:loss=mean"
    defaults: ClassVar[dict[str, Value]] = {"strict": True}
