"""How fast a command is, from the moments at which its runtime has told its steps: pure functions.

First steps are slow (compilation, search for algorithms, allocation), and so are those after a change of settings.
Speed counts from where it is steady: stretches in a row that differ by less than a tenth from what it is by now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, pstdev

Points = Sequence[tuple[float, int]]
"""(moment, finished steps), in order."""

_STRETCH_S, _STRETCH_STEPS = 0.5, 2
_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class StepRate:
    """Steps per second, the spread (sigma of the logarithm) of parts of the measurement, and from when to when."""

    steps_per_s: float
    spread: float
    from_s: float
    to_s: float


def stretches(points: Points, least_s: float = _STRETCH_S) -> list[tuple[float, float]]:
    """(begin, steps per second) of consecutive stretches, each long enough to tell."""
    found: list[tuple[float, float]] = []
    begin = 0
    for at in range(1, len(points)):
        seconds, steps = points[at][0] - points[begin][0], points[at][1] - points[begin][1]
        if seconds >= least_s and steps >= _STRETCH_STEPS:
            found.append((points[begin][0], steps / seconds))
            begin = at
    return found


def steady_since(points: Points) -> float | None:
    """From when on the speed is what it is by now; None while it changes.

    One stretch out of line (an evaluation, a checkpoint) does not end it.
    """
    found = stretches(points)
    kept = found[-1:]
    for at in range(len(found) - 2, -1, -1):
        middle = median(rate for _, rate in kept)
        alike = [abs(math.log(rate / middle)) < _ALIKE for _, rate in found[max(at - 1, 0) : at + 1]]
        if not alike[-1] and not (len(kept) > 1 and alike[0]):
            break
        kept.append(found[at])
    return kept[-1][0] if len(kept) > 1 else None


def rate_since(points: Points, since_s: float) -> StepRate | None:
    """The speed over all steps from a moment on; None where there are too few."""
    kept = [point for point in points if point[0] >= since_s]
    if len(kept) < 2 or kept[-1][1] <= kept[0][1] or kept[-1][0] <= kept[0][0]:
        return None
    (first_s, first), (last_s, last) = kept[0], kept[-1]
    parts = [rate for _, rate in stretches(kept, (last_s - first_s) / 5)]
    spread = pstdev([math.log(rate) for rate in parts]) if len(parts) > 1 else math.nan
    return StepRate((last - first) / (last_s - first_s), spread, first_s, last_s)


def typical(rates: Sequence[StepRate]) -> StepRate:
    """Several measurements as one: the median, and the spread among them if that is larger than within."""
    if len(rates) == 1:
        return rates[0]
    among = pstdev([math.log(rate.steps_per_s) for rate in rates])
    inside = [rate.spread for rate in rates if not math.isnan(rate.spread)]
    middle = median(rate.steps_per_s for rate in rates)
    return StepRate(middle, max([among, *inside]), rates[0].from_s, rates[-1].to_s)
