"""How GPU time is shared among users: a few hold much of it (Helios, SC'21: 5 % of users hold 45 to 60 %)."""

from __future__ import annotations

import math
from typing import Any

from cotenant.analysis.groups import by_group, share
from cotenant.analysis.table import JobTable

_SHOWN = 10


def users(jobs: JobTable) -> dict[str, Any] | None:
    """How many there are, the part of the top 5 %, and the ten with the most GPU-hours; None without users."""
    import polars as pl

    if "user" not in jobs.known:
        return None
    rows = by_group(jobs, pl.col("user"), "run_s")
    hours = sum(row["gpu_hours"] for row in rows.values())
    most = math.ceil(len(rows) * 0.05)
    by_jobs = sorted((row["jobs"] for row in rows.values()), reverse=True)
    return {
        "users": len(rows),
        "top_5_percent_gpu_hours_share": share(sum(row["gpu_hours"] for row in list(rows.values())[:most]), hours),
        "top_5_percent_jobs_share": share(sum(by_jobs[:most]), jobs.jobs),
        "top": {
            user or "(no user)": {
                "jobs": row["jobs"], "gpu_hours": row["gpu_hours"], "gpu_hours_share": share(row["gpu_hours"], hours),
                "p50_run_s": row["p50"],
            }
            for user, row in list(rows.items())[:_SHOWN]
        },
    }  # fmt: skip


def advise(found: dict[str, Any]) -> str:
    """By how much few hold."""
    top = found["top_5_percent_gpu_hours_share"]
    if top > 0.4:
        return (
            f"5 % of {found['users']} users hold {top:.0%} of the GPU time: limits per user (GPUs, running jobs) and a"
            " half-life for past use keep the others from waiting for them."
        )
    return f"5 % of {found['users']} users hold {top:.0%} of the GPU time: nobody crowds the others out."
