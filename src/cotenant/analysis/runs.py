"""How long jobs run, by size and tenant, and where the GPU-hours go."""

from __future__ import annotations

from typing import Any

from cotenant.analysis.groups import bucket, by_group, share
from cotenant.analysis.table import JobTable
from cotenant.workload.describe import BUCKETS

NO_TENANT = "(no tenant)"
_POINTS = (0.5, 0.9, 0.95, 0.99)


def totals(jobs: JobTable) -> dict[str, Any]:
    """Jobs, GPU-hours, span and sizes of the whole log, and its durations."""
    import polars as pl

    from cotenant.analysis.groups import gpu_hours

    found = jobs.one(
        jobs=pl.len(), gpu_hours=gpu_hours(), first_submit_s=pl.col("submit_s").min(),
        last_submit_s=pl.col("submit_s").max(), mean_gpus=pl.col("gpus").mean(), largest_gpus=pl.col("gpus").max(),
        over_a_week_share=(pl.col("run_s") > 7 * 86400).mean(),
        longest_s=pl.col("run_s").max(), at_longest=(pl.col("run_s") == pl.col("run_s").max()).sum(),
    )  # fmt: skip
    found["span_s"] = found["last_submit_s"] - found["first_submit_s"]
    every = by_group(jobs, pl.lit("all"), "run_s", _POINTS)["all"]
    found["run_s"] = {name: every[name] for name in ("mean", "p50", "p90", "p95", "p99")}
    if "first_to_last_s" in jobs.known:
        whole = by_group(jobs, pl.lit("all"), "first_to_last_s", _POINTS)["all"]
        found["first_to_last_s"] = {name: whole[name] for name in ("mean", "p50", "p90", "p95", "p99")}
    return found


def by_size(jobs: JobTable) -> dict[str, dict[str, Any]]:
    """The four buckets of sizes, also those without jobs."""
    found = by_group(jobs, bucket(), "run_s")
    hours = sum(row["gpu_hours"] for row in found.values())
    return {name: _row(found.get(name), jobs.jobs, hours) for name in BUCKETS}


def by_tenant(jobs: JobTable) -> dict[str, dict[str, Any]]:
    """Every tenant, the one with the most GPU-hours first; nobody where the log names none."""
    import polars as pl

    if "tenant" not in jobs.known:
        return {}
    name = pl.when(pl.col("tenant") == "").then(pl.lit(NO_TENANT)).otherwise(pl.col("tenant"))
    found = by_group(jobs, name, "run_s")
    hours = sum(row["gpu_hours"] for row in found.values())
    return {tenant: _row(row, jobs.jobs, hours) for tenant, row in found.items()}


def _row(row: dict[str, Any] | None, jobs: int, hours: float) -> dict[str, Any]:
    if row is None:
        row = {"jobs": 0, "gpu_hours": 0.0, "mean": None, "p50": None, "p95": None}
    return {
        "jobs": row["jobs"], "gpu_hours": row["gpu_hours"], "jobs_share": share(row["jobs"], jobs),
        "gpu_hours_share": share(row["gpu_hours"], hours), "mean_run_s": row["mean"], "p50_run_s": row["p50"],
        "p95_run_s": row["p95"],
    }  # fmt: skip


def advise(sizes: dict[str, dict[str, Any]], run_s: dict[str, float]) -> str:
    """By how unequal sizes and lengths are."""
    small, large = sizes["1"], sizes[">8"]
    skew = run_s["mean"] / run_s["p50"] if run_s["p50"] else 1.0
    if small["jobs_share"] > 0.5 and small["gpu_hours_share"] < 0.4:
        return (
            f"{small['jobs_share']:.0%} of the jobs ask for one GPU and hold {small['gpu_hours_share']:.0%} of the"
            " GPU-hours: pack them on few nodes, so that whole nodes stay free for the gangs that hold the rest."
        )
    if large["gpu_hours_share"] > 0.5:
        return (
            f"Jobs of more than 8 GPUs hold {large['gpu_hours_share']:.0%} of the GPU-hours: keep nodes empty for them"
            " (consolidated placement, reservations that age) before anything else."
        )
    if skew > 3:
        return (
            f"The mean job runs {skew:.0f} times as long as the median one: an order by remaining or attained service"
            " (srtf, tiresias-l) lets the many short ones out first."
        )
    return "Sizes and lengths are even: order and placement matter little here, capacity does."


def advise_tenants(tenants: dict[str, dict[str, Any]]) -> str:
    """By who holds most."""
    top, row = next(iter(tenants.items()))
    if len(tenants) == 1:
        return f"There is one tenant, {top}: give its groups tenants of their own, or nothing can be shared out."
    return (
        f"{top} holds {row['gpu_hours_share']:.0%} of the GPU-hours of {len(tenants)} tenants: compare that with what"
        " it is entitled to (`cotenant share`), and set guarantees by it."
    )
