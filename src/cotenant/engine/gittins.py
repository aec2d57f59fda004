"""The Gittins index over past services (Tiresias, NSDI'19, section 3.2)."""

from __future__ import annotations

import numpy as np

from cotenant.core.columns import H_BELOW, H_WITHIN
from cotenant.core.jit import kernel
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats


@kernel
def gittins_index(
    samples: Floats, prefix: Floats, counts: Floats, supremum: bool, attained: float, quantum: float
) -> float:
    """Gittins index of a job that has attained this much service, over distinct past services.

    P(S - a <= D | S > a) / E[min(S - a, D) | S > a]; for the supremum over D it is enough to look at
    D = s - a for the samples s above a (Tiresias, section 3.2). Above the largest sample it is 0.
    `prefix` and `counts` hold sums and numbers of all services up to each sample. All in GPU-seconds.
    """
    size = len(samples)
    below = int(np.searchsorted(samples, attained, "right"))
    if below >= size:
        return 0.0
    if not supremum:
        within = int(np.searchsorted(samples, attained + quantum, "right"))
        return _value(prefix, counts, below, within, attained, quantum)
    best = 0.0
    for last in range(below, size):
        best = max(best, _value(prefix, counts, below, last + 1, attained, samples[last] - attained))
    return best


@kernel
def gittins_further(
    samples: Floats, prefix: Floats, counts: Floats, hot: Matrix, k: int, attained: float, quantum: float
) -> float:
    """The same for one quantum and a running job: its place among the samples only moves up, so it is kept."""
    size = len(samples)
    below, within = int(hot[H_BELOW, k]), int(hot[H_WITHIN, k])
    if below < 0:
        below = int(np.searchsorted(samples, attained, "right"))
        within = int(np.searchsorted(samples, attained + quantum, "right"))
    while below < size and samples[below] <= attained:
        below += 1
    while within < size and samples[within] <= attained + quantum:
        within += 1
    hot[H_BELOW, k], hot[H_WITHIN, k] = below, within
    return _value(prefix, counts, below, within, attained, quantum)


@kernel
def _value(prefix: Floats, counts: Floats, below: int, within: int, attained: float, quantum: float) -> float:
    """Services in (a, a + D] over what all services above a cost up to D each."""
    ending = counts[within] - counts[below]
    cost = prefix[within] - prefix[below] - ending * attained
    beyond = counts[len(counts) - 1] - counts[within]
    if beyond > 0:
        cost += beyond * quantum
    return float(ending / cost) if cost > 0 else 0.0
