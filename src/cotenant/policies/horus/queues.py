"""Horus+ queues: waiting jobs in clusters of likes, served by waiting-time credit so that heavy ones do not starve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints

MOST_ROUNDS = 1000


def credit(pending_s: Sequence[float]) -> float:
    """Median pending time times length; the length alone while nobody has waited a second; 0 without jobs."""
    if not len(pending_s):
        return 0.0
    median = float(np.median(pending_s))
    return float(len(pending_s)) if median < 1 else median * len(pending_s)


def clusters(features: NDArray[np.float64], count: int, rng: np.random.Generator, *, scaled: bool = True) -> Ints:
    """Which of at most `count` clusters each job belongs to: k-means with Manhattan distance around members.

    The new centre is the member whose sum of features is nearest to the mean sum (released code). Unscaled, memory in
    MiB drowns everything else.
    """
    jobs = len(features)
    count = min(count, jobs)
    if count <= 1:
        return np.zeros(jobs, np.int64)
    table = features.astype(np.float64)
    if scaled:
        spread = np.ptp(table, axis=0)
        table = (table - table.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    centres = table[np.sort(rng.choice(jobs, count, replace=False))]
    of: Ints = np.full(jobs, -1, np.int64)
    for _ in range(MOST_ROUNDS):
        distance: Floats = np.abs(table[:, None, :] - centres[None, :, :]).sum(axis=2)
        new = distance.argmin(axis=1)
        if (new == of).all():
            break
        of = new.astype(np.int64)
        for c in range(count):
            members = np.flatnonzero(of == c)
            if len(members):
                sums = table[members].sum(axis=1)
                centres[c] = table[members[np.abs(sums - sums.mean()).argmin()]]
    return of
