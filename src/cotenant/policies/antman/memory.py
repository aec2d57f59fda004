"""How much of its memory each opportunistic job may keep on a GPU: what is left, given where it helps most.

Guaranteed jobs have all they need. Every opportunistic job gets a least part; the rest goes, piece by piece, to the
job whose speed gains most per GiB, by the curves of speed over memory limits (AntMan, section 3.2, by trial and error
there). Between two points of a curve speed is interpolated, which is generous inside a cliff.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.core.together import CURVE
from cotenant.core.workload import Floats

LEAST = 0.1  # part of its need without which a job is not started


def least_part(curve: Floats) -> float:
    """The part of its need that a job cannot do without: all of it where nothing of it can lie on the host."""
    return LEAST if _speed(curve, LEAST) > 0 else 1.0


def caps(
    left_gib: float, needs_gib: Sequence[float], curves: Sequence[Floats], least: Sequence[float] | None = None
) -> list[float] | None:
    """The part of its need that each job may keep on the GPU; None if not even the `least` parts fit."""
    if sum(needs_gib) <= left_gib:
        return [1.0] * len(needs_gib)
    least = [least_part(curve) for curve in curves] if least is None else least
    given = [part if need > 0 else 1.0 for need, part in zip(needs_gib, least, strict=True)]
    left = left_gib - sum(part * need for part, need in zip(given, needs_gib, strict=True))
    if left < -1e-9:
        return None
    while True:
        best, best_gain, best_part = -1, 0.0, 0.0
        for at, need in enumerate(needs_gib):
            if need <= 0 or given[at] >= 1:
                continue
            for point in range(len(CURVE)):
                more = float(CURVE[point]) - given[at]
                if more <= 1e-12 or more * need > left + 1e-12:
                    continue
                gain = (_speed(curves[at], float(CURVE[point])) - _speed(curves[at], given[at])) / (more * need)
                if gain > best_gain:
                    best, best_gain, best_part = at, gain, float(CURVE[point])
        if best < 0:
            return [part - 1e-9 if part < 1 else 1.0 for part in _spread(left, given, needs_gib)]
        left -= (best_part - given[best]) * needs_gib[best]
        given[best] = best_part


def _spread(left: float, given: list[float], needs: Sequence[float]) -> list[float]:
    """Crumbs that reach no next point go to the jobs in order."""
    for at, need in enumerate(needs):
        if need > 0 and given[at] < 1 and left > 0:
            more = min(left / need, 1 - given[at])
            given[at] += more
            left -= more * need
    return given


def _speed(curve: Floats, part: float) -> float:
    at = 0
    while at < len(CURVE) - 2 and CURVE[at + 1] < part:
        at += 1
    return float(curve[at] + (part - CURVE[at]) / (CURVE[at + 1] - CURVE[at]) * (curve[at + 1] - curve[at]))
