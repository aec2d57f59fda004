"""How jobs ended, by jobs and by GPU time."""

from __future__ import annotations

from typing import Any

from cotenant.analysis.groups import by_group, share
from cotenant.analysis.table import JobTable
from cotenant.core.workload import Status


def statuses(jobs: JobTable) -> dict[str, dict[str, Any]] | None:
    """Passed, killed, failed, unknown; None where the log does not say."""
    import polars as pl

    if "status" not in jobs.known:
        return None
    found = by_group(jobs, pl.col("status"), "run_s")
    hours = sum(row["gpu_hours"] for row in found.values())
    return {
        status.name.lower(): {
            "jobs": row["jobs"], "jobs_share": share(row["jobs"], jobs.jobs), "gpu_hours": row["gpu_hours"],
            "gpu_hours_share": share(row["gpu_hours"], hours), "p50_run_s": row["p50"],
        }
        for status in (Status.PASSED, Status.KILLED, Status.FAILED, Status.UNKNOWN)
        if (row := found.get(int(status)))
    }  # fmt: skip


def killed_means(found: dict[str, dict[str, Any]] | None) -> str:
    """Whether killed jobs count, in one sentence for every report."""
    if found is None:
        return "the log does not say which jobs were killed: all count in every figure"
    row = found.get("killed", {"jobs": 0, "gpu_hours_share": 0.0})
    return f"killed jobs ({row['jobs']:,}, {row['gpu_hours_share']:.1%} of GPU time) count in every figure"


def advise(found: dict[str, dict[str, Any]]) -> str:
    """By what did not pass."""
    killed, failed = (found.get(name, {"gpu_hours_share": 0.0})["gpu_hours_share"] for name in ("killed", "failed"))
    if killed >= failed and killed > 0.2:
        return (
            f"{killed:.0%} of GPU time went to jobs that their owners killed: show them progress early"
            " (`cotenant top`, metrics of the runtime), and stop what has converged."
        )
    if failed > 0.05:
        return (
            f"{failed:.0%} of GPU time went to jobs that failed: try new jobs for a few minutes on one GPU before the"
            " gang is held, and let them save."
        )
    return "Most GPU time ends in jobs that pass: nothing to do here."
