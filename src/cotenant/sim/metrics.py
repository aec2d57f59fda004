"""Numbers over the measured jobs of a run. Percentiles interpolate linearly."""

from __future__ import annotations

import resource
import sys

import numpy as np

from cotenant.core import columns as col
from cotenant.core.outcome import Scalar
from cotenant.core.state import State
from cotenant.core.workload import Floats, Ints
from cotenant.sim.ended import Ended

_NAMES = ("avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "max_jct_s", "avg_queue_s", "fairness_jain")


def jct_metrics(jct_s: Floats, queue_s: Floats, duration_s: Floats) -> dict[str, Scalar]:
    """Completion and queueing of finished jobs.

    `fairness_jain` is Jain's index of duration over completion time: 1 when all jobs are slowed down alike.
    """
    if not len(jct_s):
        return dict.fromkeys(_NAMES)
    p50, p95, p99 = percentiles(jct_s, 0.5, 0.95, 0.99)
    rate = np.divide(duration_s, jct_s, out=np.ones_like(jct_s), where=jct_s > 0)
    squares = float((rate**2).sum())
    jain = rate.sum() ** 2 / (len(rate) * squares) if squares > 0 else 1.0
    values = jct_s.mean(), p50, p95, p99, jct_s.max(), queue_s.mean(), jain
    return {name: float(value) for name, value in zip(_NAMES, values, strict=True)}


def lost_parts(ended: Ended, gpus: Ints, start_up_s: Floats, restore_s: Floats) -> tuple[Floats, Floats]:
    """Of the GPU-seconds that each job lost: starting up at first, and coming back at later starts.

    Both are what the starts cost, at most what was lost: a job that is stopped before it is ready, or goes on after a
    suspension, is charged less. What is left over was done again.
    """
    lost = ended.lost_gpu_s
    first = np.where(ended.starts > 0, np.minimum(start_up_s * gpus, lost), 0.0)
    again_s = (start_up_s + restore_s) * np.maximum(ended.starts - 1, 0)
    return first, np.minimum(again_s * gpus, lost - first)


def percentiles(values: Floats, *shares: float) -> list[float]:
    """`np.quantile`, to the bit, without loading masked arrays for it: that takes longer than a small run."""
    ordered, found = np.sort(values), []
    for share in shares:
        place = share * (len(ordered) - 1)
        low = int(place)
        low_s, high_s, part = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)]), place - low
        gap = high_s - low_s
        found.append(low_s + gap * part if part < 0.5 else high_s - gap * (1 - part))
    return found


def stop_ledger(state: State) -> dict[str, Scalar]:
    """Stops by which an order meant to gain, and the sums of gains and costs as weighed then; nothing without any.

    Those are left out for which an owner's priority decided.
    """
    stops = int(state.x[col.N_WEIGHED])
    if not stops:
        return {}
    return {
        "weighed_stops": stops,
        "stop_gain_s": float(state.t[col.GAINED_S]),
        "stop_cost_s": float(state.t[col.PAID_S]),
    }


def peak_rss_mib() -> float:
    """Peak resident memory of this process."""
    scale = 1024 if sys.platform != "darwin" else 1024 * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale
