"""GPU memory that gives: jobs on one GPU are granted anything between their least and their peak.

A job at its peak never waits for memory. With less it keeps a part of what it needs in host memory, which goes out and
comes back over the bus in every step. All leasts are granted, then the rest in proportion to peak - least. Refused is
what would not hold all leasts, what adds up to more than `cap` times the GPU at the peaks, and what would send more
over the bus than it carries. Off, peaks must fit: least = peak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cotenant.core.workload import Floats

_SLACK = 1e-9


def traffic_gib_s(peaks: Floats, granted: Floats, steps_per_s: Floats) -> float:
    """What goes over the bus at full speed: in every step whatever is missing, out and back."""
    return float((2.0 * (peaks - granted) * steps_per_s).sum())


def refusal(
    peaks: Sequence[float] | Floats, leasts: Sequence[float] | Floats, capacity_gib: float, cap: float = math.inf,
    bus_gib_s: float = math.inf, steps_per_s: Sequence[float] | Floats | None = None,
) -> str:  # fmt: skip
    """Why these jobs may not lie on one GPU; '' where they may."""
    peak, least = np.asarray(peaks, np.float64), np.asarray(leasts, np.float64)
    if peak.sum() <= capacity_gib + _SLACK:
        return ""
    if least.sum() > capacity_gib + _SLACK:
        return f"they need {least.sum():.1f} GiB at least, and the GPU has {capacity_gib:.1f}"
    if peak.sum() > cap * capacity_gib * (1 + _SLACK):
        return (
            f"their peaks are {peak.sum() / capacity_gib:.2f} times the GPU's {capacity_gib:.1f} GiB; {cap:g} is most"
        )
    if steps_per_s is not None:
        sent = traffic_gib_s(peak, _spread(peak, least, capacity_gib), np.asarray(steps_per_s, np.float64))
        if sent > bus_gib_s * (1 + _SLACK):
            return f"they would send {sent:.1f} GiB/s over a bus of {bus_gib_s:g}"
    return ""


def grant(
    peaks: Sequence[float] | Floats, leasts: Sequence[float] | Floats, capacity_gib: float, cap: float = math.inf,
    bus_gib_s: float = math.inf, steps_per_s: Sequence[float] | Floats | None = None,
) -> Floats | None:  # fmt: skip
    """GiB for each job on one GPU: its peak if all fit, else its least and a part of the rest; None where refused."""
    if refusal(peaks, leasts, capacity_gib, cap, bus_gib_s, steps_per_s):
        return None
    return _spread(np.asarray(peaks, np.float64), np.asarray(leasts, np.float64), capacity_gib)


def _spread(peak: Floats, least: Floats, capacity_gib: float) -> Floats:
    gives = float((peak - least).sum())
    if gives <= 0 or peak.sum() <= capacity_gib:
        return peak.copy()
    return np.asarray(least + (capacity_gib - least.sum()) / gives * (peak - least), np.float64)
