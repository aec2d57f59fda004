"""Durations as people foretell them: 94 answers to how far off they are (Chronus, SoCC'21, user survey)."""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Floats, Workload

SHARES = (0.21, 0.38, 0.29, 0.10, 0.02)  # of those who are off by less than ...
ERRORS = (0.0, 0.10, 0.25, 0.50, 1.00, 2.00)  # ... the next of these, and by more than this one


def surveyed(workload: Workload, seed: int) -> Floats:
    """Each duration too long or too short by a factor, as often as people said; within an answer all are alike.

    Row i takes the i-th draws of the stream, so a longer log keeps the noise of a shorter one.
    """
    draw = np.random.default_rng([seed, 94]).random((len(workload), 3))
    answer = np.searchsorted(np.cumsum(SHARES)[:-1], draw[:, 0], side="right")
    low, high = np.array(ERRORS)[answer], np.array(ERRORS)[answer + 1]
    factor = 1.0 + low + (high - low) * draw[:, 1]
    return np.asarray(workload.duration_s * np.where(draw[:, 2] < 0.5, factor, 1.0 / factor))
