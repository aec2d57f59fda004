"""The local coordinator: how much of a GPU's time an opportunistic job may use beside a guaranteed one.

Feedback from the guaranteed job's step time: the share rises by a step while that job is not slowed beyond a tolerance,
and is cut sharply when it is (additive increase, multiplicative cut; AntMan says "pessimistic" and gives no sizes).
A job that pauses between its steps disturbs its neighbours only meanwhile, so what it costs them is in proportion to
its share: a cut goes to the share at which half the tolerance would be lost, and stays there. From then on each try
beyond that raises the share by half of it at most, and tries wait twice as long after every cut, up to a limit.

Two things go beyond the paper, because a guaranteed job that is slowed for one control period of a short life has lost
much of it: a share climbs at once only to what the neighbours are believed to leave idle, and tries beyond that only
when they have seconds to spare. A share of 0 suspends the job, as a control value of 0 does in the released code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LOWEST = 0.01  # a share that would be cut below this is suspended
LONGEST_S = 3600.0


@dataclass(slots=True)
class Throttle:
    """The share of one opportunistic job. Times are seconds."""

    share: float
    next_s: float
    control_s: float
    wait_s: float  # at the ceiling, before the next try
    ceiling: float = 1.0  # the largest share that is not known to hurt
    rivals: int = 0  # guaranteed neighbours
    try_s: float = -math.inf  # no earlier than this beyond a share that has hurt

    @classmethod
    def low(cls, start: float, now_s: float, control_s: float, idle: float = 1.0) -> Throttle:
        """A job that has just come beside a guaranteed one that leaves `idle` to it, or the other way round."""
        return cls(min(start, idle), now_s + control_s, control_s, 4 * control_s, idle)

    def observe(
        self, slowdown: float, now_s: float, *, tolerance: float, step: float, cut: float, spare_s: float = math.inf
    ) -> None:
        """React to the worst slowdown of a guaranteed neighbour; does nothing before its time.

        `spare_s` is what the neighbours may still lose: a try beyond the ceiling puts its part of a period at risk.
        """
        if now_s < self.next_s - 1e-9:
            return
        wait_s = self.control_s
        further = max(min(step, self.share / 2), LOWEST) if self.try_s > -math.inf else step
        if slowdown > 1 + tolerance:
            self.share = self.share * min(cut, tolerance / 2 / (slowdown - 1))
            if self.share < LOWEST:
                self.share = 0.0
            self.wait_s = min(2 * self.wait_s, LONGEST_S)
            self.ceiling, self.try_s = self.share, now_s + self.wait_s
        elif self.share < self.ceiling - 1e-9:
            self.share = min(self.share + step, self.ceiling)
            if self.share >= self.ceiling - 1e-9 and self.ceiling < 1:
                wait_s = self.wait_s
        elif spare_s >= further * self.control_s and now_s >= self.try_s - 1e-9:
            self.ceiling = self.share = min(self.share + further, 1.0)
            self.try_s = now_s + self.wait_s if self.try_s > -math.inf else self.try_s
        else:
            wait_s = self.wait_s
        # On a grid, so that many shares are looked at together; a look that is a little late does not move it.
        self.next_s = math.floor((now_s + wait_s) / self.control_s + 0.5) * self.control_s

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to raise."""
        return self.share >= 1.0
