"""What failed, why, and the GPU time that it cost.

The cost of a job that failed for good is all of its GPU time, of another the GPU time of its failed attempts.
"""

from __future__ import annotations

from typing import Any

from cotenant.analysis.groups import bucket, share
from cotenant.analysis.table import JobTable
from cotenant.core.workload import Status
from cotenant.workload.describe import BUCKETS

UNNAMED = "(no reason given)"


def failures(jobs: JobTable) -> dict[str, Any] | None:
    """By size and by reason; None where the log has neither statuses nor attempts."""
    import polars as pl

    if not jobs.known & {"status", "tries", "failure"}:
        return None
    failed = pl.col("status") == int(Status.FAILED)
    lost_s = pl.when(failed).then(pl.col("run_s")).otherwise(pl.col("tried_s"))
    sums = {
        "jobs": pl.len(), "failed": failed.sum(), "retries": pl.col("tries").sum(),
        "gpu_hours": (pl.col("gpus") * lost_s).sum() / 3600,
        "all_gpu_hours": (pl.col("gpus") * pl.col("run_s")).sum() / 3600,
    }  # fmt: skip
    sizes = {row.pop("size"): row for row in jobs.collect(jobs.frame.group_by(size=bucket()).agg(**sums)).to_dicts()}
    every = jobs.one(**sums)
    found: dict[str, Any] = {
        "gpu_hours": every["gpu_hours"],
        "gpu_hours_share": share(every["gpu_hours"], every["all_gpu_hours"]),
        "retries": every["retries"],
        "by_size": {
            name: {
                "failed": row["failed"], "failed_share": share(row["failed"], row["jobs"]),
                "retries_per_job": share(row["retries"], row["jobs"]), "gpu_hours": row["gpu_hours"],
            }
            for name in BUCKETS
            if (row := sizes.get(name))
        },
    }  # fmt: skip
    if "failure" in jobs.known:
        found["by_reason"] = _by_reason(jobs, failed | (pl.col("failure") != ""), lost_s)
    return found


def _by_reason(jobs: JobTable, some: Any, lost_s: Any) -> dict[str, dict[str, Any]]:
    import polars as pl

    reason = pl.when(pl.col("failure") == "").then(pl.lit(UNNAMED)).otherwise(pl.col("failure"))
    rows = jobs.collect(
        jobs.frame.filter(some)
        .group_by(reason=reason)
        .agg(
            jobs=pl.len(),
            users=pl.col("user").n_unique(),
            p50_run_s=pl.col("run_s").median(),
            gpu_hours=(pl.col("gpus") * lost_s).sum() / 3600,
        )
        .sort(["gpu_hours", "reason"], descending=[True, False])
    )
    return {row.pop("reason"): row for row in rows.to_dicts()}


def advise(found: dict[str, Any]) -> str:
    """By the dearest reason."""
    reasons = {name: row for name, row in found.get("by_reason", {}).items() if name != UNNAMED}
    cost = f"Failures cost {found['gpu_hours_share']:.1%} of GPU time"
    if reasons:
        top, row = next(iter(reasons.items()))
        return f"{cost}, most of it by '{top}' ({row['jobs']:,} jobs): begin there."
    if found["gpu_hours_share"] > 0.02:
        return (
            f"{cost}: let logs keep the reason of each failed attempt, and do not retry what fails at once"
            " and always (user errors)."
        )
    return f"{cost}: little to gain."
