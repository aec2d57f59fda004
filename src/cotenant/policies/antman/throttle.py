"""The local coordinator: how much of a GPU's time an opportunistic job may use beside a guaranteed one.

Feedback from the guaranteed job's step time: the share rises by a step while that job is not slowed beyond a tolerance,
and is cut sharply when it is (additive increase, multiplicative cut; AntMan says "pessimistic" and gives no sizes).
A job may be slower than it was for reasons of its own, e.g. lower clocks, and its speed goes up and down. So at a sign
of harm the share is cut to nothing for one period, which says how fast the neighbour is without it. What was seen with
and without is compared, by its scatter: only harm beyond chance counts, other signs lead to further looks. A job that
pauses between its steps disturbs its neighbours only meanwhile, so what it costs them is in proportion to its share:
if it was guilty, it goes on with the share at which half the tolerance would be lost, else with what it had. Tries
beyond a share that has hurt raise it by half, and wait twice as long after every cut, up to a limit.

Two things go beyond the paper, because a guaranteed job that is slowed for one control period of a short life has lost
much of it: a share climbs at once only to what the neighbours are believed to leave idle, and tries beyond that only
when they have seconds to spare. A share of 0 suspends the job, as a control value of 0 does in the released code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean

LOWEST = 0.01  # a share that would be cut below this is suspended
LONGEST_S = 3600.0
_IDLE = 4  # periods between two looks at a share that has reached its ceiling
_SCATTER, _PRIOR = 0.007, 4  # of what is seen in one period, and as how many looks that counts
_SEEN = 12  # looks that are remembered


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
    harm: float = 1.0  # what the whole of the time would cost them, at worst or as it was seen
    paused: float = 0.0  # the share that it has when it does not pause, while it does so to see what it costs
    with_it: list[float] = field(default_factory=list)  # slowdowns of neighbours seen at this share
    without: list[float] = field(default_factory=list)  # and while it paused

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
        wait_s, share = self.control_s, self.share
        self._note(self.without if self.paused else self.with_it, slowdown)
        if self.paused:
            share, self.share, self.paused = self.paused, self.paused, 0.0
            if self.lost() > tolerance + self._chance():
                self._cut(now_s, tolerance, cut)
        elif self.share > 0 and self.lost() > tolerance:
            self.paused, self.share, share = self.share, 0.0, 0.0
        elif self.share < self.ceiling - 1e-9:
            self.share = min(self.share + step, self.ceiling)
        elif self.share < 1 and now_s >= self.try_s - 1e-9 and spare_s >= self._at_risk_s(step):
            self.ceiling = self.share = self._next_share(step)
            self.try_s = now_s + self.wait_s if self.try_s > -math.inf else self.try_s
        else:
            wait_s = _IDLE * self.control_s
        if self.share != share:
            self.with_it.clear()
        self._look_at(now_s + wait_s)

    def wait(self, now_s: float) -> None:
        """It or its neighbour still starts up: there is no harm to be seen, and none that is not seen counts."""
        if now_s >= self.next_s - 1e-9:
            self._look_at(now_s + self.control_s)

    def _look_at(self, next_s: float) -> None:
        """On a grid, so that many shares are looked at together; a look that is a little late does not move it."""
        self.next_s = math.floor(next_s / self.control_s + 0.5) * self.control_s

    def _next_share(self, step: float) -> float:
        """The share to try: a step more, or half as much again as one that is allowed after another has hurt."""
        more = step if self.try_s == -math.inf else max(self.share / 2, LOWEST)
        return min(self.share + more, 1.0)

    def _at_risk_s(self, step: float) -> float:
        """What the neighbours may lose by trying it, until the next look."""
        return (self._next_share(step) - self.share) * self.harm * self.control_s

    def _note(self, seen: list[float], slowdown: float) -> None:
        """One more look; one that lies far from those before is a change, and they no longer count."""
        if seen and abs(slowdown - fmean(seen)) > 2 * self._scatter():
            seen.clear()
        seen.append(slowdown)
        del seen[:-_SEEN]

    def lost(self) -> float:
        """What the neighbours lose by this share, as far as it was seen."""
        return fmean(self.with_it) / fmean(self.without or [1.0]) - 1 if self.with_it else 0.0

    def _chance(self) -> float:
        """How much of that may be chance: its standard error."""
        return self._scatter() * math.sqrt(sum(1 / len(one) for one in (self.with_it, self.without) if one))

    def _scatter(self) -> float:
        """Standard deviation of what is seen in one period, with what it usually is to begin with."""
        seen = [one for one in (self.with_it, self.without) if one]
        squares = sum(sum((value - fmean(one)) ** 2 for value in one) for one in seen)
        return math.sqrt((_PRIOR * _SCATTER**2 + squares) / (_PRIOR + sum(len(one) - 1 for one in seen)))

    def _cut(self, now_s: float, tolerance: float, cut: float) -> None:
        """It was guilty."""
        lost = self.lost()
        self.harm = min(lost / self.share, 1.0)
        self.share *= min(cut, tolerance / 2 / lost)
        if self.share < LOWEST:
            self.share = 0.0
        self.ceiling = self.share
        self.wait_s = min(2 * self.wait_s, LONGEST_S)
        self.try_s = now_s + self.wait_s
