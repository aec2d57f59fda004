"""Day and week: when jobs are submitted."""

from __future__ import annotations

from typing import Any

from cotenant.analysis.table import JobTable

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_THURSDAY = 3  # the first of January 1970


def cycles(jobs: JobTable) -> dict[str, Any]:
    """Submissions by hour, and by weekday where the log has dates."""
    import polars as pl

    hour = (pl.col("submit_s") / 3600).floor().cast(pl.Int64)
    by_hour = _counts(jobs, hour % 24, 24)
    found: dict[str, Any] = {"by_hour": by_hour, "by_weekday": None}
    if jobs.dated:
        found["by_weekday"] = _counts(jobs, (hour // 24 + _THURSDAY) % 7, 7)
    mean = sum(by_hour) / 24
    found["busiest_hour"], found["quietest_hour"] = by_hour.index(max(by_hour)), by_hour.index(min(by_hour))
    found["peak_over_mean"], found["trough_over_mean"] = max(by_hour) / mean, min(by_hour) / mean
    return found


def _counts(jobs: JobTable, key: Any, size: int) -> list[int]:
    import polars as pl

    rows = jobs.collect(jobs.frame.group_by(key=key).agg(jobs=pl.len()))
    counts = dict(zip(rows["key"].to_list(), rows["jobs"].to_list(), strict=True))
    return [int(counts.get(at, 0)) for at in range(size)]


def advise(found: dict[str, Any]) -> str:
    """By how deep the trough is."""
    quiet = found["quietest_hour"]
    if found["peak_over_mean"] > 1.3:
        return (
            f"Submissions peak at {found['busiest_hour']}:00 with {found['peak_over_mean']:.1f} times the mean and are"
            f" fewest at {quiet}:00: put maintenance and best-effort work there."
        )
    return "Submissions are even over the day: maintenance hurts as much at any hour."
