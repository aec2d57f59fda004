"""A job's speed from what it reports."""

from __future__ import annotations


class SpeedBelief:
    """How fast one attempt of a job goes, from its reports.

    `step_s`: what a step takes of late, None while it is cold. `mean_s`: seconds per step with checkpoints and
    evaluation, for the time that is left; None before anything is known. `spread`: the standard deviation of the
    logarithm of `mean_s`. `warm`: whether its first, cold steps are behind it.
    """

    __slots__ = ("mean_s", "spread", "step_s", "warm")

    def __init__(self) -> None:
        self.step_s: float | None = None
        self.mean_s: float | None = None
        self.spread = 3.0
        self.warm = False

    def add(self, moment_s: float, step: int, steps_s: float | None = None) -> None:
        """So many steps were finished by this moment, `steps_s` being the seconds spent in steps (not in saving)."""

    def new_company(self) -> None:
        """From here on steps may take longer or shorter: what was measured before holds until there is more."""
