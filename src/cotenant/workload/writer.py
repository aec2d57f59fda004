"""Write jobs in Cotenant's own CSV (or parquet), the same bytes for the same jobs.

Optional columns appear only where they carry something. Columns of `Workload.extra` are not part of the
format and are left behind; everything else comes back unchanged through `readers.read`.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Floats, Status, Workload

if TYPE_CHECKING:
    import polars as pl

_STATUS_WORDS = ("", "passed", "killed", "failed")
assert tuple(Status) == (Status.UNKNOWN, Status.PASSED, Status.KILLED, Status.FAILED)


def write_csv(workload: Workload, target: str | Path | IO[str]) -> None:
    """Write to a path (`.gz` packs, `.parquet` writes parquet) or to a text handle such as stdout."""
    frame = to_frame(workload)
    if not isinstance(target, str | Path):
        target.write(frame.write_csv())
        return
    path = Path(target)
    buffer = io.BytesIO()
    if path.suffix == ".parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_csv(buffer)
    data = buffer.getvalue()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def to_frame(workload: Workload) -> pl.DataFrame:
    """The columns of the own format, in its order."""
    import polars as pl

    columns: dict[str, pl.Series] = {
        "job_id": pl.Series(workload.job_id.tolist(), dtype=pl.String),
        "submit_s": _numbers(workload.submit_s),
        "num_gpus": pl.Series(workload.gpus),
        "duration_s": _numbers(workload.duration_s),
    }
    for name, codes in (("tenant", workload.tenant), ("user", workload.user), ("model", workload.model)):
        if any(codes.names[code] for code in np.unique(codes.code)):
            columns[name] = _texts(codes)
    if workload.status.any():
        columns["status"] = _texts(Codes(workload.status, _STATUS_WORDS))
    for name, values in (
        ("cpus", workload.cpus),
        ("mem_gib", workload.mem_gib),
        ("deadline_s", workload.deadline_s),
    ):
        if not np.isnan(values).all():
            columns[name] = _numbers(values)
    if workload.priority.any():
        columns["priority"] = pl.Series(workload.priority)
    if any(workload.gpu_type.names[code] for code in np.unique(workload.gpu_type.code)):
        columns["gpu_type"] = _texts(workload.gpu_type)
    if workload.nodes.any():
        columns["nodes"] = pl.Series(workload.nodes)
    if workload.attempts:
        cells: list[str | None] = [None] * len(workload)
        for row, lengths in workload.attempts.items():
            cells[row] = ";".join(f"{x:.0f}" if x.is_integer() else repr(x) for x in map(float, lengths))
        columns["attempts"] = pl.Series(cells, dtype=pl.String)
    return pl.DataFrame(columns)


def _numbers(values: Floats) -> pl.Series:
    """Whole numbers without `.0`; NaN as an empty cell."""
    import polars as pl

    known = values[~np.isnan(values)]
    series = pl.Series(values).fill_nan(None)
    whole = bool(np.all(known == np.floor(known)) and np.all(np.abs(known) < 2**53))
    return series.cast(pl.Int64) if whole else series


def _texts(codes: Codes) -> pl.Series:
    import polars as pl

    names = pl.Series([name or None for name in codes.names], dtype=pl.String)
    return names.gather(codes.code)
