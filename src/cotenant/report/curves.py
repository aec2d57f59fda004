"""Curves thinned to what a screen can show, so that a report of a million jobs stays small.

Distributions are thinned in rank (with more points in the upper tail, where policies differ), series
over time by the time-weighted mean of equal intervals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints

MAX_POINTS = 400
_TAIL = 80

SIZE_CLASSES = ("1 GPU", "2–4 GPUs", "5–8 GPUs", "> 8 GPUs")
_SIZE_EDGES = (1, 4, 8)


def cdf(values: Floats, *, floor: float | None = None, points: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """The empirical distribution as steps (x rising, share of values at or below x).

    `floor` lifts smaller values to itself, so that zeros have a place on a logarithmic axis.
    Not-a-numbers are left out. The first step starts at share 0 unless it stands on the floor.
    """
    kept = values[np.isfinite(values)]
    if floor is not None:
        kept = np.maximum(kept, floor)
    if not len(kept):
        return np.empty(0), np.empty(0)
    levels, counts = np.unique(kept, return_counts=True)
    share = np.cumsum(counts) / len(kept)
    room = points - 1
    if len(levels) > room:
        tail = min(_TAIL, room // 4)
        body = np.linspace(0.0, 1.0, room - tail)
        upper = 1.0 - np.geomspace(1.0 / len(kept), 0.05, tail)
        wanted = np.union1d(body, upper)
        at = np.unique(np.minimum(np.searchsorted(share, wanted), len(levels) - 1))
        levels, share = levels[at], share[at]
    if floor is None or levels[0] > floor:
        levels = np.concatenate([levels[:1], levels])
        share = np.concatenate([[0.0], share])
    return levels, share


def over_time(time_s: Floats, value: Floats, *, points: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """A step function (`value[i]` holds from `time_s[i]` on) as at most `points` intervals: start, mean.

    With few enough steps they are returned as they are. The last point repeats the end of the curve, so
    that a stepped line reaches it.
    """
    if len(time_s) <= points:
        return time_s, value
    start, end = float(time_s[0]), float(time_s[-1])
    if end <= start:
        return time_s[:1], value[-1:]
    edges = np.linspace(start, end, points)
    area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time_s))])
    # The integral of a step function is linear between its steps, so interpolating it is exact.
    mean = np.diff(np.interp(edges, time_s, area)) / np.diff(edges)
    return edges, np.concatenate([mean, mean[-1:]])


def size_class(gpus: Ints) -> NDArray[np.int64]:
    """For each job the index of its class in `SIZE_CLASSES`."""
    return np.searchsorted(np.asarray(_SIZE_EDGES), gpus, side="left").astype(np.int64)


def rounded(values: Floats, digits: int = 5) -> list[float | int]:
    """Values to that many significant digits, for JSON: short, and the same on every machine."""
    texts = [float(f"{value:.{digits - 1}e}") for value in values.tolist()]
    return [int(value) if value == int(value) and abs(value) < 1e15 else value for value in texts]
