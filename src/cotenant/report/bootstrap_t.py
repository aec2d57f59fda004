"""How far a 95 % interval of a mean over a few seeds reaches below and above it, where differences may be lopsided.

Student's t takes differences for normal: where a few seeds make most of the difference its interval is too narrow on
one side. Two remedies are known, and each end is the further one of the two (of few values the second one alone):

* the bootstrap-t (Efron 1982; Hall 1988) draws samples from the sample and takes the quantiles of their t statistics in
  place of Student's; samples without any spread count as beyond every quantile;
* Hall's transformation (1992) takes the skewness g of the sample out of t = (mean - truth) / s: with T(t) = t +
  g t² / 3 + g² t³ / 27 + g / 6n, T is near normal, and an end is where T is Student's quantile over √n.

Which of several ways is best was tried on pools of generated comparisons (docs/design/0012-use.md).
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.workload import Floats
from cotenant.report.stats import t_quantile_975

DRAWS = 999
FEWEST = 5  # values: fewer say too little of their own skewness, and Student's t is all there is
FEWEST_DRAWN = 8  # samples of fewer often hold nearly the same value again and again, and reach absurdly far


def reach(values: Floats) -> tuple[float, float]:
    """Below and above the mean of at least two values."""
    count, spread = len(values), float(values.std(ddof=1))
    error, quantile = spread / math.sqrt(count), t_quantile_975(count - 1)
    if count < FEWEST or error == 0.0:
        return quantile * error, quantile * error
    low, high = _drawn(values, error) if count >= FEWEST_DRAWN else (-math.inf, math.inf)
    ends = [spread * _transformed(values, side * quantile / math.sqrt(count)) for side in (1, -1)]
    below = max(ends[0], high * error if high < math.inf else 0.0)
    above = max(-ends[1], -low * error if low > -math.inf else 0.0)
    return below, above


def _drawn(values: Floats, error: float) -> tuple[float, float]:
    """The quantiles of t over samples of the sample."""
    count = len(values)
    drawn = values[np.random.default_rng(0).integers(0, count, (DRAWS, count))]
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(count)
    off = drawn.mean(axis=1) - values.mean()
    told = errors > 1e-9 * error
    ratios = np.where(told, off / np.where(told, errors, 1.0), np.copysign(math.inf, off))
    low, high = np.sort(ratios)[[round(0.025 * (DRAWS + 1)) - 1, round(0.975 * (DRAWS + 1)) - 1]]
    return float(low), float(high)


def _transformed(values: Floats, at: float) -> float:
    """The t at which T of Hall is so large."""
    count, around = len(values), values - values.mean()
    skewness = float((around**3).mean() / values.std() ** 3)
    if abs(skewness) < 1e-9:
        return at
    return float(3 / skewness * (np.cbrt(1 + skewness * (at - skewness / (6 * count))) - 1))
