"""Optimistic profiling: few measurements along the cores, none along the memory (Synergy, OSDI'22, section 3.1).

With everything cached, speed is measured at all cores first. While half as many change it by less than `threshold`,
halve them; where they do, bisect. Memory is computed: with a cache that holds a fixed part of the data set, a share of
memory bounds the speed at what storage can deliver (`storage`), whatever the cores. So a matrix is the lesser of a
measured curve and a computed bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cotenant.core.sensitivity import Sensitivity
from cotenant.core.workload import Floats

THRESHOLD = 0.1
BATCHES = 50  # mini-batches per point at most
WARM_UP = 1  # the first point is measured once more, to fill caches


@dataclass(frozen=True, slots=True)
class Searched:
    """Cores measured, highest first, the speeds found there, and how many measurements that took."""

    cpus: tuple[float, ...]
    speeds: tuple[float, ...]
    measurements: int


def search(
    measure: Callable[[float], float], most: float, least: float = 1.0, threshold: float = THRESHOLD
) -> Searched:
    """The empirical search: `measure(cores)` is a speed. Halve while that changes little, then bisect what is below.

    A stretch is bisected, down to steps of `least` cores, until its middle lies on the line between its ends
    (within a third of the threshold).
    """
    known = {most: measure(most)}
    high = most
    while high > least + 1e-9:
        low = max(high / 2, least)
        known[low] = measure(low)
        if known[high] > (1 + threshold) * known[low]:
            known.setdefault(least, measure(least) if low > least else known[low])
            _refine(measure, known, high, low, least, threshold)
            _refine(measure, known, low, least, least, threshold)
            break
        high = low
    cpus = sorted(known, reverse=True)
    return Searched(tuple(cpus), tuple(known[c] for c in cpus), len(known) + WARM_UP)


def _refine(
    measure: Callable[[float], float], known: dict[float, float], high: float, low: float, step: float, threshold: float
) -> None:
    middle = low + step * round((high - low) / (2 * step))
    if not low + 1e-9 < middle < high - 1e-9:
        return
    known[middle] = measure(middle)
    line = known[low] + (known[high] - known[low]) * (middle - low) / (high - low)
    if abs(known[middle] - line) > threshold / 3 * known[middle]:
        _refine(measure, known, high, middle, step, threshold)
        _refine(measure, known, middle, low, step, threshold)


def curve(found: Searched, axis: Floats) -> Floats:
    """Speeds at the points of an axis: linear between measurements, never falling with more cores."""
    order = np.argsort(found.cpus)
    speeds = np.maximum.accumulate(np.array(found.speeds)[order])
    return np.interp(axis, np.array(found.cpus)[order], speeds)


@dataclass(frozen=True, slots=True)
class Guess:
    """Believed matrices, seconds of profiling per job of each kind, and measurements made for each."""

    belief: Sensitivity
    cost_s: Floats
    measurements: Floats


def optimistic(truth: Sensitivity, seed: int = 0, noise: float = 0.0, threshold: float = THRESHOLD) -> Guess:
    """What optimistic profiling would believe of these matrices, and what it would cost each job.

    A point takes 50 mini-batches at the speed found there. `noise` is the relative error of one measurement.
    """
    generator = np.random.default_rng([seed, 7919])
    table, cost = np.empty_like(truth.table), np.zeros(len(truth.table))
    counts = np.zeros(len(truth.table))
    step_s = np.nan_to_num(truth.step_s, nan=1.0)
    most = float(truth.mem_axis[-1])
    for kind in range(len(table)):
        seconds = 0.0

        def measure(cpus: float, kind: int = kind) -> float:
            nonlocal seconds
            speed = float(truth.speed(np.array([kind]), np.array([cpus]), np.array([most]))[0])
            seconds += BATCHES * step_s[kind] / max(speed, 1e-6)
            return speed * float(np.exp(noise * generator.standard_normal()))

        found = search(measure, float(truth.cpu_axis[-1]), float(truth.cpu_axis[0]), threshold)
        first_s = BATCHES * step_s[kind] / max(found.speeds[0], 1e-6)
        bound = truth.table[kind].max(axis=0)  # what storage allows at each memory point, computed
        table[kind] = np.minimum(curve(found, truth.cpu_axis)[:, None], bound[None, :])
        cost[kind], counts[kind] = seconds + WARM_UP * first_s, found.measurements
    return Guess(replace(truth, table=table), cost, counts)
