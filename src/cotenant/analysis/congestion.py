"""How many GPUs were wanted over time, and the stretch of the log in which that was worst.

Wanted are the GPUs of all jobs between submission and end. Where a log does not say how long jobs waited, they are
taken to have started when they were submitted, so it is what an endless cluster would have been asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.analysis.table import JobTable
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.workload import Codes, Floats, Workload, make_workload

WINDOW_JOBS = 5000
_BIN_S = 3600.0
_MOST_BINS = 200_000
_NODE_GPUS = 8
_PART = 90  # per cent of the time that an assumed cluster suffices for what is wanted


@dataclass(frozen=True, slots=True)
class GpusWanted:
    """By bins of time from `first_s`: GPUs wanted and used at its end, submissions and GPU-seconds of waiting in it."""

    first_s: float
    bin_s: float
    wanted: Floats
    used: Floats
    jobs: Floats
    waited_gpu_s: Floats


def demand(jobs: JobTable) -> GpusWanted:
    """One pass over the log; bins of an hour, longer ones where it spans decades."""
    import polars as pl

    waits = "wait_s" in jobs.known
    wait = pl.col("wait_s").fill_null(0.0) if waits else pl.lit(0.0)
    ends = jobs.one(first=pl.col("submit_s").min(), last=(pl.col("submit_s") + wait + pl.col("run_s")).max())
    first, span = ends["first"], max(ends["last"] - ends["first"], 1.0)
    bin_s = max(_BIN_S, span / _MOST_BINS)
    bins = int(span // bin_s) + 1

    def total(at: Any, what: Any) -> Floats:
        key = ((at - first) / bin_s).floor().cast(pl.Int64)
        rows = jobs.collect(jobs.frame.group_by(key=key).agg(sum=what))
        found = np.zeros(bins)
        found[np.clip(rows["key"].to_numpy(), 0, bins - 1)] = rows["sum"].to_numpy()
        return found

    gpus, submit = pl.col("gpus").sum(), pl.col("submit_s")
    ended = total(submit + wait + pl.col("run_s"), gpus)
    wanted = np.cumsum(total(submit, gpus) - ended)
    used = np.cumsum(total(submit + wait, gpus) - ended) if waits else wanted
    waited = total(submit, (pl.col("gpus") * wait).sum()) if waits else np.zeros(bins)
    return GpusWanted(first, bin_s, wanted, used, total(submit, pl.len()), waited)


def assumed_cluster(seen: GpusWanted, waits: bool, largest: int) -> tuple[Cluster, str]:
    """Nodes of 8 GPUs for a log that does not say what it ran on, and how their number comes about."""
    begun = np.cumsum(seen.jobs) >= 0.01 * seen.jobs.sum()
    open_ = begun & (np.cumsum(seen.jobs[::-1])[::-1] > 0)
    if waits:
        gpus, why = float(seen.used.max()), "the most GPUs that the log shows in use at a time"
    else:
        gpus = float(np.percentile(seen.wanted[open_], _PART))
        why = f"what is wanted at {_PART} % of the time, if nobody waited"
    nodes = max(int(np.ceil(max(gpus, largest) / _NODE_GPUS)), 1)
    return Cluster((NodeGroup(nodes, _NODE_GPUS),), spec=f"{nodes}x{_NODE_GPUS}"), why


@dataclass(frozen=True, slots=True)
class Stretch:
    """The jobs to replay: `jobs` submissions in a row from `from_s` on, before `to_s`."""

    from_s: float
    to_s: float
    jobs: int
    chosen_by: str


def worst_window(seen: GpusWanted, waits: bool, gpus: int, size: int = WINDOW_JOBS) -> Stretch:
    """The `size` submissions in a row, from the beginning of an hour, with the most congestion."""
    total = int(seen.jobs.sum())
    before = np.concatenate([[0.0], np.cumsum(seen.jobs)])
    if total <= size:
        return Stretch(seen.first_s, np.inf, total, "all of the log")
    starts = np.flatnonzero((seen.jobs > 0) & (before[-1] - before[:-1] >= size))
    stops = np.searchsorted(before, before[starts] + size)
    if waits:
        weight, what = seen.waited_gpu_s, "the longest waiting in GPU-hours"
    elif (seen.wanted > gpus).any():
        weight, what = np.maximum(seen.wanted - gpus, 0.0), f"the highest mean of GPUs wanted beyond {gpus:,}"
    else:
        weight, what = seen.wanted, f"the highest mean of GPUs wanted (never beyond {gpus:,})"
    summed = np.concatenate([[0.0], np.cumsum(weight)])
    score = summed[stops] - summed[starts]
    score = score if waits else score / (stops - starts)
    best = int(np.argmax(score))
    at = seen.first_s + starts[best] * seen.bin_s, seen.first_s + stops[best] * seen.bin_s
    return Stretch(float(at[0]), float(at[1]), size, f"{size:,} submissions in a row with {what}")


CARRIED = "before-"


def workload_of(jobs: JobTable, window: Stretch) -> Workload:
    """The jobs of the window, and those that ran when it began, with what is left of them (ids `before-...`)."""
    import polars as pl

    wait = pl.col("wait_s").fill_null(0.0) if "wait_s" in jobs.known else pl.lit(0.0)
    names = ["submit_s", "gpus", "run_s", "tenant", "user", "status"]
    inside = (pl.col("submit_s") >= window.from_s) & (pl.col("submit_s") < window.to_s)
    own = jobs.collect(jobs.frame.filter(inside).select(names)).sort("submit_s", maintain_order=True).head(window.jobs)
    end = pl.col("submit_s") + wait + pl.col("run_s")
    left = (
        jobs.frame.filter((pl.col("submit_s") < window.from_s) & (end > window.from_s))
        .with_columns(run_s=pl.min_horizontal("run_s", end - window.from_s))
        .select(names)
    )
    before = jobs.collect(left).sort("submit_s", maintain_order=True).with_columns(submit_s=pl.lit(window.from_s))
    rows = pl.concat([before, own])
    ids = [f"{CARRIED}{at}" for at in range(len(before))] + [str(at) for at in range(len(own))]
    return make_workload(
        jobs.source,
        rows["submit_s"].to_numpy() - window.from_s,
        rows["gpus"].to_numpy().astype(np.int64),
        np.maximum(rows["run_s"].to_numpy(), 1.0),
        job_id=np.array(ids, dtype=object),
        tenant=Codes.of(rows["tenant"].to_list()),
        user=Codes.of(rows["user"].to_list()),
    )


def congestion(seen: GpusWanted, gpus: int) -> dict[str, Any]:
    """What was wanted against what there is."""
    submitted = np.flatnonzero(seen.jobs)
    wanted = seen.wanted[submitted[0] : submitted[-1] + 1]
    return {
        "gpus_wanted_mean": float(wanted.mean()),
        "gpus_wanted_peak": float(wanted.max()),
        "wanted_beyond_cluster_share_of_time": float((wanted > gpus).mean()),
    }


def advise(found: dict[str, Any], gpus: int) -> str:
    """By how often more is wanted than there is."""
    over = found["wanted_beyond_cluster_share_of_time"]
    if over > 0.3:
        return (
            f"At {over:.0%} of the time more is wanted than {gpus:,} GPUs: some have to wait then, whatever the order;"
            " weigh more nodes against what order and placement save."
        )
    if over > 0:
        return f"At {over:.0%} of the time more is wanted than {gpus:,} GPUs: the order in which jobs run decides then."
    return f"Never is more wanted than {gpus:,} GPUs: waiting comes from placement and order alone."
