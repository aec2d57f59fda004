"""Outcomes as data frames (polars), and data frames in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.core.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

SHOWN_ROWS = 10


def jobs_frame(outcome: Outcome) -> pl.DataFrame:
    """One row per job: what it asked for, when it started and finished, how long it waited."""
    from cotenant.report.jobs_csv import jobs_frame as rows_of

    return rows_of(outcome)


def timeline_frame(outcome: Outcome) -> pl.DataFrame:
    """The cluster over time, sampled at decisions."""
    import polars as pl

    series = outcome.series
    return pl.DataFrame(
        {
            "time_s": series.time_s,
            "gpus_busy": series.gpus_busy,
            "jobs_waiting": series.jobs_waiting,
            "jobs_running": series.jobs_running,
        }
    )


def segments_frame(outcome: Outcome) -> pl.DataFrame:
    """Who held how many GPUs of which node, from when to when."""
    import polars as pl

    pieces = outcome.segments
    names = np.array([str(name) for name in outcome.workload.job_id.tolist()], dtype=object)
    return pl.DataFrame(
        {
            "job_id": pl.Series(names[pieces.job].tolist(), dtype=pl.String),
            "node": pieces.node,
            "gpus": pieces.gpus,
            "start_s": pieces.start_s,
            "end_s": pieces.end_s,
        }
    )


def rows_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of plain values, whatever keys they have."""
    import polars as pl

    return pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)


def labelled(frames: Sequence[tuple[Outcome, pl.DataFrame]]) -> pl.DataFrame:
    """Frames of several runs below each other, with what tells the runs apart in front."""
    import polars as pl

    made = []
    for outcome, frame in frames:
        keys = {"policy": outcome.policy, "seed": outcome.summary.get("seed")}
        keys |= {key: outcome.summary[key] for key in ("load", "varied") if key in outcome.summary}
        made.append(frame.select(*(pl.lit(value).alias(key) for key, value in keys.items()), pl.all()))
    return pl.concat(made) if made else pl.DataFrame()


def pandas_of(frame: pl.DataFrame) -> pd.DataFrame:
    """The same for pandas, without needing pyarrow."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("pandas is not installed: pip install pandas, or use the polars frame") from None
    return pd.DataFrame(frame.to_dict(as_series=False))


def html_table(frame: pl.DataFrame, caption: str) -> str:
    """A small table for notebooks; everything from the user is escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in frame.head(SHOWN_ROWS).iter_rows()
    )
    more = f"<p>{len(frame) - SHOWN_ROWS:,} more rows</p>" if len(frame) > SHOWN_ROWS else ""
    head = f"<caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>{more}"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
