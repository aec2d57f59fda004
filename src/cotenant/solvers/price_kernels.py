"""Cheapest way for every job to reach its required rate at given prices: one pass, compiled or in NumPy.

A job with rates a and prices p reads the lower convex hull of (0, 0) and the points (a_j, p_j) at its required rate
r: one type for a part of the time, or two types for all of it. Of two ways that cost the same the steeper one counts,
being the slope towards lower rates, where a search goes; then the lowest type number, alone before a pair. Both forms
add over jobs in order, so that they agree to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cotenant.solvers.answer import Floats, Matrix
from cotenant.solvers.compiled import compiled

LESS, MORE = 1.0 - 1e-12, 1.0 + 1e-12  # costs nearer than this are equal


def respond_loop(
    a: Matrix, mass: Floats, top: Floats, work: Floats, span: Floats, elapsed: Floats, falling: bool, theta: float,
    p: Floats, usage: Floats, sums: Floats, x: Matrix,
) -> None:  # fmt: skip
    """Fill `usage` (GPUs per type) and `sums` (cost, its derivative by theta); `x` too unless it is empty.

    Required rate: work * theta, or with `falling` work / (span * theta - elapsed); never above the job's top rate.
    """
    n, types = a.shape
    cost_sum = 0.0
    slope_sum = 0.0
    for j in range(types):
        usage[j] = 0.0
    keep = x.shape[0] > 0
    for i in range(n):
        if keep:
            for j in range(types):
                x[i, j] = 0.0
        if work[i] <= 0.0 or top[i] <= 0.0:
            continue
        if falling:
            room = span[i] * theta - elapsed[i]
            r = work[i] / room
            rise = -r * span[i] / room
        else:
            r = work[i] * theta
            rise = work[i]
        if r > top[i]:
            r = top[i]
        best = np.inf
        best_slope = -1.0
        one = -1
        two = -1
        for k in range(types):
            if a[i, k] < r:
                continue
            slope = p[k] / a[i, k]
            cost = slope * r
            if cost < best * LESS or (cost <= best * MORE and slope > best_slope):
                best = cost
                best_slope = slope
                one = k
                two = -1
            for j in range(types):
                if a[i, j] <= 0.0 or a[i, j] >= r or p[j] >= p[k]:
                    continue
                slope = (p[k] - p[j]) / (a[i, k] - a[i, j])
                cost = p[j] + slope * (r - a[i, j])
                if cost < best * LESS or (cost <= best * MORE and slope > best_slope):
                    best = cost
                    best_slope = slope
                    one = k
                    two = j
        if one < 0:
            continue
        cost_sum += mass[i] * best
        slope_sum += mass[i] * best_slope * rise
        if two < 0:
            share = r / a[i, one]
            usage[one] += mass[i] * share
            if keep:
                x[i, one] = share
        else:
            share = (r - a[i, two]) / (a[i, one] - a[i, two])
            usage[one] += mass[i] * share
            usage[two] += mass[i] * (1.0 - share)
            if keep:
                x[i, one] = share
                x[i, two] = 1.0 - share
    sums[0] = cost_sum
    sums[1] = slope_sum


def respond_numpy(
    a: Floats, mass: Floats, top: Floats, work: Floats, span: Floats, elapsed: Floats, falling: bool, theta: float,
    p: Floats, usage: Floats, sums: Floats, x: Floats,
) -> None:  # fmt: skip
    """The same in whole-array steps; expects jobs with work > 0 and top > 0 only."""
    n, types = a.shape
    if falling:
        room = span * theta - elapsed
        r = work / room
        rise = -r * span / room
    else:
        r = work * theta
        rise = work
    r = np.minimum(r, top)
    best = np.full(n, np.inf)
    best_slope = np.full(n, -1.0)
    one = np.full(n, -1)
    two = np.full(n, -1)
    enough = np.asarray(a >= r[:, None])
    partner = np.asarray((a > 0.0) & ~enough)
    some_partner: Any = partner.any(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        for k in range(types):
            slope = p[k] / a[:, k]
            cost = np.where(enough[:, k], slope * r, np.inf)
            better = (cost < best * LESS) | ((cost <= best * MORE) & (slope > best_slope) & enough[:, k])
            best = np.where(better, cost, best)
            best_slope = np.where(better, slope, best_slope)
            one[better] = k
            two[better] = -1
            for j in range(types):
                if p[j] >= p[k] or not some_partner[j]:
                    continue
                at = np.flatnonzero(partner[:, j] & enough[:, k])
                slope_at = (p[k] - p[j]) / (a[at, k] - a[at, j])
                cost_at = p[j] + slope_at * (r[at] - a[at, j])
                wins = (cost_at < best[at] * LESS) | ((cost_at <= best[at] * MORE) & (slope_at > best_slope[at]))
                at, slope_at, cost_at = at[wins], slope_at[wins], cost_at[wins]
                best[at] = cost_at
                best_slope[at] = slope_at
                one[at] = k
                two[at] = j
    sums[0] = _in_order(mass * best)
    sums[1] = _in_order(mass * best_slope * rise)
    rows = np.arange(n)
    share = r / a[rows, one]
    pair = np.flatnonzero(two >= 0)
    low, high = a[pair, two[pair]], a[pair, one[pair]]
    share[pair] = (r[pair] - low) / (high - low)
    for j in range(types):
        part = np.where(one == j, share, 0.0)
        second = pair[two[pair] == j]
        part[second] = 1.0 - share[second]
        usage[j] = _in_order(mass * part)
        if x.shape[0]:
            x[:, j] = part


def responder(compile_it: bool) -> Any:
    """The form to use; compiled (or read from the cache) and ready."""
    if not compile_it:
        return respond_numpy
    return compiled(respond_loop)


def _in_order(values: Floats) -> float:
    """Sum from first to last, as a loop does (NumPy's own sum adds in pairs)."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0
