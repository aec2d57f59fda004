"""Every job of a run as one CSV row, in the row order of the workload: the same run gives the same bytes.

Times are seconds on the clock of the trace. Floats are written in their shortest form that reads back to the
same number; what did not happen (no start, no finish) is an empty cell.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, Floats

if TYPE_CHECKING:
    import polars

STATUSES = ("not-started", "unfinished", "finished")


def write_jobs_csv(outcome: Outcome, path: str | PathLike[str]) -> None:
    """Write one row per job."""
    frame = jobs_frame(outcome)
    # Opened here so that a bad path is an OSError like everywhere else.
    with open(path, "wb") as file:
        frame.write_csv(file, line_terminator="\n", quote_style="necessary")


def jobs_frame(outcome: Outcome) -> polars.DataFrame:
    """One row per job. `status` is where the job stood when the run ended, not its end in the log."""
    import polars as pl

    work = outcome.workload
    started = np.isfinite(outcome.first_start_s)
    ended = np.isfinite(outcome.finish_s)
    state = np.where(ended, 2, np.where(started, 1, 0)).astype(np.int64)
    frame = pl.DataFrame(
        {
            "job_id": pl.Series([str(name) for name in work.job_id.tolist()], dtype=pl.String),
            "submit_s": _plain(work.submit_s),
            "num_gpus": work.gpus,
            "duration_s": _plain(work.duration_s),
            "tenant": _names(work.tenant),
            "model": _names(work.model),
            "first_start_s": _plain(outcome.first_start_s),
            "finish_s": _plain(outcome.finish_s),
            "jct_s": _plain(outcome.jct_s),
            "queue_s": _plain(outcome.queue_s),
            "preemptions": outcome.preemptions,
            "restarts": outcome.restarts,
            "lost_gpu_s": _plain(outcome.lost_gpu_s),
            "status": _names(Codes(state, STATUSES)),
        }
    )
    floats = [name for name, kind in frame.schema.items() if kind == pl.Float64]
    return frame.with_columns(pl.col(floats).fill_nan(None))


def _plain(values: Floats) -> Floats:
    """Floats with one zero and one absent value: -0.0 becomes 0.0, infinities become NaN."""
    column = np.asarray(values, np.float64)
    return np.where(np.isfinite(column), column + 0.0, np.nan)


def _names(codes: Codes) -> polars.Series:
    """A coded text column; '' becomes an empty cell."""
    import polars as pl

    names = pl.Series([name or None for name in codes.names], dtype=pl.String)
    return names.gather(pl.Series(np.asarray(codes.code, np.int64)))
