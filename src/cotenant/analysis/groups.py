"""Sums and percentiles by group: exact, or from bins of 1 % where there are too many jobs to sort.

Percentiles interpolate linearly between jobs. Size buckets are those of the Philly study (ATC'19).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.core.workload import Floats
from cotenant.workload.describe import BUCKETS

if TYPE_CHECKING:
    import polars as pl

    from cotenant.analysis.table import JobTable

_BIN = math.log(1.01)
_LEAST = 1e-3  # seconds: whatever is shorter is in the first bin


def bucket() -> pl.Expr:
    """Size bucket of a job."""
    import polars as pl

    gpus = pl.col("gpus")
    return (
        pl.when(gpus <= 1).then(pl.lit(BUCKETS[0])).when(gpus <= 4).then(pl.lit(BUCKETS[1]))
        .when(gpus <= 8).then(pl.lit(BUCKETS[2])).otherwise(pl.lit(BUCKETS[3]))
    )  # fmt: skip


def gpu_hours() -> pl.Expr:
    """GPU-hours of some jobs."""
    import polars as pl

    return (pl.col("gpus") * pl.col("run_s")).sum() / 3600


def by_group(
    jobs: JobTable, key: pl.Expr, value: str, points: Sequence[float] = (0.5, 0.95)
) -> dict[Any, dict[str, Any]]:
    """Per group `jobs`, `gpu_hours`, `mean` and a percentile `p50`, ... of a column; jobs without it count nowhere."""
    import polars as pl

    some = jobs.frame.filter(pl.col(value).is_not_null()).with_columns(key.alias("group"))
    sums = {"jobs": pl.len(), "gpu_hours": gpu_hours(), "mean": pl.col(value).mean()}
    if jobs.exact:
        exact = {_name(at): pl.col(value).quantile(at, interpolation="linear") for at in points}
        rows = jobs.collect(some.group_by("group").agg(**sums, **exact)).to_dicts()
    else:
        rows = jobs.collect(some.group_by("group").agg(**sums)).to_dicts()
        bins = (pl.col(value).clip(_LEAST).log() / _BIN).floor().cast(pl.Int32)
        counts = jobs.collect(some.group_by("group", bins.alias("bin")).agg(count=pl.len()).sort("group", "bin"))
        for row in rows:
            of = counts.filter(pl.col("group") == row["group"])
            row |= _binned(of["bin"].to_numpy(), of["count"].to_numpy(), points)
    rows.sort(key=lambda row: (-row["gpu_hours"], row["group"]))
    return {row.pop("group"): row for row in rows}


def _binned(bins: Floats, counts: Floats, points: Sequence[float]) -> dict[str, float]:
    """Percentiles at the middle of the bin in which they lie: at most half a per cent off."""
    passed = np.cumsum(counts)
    at = [min(int(np.searchsorted(passed, point * passed[-1])), len(bins) - 1) for point in points]
    return {_name(point): float(np.exp((bins[i] + 0.5) * _BIN)) for point, i in zip(points, at, strict=True)}


def _name(point: float) -> str:
    return f"p{100 * point:g}"


def span(seconds: float) -> str:
    """A length of time in a sentence."""
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def share(part: float, whole: float) -> float:
    """Of one; 0 of nothing."""
    return part / whole if whole else 0.0
