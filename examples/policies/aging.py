"""Shortest remaining service first, but nobody starves."""

from typing import ClassVar

from cotenant.policies import PriorityPolicy


class Aging(PriorityPolicy):
    """Remaining service, less `weight` GPU-seconds for each second of waiting."""

    defaults: ClassVar = {"weight": 4.0}
    round_s = 600.0

    def priority(self, view):
        return view.remaining_s * view.gpus - self.number("weight") * view.waited_s
