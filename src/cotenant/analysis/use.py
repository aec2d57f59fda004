"""How busy GPUs are, by size, by status and by the number of nodes that a gang is spread over, where the log has it."""

from __future__ import annotations

from typing import Any

from cotenant.analysis.groups import bucket, by_group
from cotenant.analysis.table import JobTable
from cotenant.core.workload import Status
from cotenant.workload.describe import BUCKETS


def use(jobs: JobTable) -> dict[str, Any] | None:
    """Mean GPU utilisation of jobs (each job counts once); None where the log has none."""
    import polars as pl

    if "gpu_util" not in jobs.known:
        return None
    sizes = by_group(jobs, bucket(), "gpu_util")
    found: dict[str, Any] = {
        "all": _row(by_group(jobs, pl.lit("all"), "gpu_util")["all"]),
        "by_size": {name: _row(sizes[name]) for name in BUCKETS if name in sizes},
    }
    if "status" in jobs.known:
        names = {int(status): status.name.lower() for status in Status}
        found["by_status"] = {names[at]: _row(row) for at, row in by_group(jobs, pl.col("status"), "gpu_util").items()}
    if "servers" in jobs.known:
        key = pl.format("{} GPUs on {} nodes", pl.col("gpus"), pl.col("servers").cast(pl.Int64))
        gangs = by_group(jobs, pl.when(pl.col("gpus") > 1).then(key), "gpu_util")
        found["by_spread"] = {name: _row(row) for name, row in gangs.items() if name is not None}
    return found


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": row["jobs"], "mean": row["mean"], "p50": row["p50"], "p95": row["p95"]}


def spread(jobs: JobTable) -> dict[str, Any] | None:
    """Over how many nodes gangs are spread, by size; None where the log does not say."""
    if "servers" not in jobs.known:
        return None
    sizes = by_group(jobs, bucket(), "servers")
    return {name: _row(sizes[name]) for name in BUCKETS if name in sizes}


def advise(found: dict[str, Any]) -> str:
    """By how idle GPUs are."""
    mean = found["all"]["mean"]
    if mean < 0.6:
        return (
            f"GPUs that are held compute {mean:.0%} of the time: let small jobs share GPUs"
            " (`sjf-bsbf`, `antman`), and measure what starves them (`cotenant profile`)."
        )
    return f"GPUs that are held compute {mean:.0%} of the time: sharing them would slow jobs down more than it gains."


def advise_spread(found: dict[str, Any]) -> str:
    """By how far gangs of a node's size are spread."""
    row = found.get("5-8") or next(iter(found.values()))
    return (
        f"Jobs of 5 to 8 GPUs sit on {row['mean']:.1f} nodes on average: consolidated placement pays where that is"
        " more than one."
    )
