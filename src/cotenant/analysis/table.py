"""All jobs of a log as one lazy table. Pieces that do not fit in memory together lie in a folder meanwhile.

Columns: `submit_s` (on the clock of the log where it has dates), `gpus`, `run_s` (the duration), `tenant`, `user`,
`model`, `status`, `tries` (attempts that failed before the last one) and `tried_s` (their seconds, part of `run_s`);
and of `workload.readers.base.facts` what the log has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Status, Workload

if TYPE_CHECKING:
    import polars as pl

    from cotenant.workload.readers.pieces import LogPiece

FACTS = ("wait_s", "fair_share_s", "fragmentation_s", "servers", "gpu_util", "first_to_last_s")
EXACT_ROWS = 30_000_000  # jobs up to which percentiles are exact
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class JobTable:
    """The jobs of a log. `known` names the columns in which it says anything; `dated`: times are of a real clock."""

    source: str
    frame: pl.LazyFrame
    jobs: int
    known: frozenset[str]
    dated: bool
    duration_means: str
    notes: tuple[str, ...] = ()
    exact: bool = True

    def collect(self, query: pl.LazyFrame) -> pl.DataFrame:
        """The answer to a query of `frame`, without having all of it in memory."""
        return query.collect(engine="streaming")

    def one(self, **columns: pl.Expr) -> dict[str, Any]:
        """Numbers over all jobs."""
        return dict(self.collect(self.frame.select(**columns)).row(0, named=True))


def gather(pieces: Iterable[LogPiece], source: str, folder: Path, progress: Progress | None = None) -> JobTable:
    """The table of all pieces; more than one are written to `folder`, which must outlive the table."""
    import polars as pl

    notes: dict[str, None] = {}
    held: list[pl.DataFrame] = []
    files = jobs = 0
    means, dated = "", True
    for number, piece in enumerate(_counted(pieces, progress)):
        if number == 1:  # it was not the only one
            held.pop().write_parquet(folder / "piece-000000.parquet")
            files = 1
        frame = frame_of(piece.work)
        jobs, means = jobs + len(frame), piece.duration_means
        dated = dated and "submit_clock_s" in piece.work.extra
        notes.update(dict.fromkeys(piece.work.notes))
        if number:
            frame.write_parquet(folder / f"piece-{number:06d}.parquet")
            files += 1
        else:
            held.append(frame)
    if not jobs:
        raise InputError(f"{source}: there are no jobs")
    lazy = held[0].lazy() if held else pl.scan_parquet(folder / "piece-*.parquet")
    return JobTable(source, lazy, jobs, _known(lazy), dated, means, tuple(notes), exact=jobs <= EXACT_ROWS)


def _counted(pieces: Iterable[LogPiece], progress: Progress | None) -> Iterator[LogPiece]:
    for piece in pieces:
        if progress is not None:
            progress(piece.done, piece.total)
        yield piece


def frame_of(work: Workload) -> pl.DataFrame:
    """Jobs as columns of the table."""
    import polars as pl

    rows = len(work)
    tries, tried_s = np.zeros(rows, np.int32), np.zeros(rows)
    for row, lengths in work.attempts.items():
        tries[row], tried_s[row] = len(lengths), sum(lengths)
    submit_s = work.extra.get("submit_clock_s", work.submit_s)
    columns: dict[str, pl.Series] = {
        "submit_s": pl.Series(np.asarray(submit_s, np.float64)),
        "gpus": pl.Series(work.gpus.astype(np.int32)),
        "run_s": pl.Series(work.duration_s),
        "tenant": _texts(work.tenant),
        "user": _texts(work.user),
        "model": _texts(work.model),
        "status": pl.Series(work.status.astype(np.int8)),
        "tries": pl.Series(tries),
        "tried_s": pl.Series(tried_s),
    }
    for name in FACTS:
        if name in work.extra:
            columns[name] = pl.Series(np.asarray(work.extra[name], np.float64)).fill_nan(None)
    if "failure" in work.extra:
        columns["failure"] = pl.Series(work.extra["failure"].tolist(), dtype=pl.String)
    return pl.DataFrame(columns)


def _texts(codes: Codes) -> pl.Series:
    import polars as pl

    return pl.Series(codes.names, dtype=pl.String).gather(pl.Series(np.asarray(codes.code, np.int64)))


def _known(lazy: pl.LazyFrame) -> frozenset[str]:
    """Which columns say anything of any job."""
    import polars as pl

    present = set(lazy.collect_schema().names())
    asked: dict[str, pl.Expr] = {}
    asked |= {name: pl.col(name).ne("").any() for name in ("tenant", "user", "model", "failure") if name in present}
    asked["status"] = pl.col("status").ne(int(Status.UNKNOWN)).any()
    asked["tries"] = pl.col("tries").gt(0).any()
    asked |= {name: pl.col(name).is_not_null().any() for name in FACTS if name in present}
    found = lazy.select(**asked).collect(engine="streaming").row(0, named=True)
    return frozenset(name for name, has in found.items() if has)
