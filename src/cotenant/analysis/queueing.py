"""How long jobs wait before their first start, by size and tenant: from the log where it says, else from a replay."""

from __future__ import annotations

from typing import Any

from cotenant.analysis.groups import bucket, by_group, span
from cotenant.analysis.replay import StandIn
from cotenant.analysis.runs import NO_TENANT
from cotenant.analysis.table import JobTable
from cotenant.workload.describe import BUCKETS

_ROW = ("jobs", "mean", "p50", "p95")


def queueing(jobs: JobTable, played: StandIn | None) -> dict[str, Any] | None:
    """Waits in seconds; `from` says whether the log tells them or a replay does. None where neither does."""
    if "wait_s" in jobs.known:
        table, origin = jobs, "log"
    elif played is not None:
        table, origin = played.table, played.about
    else:
        return None
    import polars as pl

    tenant = pl.when(pl.col("tenant") == "").then(pl.lit(NO_TENANT)).otherwise(pl.col("tenant"))
    sizes = by_group(table, bucket(), "wait_s")
    every = by_group(table, pl.lit("all"), "wait_s")["all"]
    late = table.one(share=(pl.col("wait_s") > 600).mean())["share"]
    found: dict[str, Any] = {
        "from": origin,
        "all": _row(every) | {"over_10_min": late},
        "by_size": {name: _row(sizes[name]) for name in BUCKETS if name in sizes},
    }
    if "tenant" in jobs.known:
        found["by_tenant"] = {name: _row(row) for name, row in by_group(table, tenant, "wait_s").items()}
    return found


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": row["jobs"]} | {f"{name}_wait_s": row[name] for name in _ROW[1:]}


def advise(found: dict[str, Any]) -> str:
    """By who waits longest."""
    sizes = {name: row for name, row in found["by_size"].items() if row["jobs"]}
    worst = max(sizes, key=lambda name: float(sizes[name]["mean_wait_s"] or 0))
    mean_s = sizes[worst]["mean_wait_s"] or 0.0
    if mean_s < 60:
        return "Nobody waits a minute on average: there is room, and idle nodes may sleep (`--power ces`)."
    if worst in ("1", "2-4"):
        return (
            f"Jobs of {worst} GPUs wait longest, {span(mean_s)} on average: backfill lets them use the gaps that"
            " large gangs leave."
        )
    return (
        f"Jobs of {worst} GPUs wait longest, {span(mean_s)} on average: a reservation that ages keeps small jobs"
        " from taking the GPUs that they wait for."
    )
