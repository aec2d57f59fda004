"""The local coordinator: how much of a GPU's time an opportunistic job may use beside a guaranteed one.

Feedback from the guaranteed job's step time: the share rises by a step while that job is not slowed beyond a tolerance,
and is cut sharply when it is (additive increase, multiplicative cut; AntMan says "pessimistic" and gives no sizes).
A job may be slower than it was for reasons of its own, e.g. lower clocks. So at the first sign the share is cut to
nothing for one period, and how fast the neighbour is then is what it is compared with from there on. A job that pauses
between its steps disturbs its neighbours only meanwhile, so what it costs them is in proportion to its share: if it was
guilty, it goes on with the share at which half the tolerance would be lost, else with what it had. Tries beyond a share
that has hurt raise it by half, and wait twice as long after every cut, up to a limit.

Two things go beyond the paper, because a guaranteed job that is slowed for one control period of a short life has lost
much of it: a share climbs at once only to what the neighbours are believed to leave idle, and tries beyond that only
when they have seconds to spare. A share of 0 suspends the job, as a control value of 0 does in the released code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LOWEST = 0.01  # a share that would be cut below this is suspended
LONGEST_S = 3600.0
_IDLE = 4  # periods between two looks at a share that has reached its ceiling


@dataclass(slots=True)
class Throttle:
    """The share of one opportunistic job. Times are seconds."""

    share: float
    next_s: float
    control_s: float
    wait_s: float  # after a cut, before the next try
    ceiling: float = 1.0  # the largest share that is not known to hurt
    rivals: int = 0  # guaranteed neighbours
    try_s: float = -math.inf  # no earlier than this beyond the ceiling
    base: float = 1.0  # slowdown of the neighbours that is not this job's doing
    harm: float = 1.0  # what the whole of the time would cost them, at worst or as it was seen
    suspect: tuple[float, float] | None = None  # share and slowdown that are looked into

    @classmethod
    def low(cls, start: float, now_s: float, control_s: float, idle: float = 1.0) -> Throttle:
        """A job that has just come beside a guaranteed one that leaves `idle` to it, or the other way round."""
        return cls(min(start, idle), now_s + control_s, control_s, 2 * control_s, idle)

    def observe(
        self, slowdown: float, now_s: float, *, tolerance: float, step: float, cut: float, spare_s: float = math.inf
    ) -> None:
        """React to the worst slowdown of a guaranteed neighbour; does nothing before its time.

        `spare_s` is what the neighbours may still lose: a try beyond the ceiling puts a part of a period at risk.
        """
        if now_s < self.next_s - 1e-9:
            return
        wait_s = self.control_s
        if self.suspect is not None:
            self._judge(slowdown, now_s, tolerance, cut)
        elif slowdown / self.base > 1 + tolerance and self.share > 0:
            self.suspect, self.share = (self.share, slowdown), 0.0
        elif self.share < self.ceiling - 1e-9:
            self.share = min(self.share + step, self.ceiling)
        elif (
            now_s >= self.try_s - 1e-9 and spare_s >= (self._next_share(step) - self.share) * self.harm * self.control_s
        ):
            self.ceiling = self.share = self._next_share(step)
            self.try_s = now_s + self.wait_s if self.try_s > -math.inf else self.try_s
        else:
            wait_s = _IDLE * self.control_s
        # On a grid, so that many shares are looked at together; a look that is a little late does not move it.
        self.next_s = math.floor((now_s + wait_s) / self.control_s + 0.5) * self.control_s

    def _next_share(self, step: float) -> float:
        """The share to try: a step more, or half as much again as one that is allowed after another has hurt."""
        more = step if self.try_s == -math.inf else max(self.share / 2, LOWEST)
        return min(self.share + more, 1.0)

    def _at_risk_s(self, step: float) -> float:
        """What the neighbours may lose by trying it, until the next look."""
        return (self._next_share(step) - self.share) * self.harm * self.control_s

    def _judge(self, slowdown: float, now_s: float, tolerance: float, cut: float) -> None:
        """It has paused for a period: whatever slows the neighbour down now was not its doing."""
        assert self.suspect is not None
        (share, before), self.suspect = self.suspect, None
        self.base = max(slowdown, 1.0)
        lost = before / self.base - 1
        if lost <= tolerance:
            self.share = share
            return
        self.harm = min(lost / share, 1.0)
        self.share = share * min(cut, tolerance / 2 / lost)
        if self.share < LOWEST:
            self.share = 0.0
        self.ceiling = self.share
        self.wait_s = min(2 * self.wait_s, LONGEST_S)
        self.try_s = now_s + self.wait_s
