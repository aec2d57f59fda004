"""Why jobs wait: fair share or fragmentation (Philly, ATC'19), from the log where it says, else from a replay.

Fair-share delay is waiting while the tenant holds its quota; all other waiting is fragmentation: the GPUs are not to be
had, or not together. In a replay the latter is told apart: `scattered_s` is waiting while enough
GPUs stood idle, only not where the job could use them. A job counts where most of its waiting belongs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cotenant.analysis.groups import bucket, share
from cotenant.analysis.replay import StandIn, measured
from cotenant.analysis.table import JobTable
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats, Ints
from cotenant.workload.describe import BUCKETS

_EDGES = np.array([1, 4, 8])
Quotas = dict[str, float]


def quotas_of(cluster: Cluster, tenants: dict[str, dict[str, Any]]) -> tuple[Quotas, str]:
    """GPUs per tenant, and where they come from: the cluster's file, or assumed to be its part of the GPU-hours."""
    if cluster.tenants is not None and cluster.tenants.guaranteed(""):
        return {name: float(cluster.tenants.guaranteed(name)) for name in tenants}, "the cluster's guarantees"
    if cluster.quotas:
        return {name: float(gpus) for name, gpus in cluster.quotas.items()}, "the cluster's quotas"
    assumed = {name: row["gpu_hours_share"] * cluster.gpus for name, row in tenants.items()}
    return assumed, "assumed: each tenant's part of the log's GPU-hours, of the cluster's GPUs"


def from_log(jobs: JobTable) -> dict[str, Any] | None:
    """Sums of what the log tells of each job; None where it does not."""
    import polars as pl

    if not {"fair_share_s", "fragmentation_s"} <= jobs.known:
        return None
    fair, fragmented = pl.col("fair_share_s").fill_null(0.0), pl.col("fragmentation_s").fill_null(0.0)
    rows = jobs.collect(
        jobs.frame.filter(fair + fragmented > 0)
        .group_by(size=bucket())
        .agg(
            jobs=pl.len(), fair_share_s=fair.sum(), fragmentation_s=fragmented.sum(),
            fair_share_jobs=(fair > fragmented).sum(),
        )
    )  # fmt: skip
    return _told("log", {row.pop("size"): row for row in rows.to_dicts()})


def from_replay(play: StandIn, quotas: Quotas, origin: str) -> dict[str, Any]:
    """Each measured job's waiting, second by second, against what its tenant and the cluster held then."""
    outcome = play.outcome
    rows = np.flatnonzero(measured(outcome))
    fair_s, scattered_s, wait_s = split(outcome, rows, quotas)
    place = np.searchsorted(_EDGES, outcome.workload.gpus[rows])
    sizes = {}
    for at, name in enumerate(BUCKETS):
        some = (place == at) & (wait_s > 0)
        if some.any():
            sizes[name] = {
                "jobs": int(some.sum()), "fair_share_s": float(fair_s[some].sum()),
                "fragmentation_s": float((wait_s - fair_s)[some].sum()),
                "fair_share_jobs": int((fair_s > wait_s - fair_s)[some].sum()),
                "scattered_s": float(scattered_s[some].sum()),
            }  # fmt: skip
    return _told(play.about, sizes) | {"quotas": origin}


def split(outcome: Outcome, rows: Ints, quotas: Quotas) -> tuple[Floats, Floats, Floats]:
    """Per row seconds of fair-share delay, of other waiting while enough GPUs were idle, and of waiting at all."""
    work = outcome.workload
    start, end = outcome.first_start_s, outcome.finish_s
    ran = np.isfinite(start) & np.isfinite(end)
    every = _Held(start[ran], end[ran], work.gpus[ran])
    held = {
        code: _Held(start[mask], end[mask], work.gpus[mask])
        for code in np.unique(work.tenant.code[rows]).tolist()
        if (mask := ran & (work.tenant.code == code)).any()
    }
    fair_s, scattered_s = np.zeros(len(rows)), np.zeros(len(rows))
    wait_s = np.maximum(start[rows] - work.submit_s[rows], 0.0)
    for at in np.flatnonzero(wait_s > 0).tolist():
        row = int(rows[at])
        code, gpus = int(work.tenant.code[row]), int(work.gpus[row])
        own, since, until = held[code], float(work.submit_s[row]), float(start[row])
        edges = np.concatenate([[since], own.changes(since, until), every.changes(since, until), [until]])
        edges.sort()
        lasts = np.diff(edges)
        at_quota = own.at(edges[:-1]) > quotas.get(work.tenant.names[code], np.inf) - 1  # not one GPU more
        idle = every.at(edges[:-1]) <= outcome.cluster_gpus - gpus
        fair_s[at], scattered_s[at] = lasts[at_quota].sum(), lasts[idle & ~at_quota].sum()
    return fair_s, scattered_s, wait_s


class _Held:
    """GPUs that some jobs hold over time."""

    def __init__(self, start_s: Floats, end_s: Floats, gpus: Ints) -> None:
        times = np.concatenate([start_s, end_s])
        order = np.argsort(times, kind="stable")
        self._times = times[order]
        self._held = np.concatenate([[0], np.cumsum(np.concatenate([gpus, -gpus])[order])])

    def changes(self, since_s: float, until_s: float) -> Floats:
        """Moments between these two at which it changes."""
        first, last = np.searchsorted(self._times, [since_s, until_s], side="right")
        return self._times[first:last]

    def at(self, times_s: Floats) -> Ints:
        """How many, from each of these moments on."""
        return np.asarray(self._held[np.searchsorted(self._times, times_s, side="right")], np.int64)


def _told(origin: str, sizes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rows = {name: sizes[name] for name in BUCKETS if name in sizes}
    for row in rows.values():
        row["fragmentation_jobs_share"] = 1 - share(row.pop("fair_share_jobs"), row["jobs"])
        row["fragmentation_time_share"] = share(row["fragmentation_s"], row["fair_share_s"] + row["fragmentation_s"])
    waits = sum(row["fair_share_s"] + row["fragmentation_s"] for row in rows.values())
    fragmented = sum(row["fragmentation_s"] for row in rows.values())
    return {"from": origin, "by_size": rows, "fragmentation_time_share": share(fragmented, waits), "waited_s": waits}


def advise(found: dict[str, Any]) -> str:
    """By which of the two is more."""
    if not found["waited_s"]:
        return "Nobody waits: nothing to do."
    part = found["fragmentation_time_share"]
    if part > 0.6:
        return (
            f"{part:.0%} of waiting is fragmentation: pack small jobs, move or backfill around gangs, relax locality"
            " after a while; larger quotas would not help."
        )
    if part < 0.4:
        return (
            f"{1 - part:.0%} of waiting is fair share: tenants wait at their quotas, so lend idle GPUs to them and take"
            " them back by preemption (`tenants:` in the cluster file)."
        )
    return f"Waiting is {part:.0%} fragmentation and {1 - part:.0%} fair share: quotas and placement matter alike."
