"""Series in steps of ten minutes, and what a forecast looks at. NaN marks a gap; every feature is of the past.

Helios (SC'21, section 4.3.2): calendar, means and deviations of the last hours, earlier values. Values enter as
differences from the present one, so that a level never seen before is no stranger. No holidays or
conference deadlines: two months hold too few of them to learn from.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
STEP_S = 600
DAY, WEEK = 144, 1008  # steps
_LAGS = (1, 2, 3, 6, 18, 30, 60, DAY, WEEK)
_WINDOWS = (3, 6, 18, 36, DAY)


def to_steps(time_s: Floats, used: Floats) -> tuple[Floats, Floats]:
    """The largest value within each ten-minute step, from the first step to the last; NaN where none fell into it."""
    at = np.floor(time_s / STEP_S).astype(np.int64)
    steps = np.arange(at.min(), at.max() + 1)
    largest = np.full(len(steps), -np.inf)
    np.maximum.at(largest, at - at.min(), used)
    return steps * float(STEP_S), np.where(np.isfinite(largest), largest, np.nan)


def shifted(values: Floats, steps: int) -> Floats:
    """The value so many steps ago; NaN before the beginning."""
    out = np.full(len(values), np.nan)
    out[steps:] = values[: max(len(values) - steps, 0)]
    return out


def trailing(values: Floats, steps: int) -> tuple[Floats, Floats]:
    """Mean and deviation over the last steps, the present one included; gaps are left out."""
    mean, deviation = np.full(len(values), np.nan), np.full(len(values), np.nan)
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    # Sums of whole numbers are exact, so that a window has one value whatever lies before it.
    count, first, second = (_window_sums(column, steps) for column in (known.astype(np.float64), filled, filled**2))
    some = np.maximum(count, 1)
    mean[steps - 1 :] = np.where(count > 0, first / some, np.nan)
    spread = np.maximum(second / some - (first / some) ** 2, 0)
    deviation[steps - 1 :] = np.where(count > 0, np.sqrt(spread), np.nan)
    return mean, deviation


def _window_sums(values: Floats, steps: int) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[steps:] - sums[:-steps], np.float64)


def _over(values: Floats) -> tuple[float, float]:
    """`trailing` over all of a few values, at the last of them."""
    known = np.isfinite(values)
    count = np.count_nonzero(known)
    if count == 0:
        return np.nan, np.nan
    filled = values if count == len(values) else np.where(known, values, 0.0)
    mean = float(filled.cumsum()[-1]) / count
    return mean, math.sqrt(max(float((filled * filled).cumsum()[-1]) / count - mean * mean, 0.0))


def mean_ahead(values: Floats, steps: int) -> Floats:
    """Mean over the next steps, the present one included; NaN where the series ends before."""
    mean, _ = trailing(values, steps)
    out = np.full(len(values), np.nan)
    out[: max(len(values) - steps + 1, 0)] = mean[steps - 1 :]
    return out


def features(time_s: Floats, used: Floats, ahead: int) -> Floats:
    """One row per step, of that step and earlier ones only."""
    columns = [time_s % 86400 / 3600, (time_s // 86400 + 3) % 7, used]
    columns += [used - shifted(used, lag) for lag in _LAGS]
    for steps in _WINDOWS:
        mean, deviation = trailing(used, steps)
        columns += [used - mean, deviation]
    for steps in (ahead, 2 * ahead):
        mean = trailing(used, steps)[0]
        # What followed at this time a day and a week ago, against the value then.
        columns += [shifted(mean, back - steps + 1) - shifted(used, back) for back in (DAY, WEEK) if back >= steps]
    return np.column_stack(columns)


def features_now(time_s: Floats, used: Floats, ahead: int) -> Floats:
    """The last row of `features`, from what it looks at alone."""
    now, last = len(used) - 1, used[-1]

    def value(ago: int) -> float:
        return float(used[now - ago]) if ago <= now else np.nan

    def window(steps: int, ago: int = 0) -> tuple[float, float]:
        """Mean and deviation over the steps that ended so long ago."""
        if ago + steps > now + 1:
            return np.nan, np.nan
        return _over(used[now - ago - steps + 1 : now - ago + 1])

    row = [time_s[-1] % 86400 / 3600, (time_s[-1] // 86400 + 3) % 7, last]
    row += [last - value(lag) for lag in _LAGS]
    for steps in _WINDOWS:
        mean, deviation = window(steps)
        row += [last - mean, deviation]
    for steps in (ahead, 2 * ahead):
        row += [window(steps, back - steps + 1)[0] - value(back) for back in (DAY, WEEK) if back >= steps]
    return np.array([row])
