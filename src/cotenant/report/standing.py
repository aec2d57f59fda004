"""Who fared how under a policy, and where the GPU time went: numbers and tables from one outcome.

* *Fair ratio* of a job: its completion time over what it would have been had everybody always had an equal share, that
  is its duration times the demand (GPUs of all unfinished jobs over GPUs of the cluster, at least 1) in its lifetime.
  1 is an equal share, 2 is twice as late.
* *Steady state*: from when a tenth of the jobs have come until nine tenths have: neither filling up nor the idle tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, Floats
from cotenant.report.curves import SIZE_CLASSES, size_class

LARGE_GPUS = 8
STEADY = (0.1, 0.9)


def fair_ratio(outcome: Outcome) -> Floats:
    """Of every job that finished, else NaN."""
    work, done = outcome.workload, np.isfinite(outcome.finish_s)
    ends = np.where(done, outcome.finish_s, outcome.series.time_s[-1] if len(outcome.series.time_s) else np.nan)
    times = np.concatenate([work.submit_s, ends])
    change = np.concatenate([work.gpus, -work.gpus]).astype(np.float64)
    order = np.argsort(times, kind="stable")
    times, demand = times[order], np.cumsum(change[order])
    crowd = np.maximum(demand / max(outcome.cluster_gpus, 1), 1.0)
    area = np.concatenate([[0.0], np.cumsum(crowd[:-1] * np.diff(times))])
    jct = outcome.jct_s
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (np.interp(ends, times, area) - np.interp(work.submit_s, times, area)) / jct
        ratio = jct / (np.maximum(work.duration_s, 1.0) * np.maximum(mean, 1.0))
    return np.where(done & outcome.measured, ratio, np.nan)


def by_group(outcome: Outcome, codes: Codes, most: int = 12) -> list[dict[str, Any]]:
    """One row per tenant or user, the largest first: jobs, mean completion time, slowdown, fair ratio, worst tenth."""
    ratio = fair_ratio(outcome)
    rows: list[dict[str, Any]] = []
    for code in np.unique(codes.code[outcome.finished]):
        mine = outcome.finished & (codes.code == code)
        slow = outcome.jct_s[mine] / np.maximum(outcome.workload.duration_s[mine], 1.0)
        rows.append(
            {
                "name": codes.names[code] or "(none)", "jobs": int(mine.sum()),
                "avg_jct_s": float(outcome.jct_s[mine].mean()), "slowdown": float(np.median(slow)),
                "fair_ratio": float(ratio[mine].mean()), "worst_tenth": worst_tenth(ratio[mine]),
            }
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row["jobs"])[:most]


def worst_tenth(values: Floats) -> float | None:
    """The mean of the largest tenth."""
    known = np.sort(values[np.isfinite(values)])
    return float(known[-max(len(known) // 10, 1) :].mean()) if len(known) else None


def jain(values: Sequence[float]) -> float | None:
    """Jain's index: 1 when all are equal."""
    array = np.asarray(values, np.float64)
    squares = float((array**2).sum())
    return float(array.sum() ** 2 / (len(array) * squares)) if squares > 0 else None


def slowdown_by_size(outcome: Outcome) -> list[tuple[str, Floats]]:
    """Completion time over duration, per class of job size; classes without jobs are left out."""
    done = outcome.finished & (outcome.workload.duration_s > 0)
    slow, kind = outcome.jct_s[done] / outcome.workload.duration_s[done], size_class(outcome.workload.gpus[done])
    return [(label, slow[kind == k]) for k, label in enumerate(SIZE_CLASSES) if (kind == k).any()]


def waterfall(outcome: Outcome) -> dict[str, float]:
    """GPU-hours of the cluster from the first submission to the last end, by what became of them."""
    time_s, busy = outcome.series.time_s, outcome.series.gpus_busy
    held_s = np.diff(time_s)
    idle = np.maximum(outcome.cluster_gpus - busy[:-1], 0.0) * held_s / 3600
    waited = outcome.series.jobs_waiting[:-1] > 0
    lost, startup, restoring = (
        float(column.sum()) / 3600 for column in (outcome.lost_gpu_s, outcome.startup_gpu_s, outcome.restoring_gpu_s)
    )
    used = float((busy[:-1] * held_s).sum()) / 3600
    return {
        "useful": max(used - lost, 0.0), "start-up": startup, "restoring": restoring,
        "done again": max(lost - startup - restoring, 0.0),
        "idle while jobs waited": float(idle[waited].sum()), "idle": float(idle[~waited].sum()),
    }  # fmt: skip


def steady_window(outcome: Outcome) -> tuple[float, float]:
    """When a tenth of the jobs have come, and when nine tenths have."""
    low, high = np.quantile(outcome.workload.submit_s, STEADY)
    return float(low), float(high)


def steady_utilisation(outcome: Outcome) -> float | None:
    """GPUs in use over GPUs of the cluster, in steady state."""
    low, high = steady_window(outcome)
    time_s, busy = outcome.series.time_s, outcome.series.gpus_busy
    if high <= low or len(time_s) < 2:
        return None
    area = np.concatenate([[0.0], np.cumsum(busy[:-1] * np.diff(time_s))])
    return float((np.interp(high, time_s, area) - np.interp(low, time_s, area)) / ((high - low) * outcome.cluster_gpus))


def busiest_window(outcomes: Sequence[Outcome], part: float = 0.1) -> tuple[float, float] | None:
    """The stretch of a tenth of the time of submissions in which most jobs waited, over all runs together."""
    charted = [outcome for outcome in outcomes if len(outcome.series.time_s) > 1]
    if not charted:
        return None
    start = min(float(outcome.workload.submit_s[0]) for outcome in charted)
    end = max(float(outcome.workload.submit_s[-1]) for outcome in charted)
    length = (end - start) * part
    if length <= 0:
        return None
    starts = np.linspace(start, max(end - length, start), 200)
    total = np.zeros(len(starts))
    for outcome in charted:
        time_s = outcome.series.time_s
        area = np.concatenate([[0.0], np.cumsum(outcome.series.jobs_waiting[:-1] * np.diff(time_s))])
        gained: NDArray[np.float64] = np.interp(starts + length, time_s, area) - np.interp(starts, time_s, area)
        total += gained / max(float(area[-1]), 1.0)
    first = float(starts[int(np.argmax(total))])
    return (first, first + length) if total.max() > 0 else None


def figures_of(outcome: Outcome) -> dict[str, float | None]:
    """Numbers for a row of a comparison, beside those of the summary."""
    ratio = fair_ratio(outcome)
    large = outcome.finished & (outcome.workload.gpus > LARGE_GPUS)
    tenants = by_group(outcome, outcome.workload.tenant, most=1_000_000)
    parts = waterfall(outcome) if len(outcome.series.time_s) > 1 else {}
    return {
        "steady_utilization": steady_utilisation(outcome),
        "large_jct_s": float(outcome.jct_s[large].mean()) if large.any() else None,
        "worst_tenth": worst_tenth(ratio),
        "tenants_jain": jain([1.0 / row["fair_ratio"] for row in tenants if row["fair_ratio"]])
        if len(tenants) > 1
        else None,
        "idle_waiting_gpu_h": parts.get("idle while jobs waited"),
    }
