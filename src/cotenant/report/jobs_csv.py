"""Every job of a run as one CSV row, in the row order of the workload: the same run gives the same bytes.

Times are seconds on the clock of the trace. Floats are written in their shortest form that reads back to the
same number; what did not happen (no start, no finish) is an empty cell. A long run is written in parts, each when its
jobs and all before them have ended, so that nothing is kept for the file.
"""

from __future__ import annotations

from os import PathLike
from types import TracebackType
from typing import IO, TYPE_CHECKING

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, Floats

if TYPE_CHECKING:
    import polars

_ROWS = 65_536  # written at a time
STATUSES = ("not-started", "unfinished", "finished")


class JobsCsv:
    """The file while it is written: give it the jobs in order. It is opened with the first of them, not before."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def add(self, part: Outcome) -> None:
        """Write some jobs, so many at a time that the text of all of them need not fit in memory."""
        for first in range(0, max(len(part.workload), 1), _ROWS):
            self._write(jobs_frame(part.rows(first, first + _ROWS)))

    def _write(self, frame: polars.DataFrame) -> None:
        header = self._file is None
        if self._file is None:
            self._file = open(self._path, "wb")  # noqa: SIM115
        frame.write_csv(self._file, include_header=header, line_terminator="\n", quote_style="necessary")
        self._file.flush()

    def __enter__(self) -> JobsCsv:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()


def write_jobs_csv(outcome: Outcome, path: str | PathLike[str]) -> None:
    """Write one row per job."""
    with JobsCsv(path) as file:
        file.add(outcome)


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
