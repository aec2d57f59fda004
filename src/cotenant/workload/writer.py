"""Write jobs in Cotenant's own CSV (or parquet), the same bytes for the same jobs.

Optional columns appear only where they carry something. Of `Workload.extra` the steps of soft deadlines, the
sizes of elastic jobs, weights, slices, GPU memory, who may not be moved and what jobs send are written; its other
columns are not part of the format and are left behind. Everything else comes back unchanged through `readers.read`.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from cotenant.core.deadlines import STRICT_VALUE, steps_of
from cotenant.core.declared import DECLARED
from cotenant.core.errors import InputError
from cotenant.core.network import TOLD
from cotenant.core.workload import Codes, Floats, Status, Workload
from cotenant.workload.elastic import LIMITS

if TYPE_CHECKING:
    import polars as pl

_STATUS_WORDS = ("", "passed", "killed", "failed")
assert tuple(Status) == (Status.UNKNOWN, Status.PASSED, Status.KILLED, Status.FAILED)


def write_csv(workload: Workload, target: str | Path | IO[str], *, seen: bool = False) -> None:
    """Write to a path (`.gz` packs, `.parquet` writes parquet) or to a text handle such as stdout.

    With `seen` also what a cluster wrote down of how jobs went: dates, waits, time limits, partitions.
    """
    frame = to_frame(workload)
    if seen:
        frame = frame.with_columns(**_seen(workload))
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
    soft = _soft_deadlines(workload)
    strict_s = (
        np.where([cell is not None for cell in soft], np.nan, workload.deadline_s) if soft else workload.deadline_s
    )
    for name, values in (("cpus", workload.cpus), ("mem_gib", workload.mem_gib), ("deadline_s", strict_s)):
        if not np.isnan(values).all():
            columns[name] = _numbers(values)
    if any(soft):
        columns["deadlines"] = pl.Series(soft, dtype=pl.String)
    for name in LIMITS:
        sizes = np.asarray(workload.extra.get(name, 0), np.float64)
        if sizes.any():
            columns[name] = _numbers(np.where(sizes > 0, sizes, np.nan))
    weight = np.asarray(workload.extra.get("weight", 1.0), np.float64)
    if (weight != 1).any():
        columns["weight"] = _numbers(weight)
    movable = np.asarray(workload.extra.get("movable", True), bool)
    if not movable.all():
        columns["movable"] = pl.Series(movable.astype(np.int64))
    for name in TOLD:
        if name in workload.extra:
            columns[name] = _numbers(np.asarray(workload.extra[name], np.float64))
    slices = [str(text) or None for text in workload.extra["slice"].tolist()] if "slice" in workload.extra else []
    if any(slices):
        columns["slice"] = pl.Series(slices, dtype=pl.String)
    columns |= _memory(workload)
    if workload.priority.any():
        columns["priority"] = pl.Series(workload.priority)
    if any(workload.gpu_type.names[code] for code in np.unique(workload.gpu_type.code)):
        columns["gpu_type"] = _texts(workload.gpu_type)
    if workload.nodes.any():
        columns["nodes"] = pl.Series(workload.nodes)
    if workload.attempts:
        cells: list[str | None] = [None] * len(workload)
        for row, lengths in workload.attempts.items():
            cells[row] = ";".join(_number(x) for x in lengths)
        columns["attempts"] = pl.Series(cells, dtype=pl.String)
    return pl.DataFrame(columns)


def _memory(workload: Workload) -> dict[str, pl.Series]:
    """What jobs declare of GPU memory."""
    import polars as pl

    found = {name: np.asarray(workload.extra[name], np.float64) for name in DECLARED[:2] if name in workload.extra}
    columns = {name: _numbers(values) for name, values in found.items() if not np.isnan(values).all()}
    speeds = workload.extra.get(DECLARED[2])
    if speeds is not None and any(speeds):
        cells = [";".join(f"{_number(gib)}:{_number(speed)}" for gib, speed in pairs) or None for pairs in speeds]
        columns[DECLARED[2]] = pl.Series(cells, dtype=pl.String)
    return columns


def _seen(workload: Workload) -> dict[str, pl.Series]:
    import polars as pl

    found: dict[str, pl.Series] = {}
    if "submit_clock_s" in workload.extra:
        clock = pl.Series(np.asarray(workload.extra["submit_clock_s"], np.float64) * 1000).cast(pl.Int64)
        found["submit_time"] = clock.cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d %H:%M:%S")
    for name in ("wait_s", "servers", "time_limit_s"):
        if name in workload.extra:
            found[name] = _numbers(np.asarray(workload.extra[name], np.float64))
    for name in ("partition", "qos", "gpu_kind", "failure"):
        if name in workload.extra:
            found[name] = pl.Series([str(text) or None for text in workload.extra[name].tolist()], dtype=pl.String)
    return found


def _soft_deadlines(workload: Workload) -> list[str | None]:
    """`3600:1.0;7200:0.5` for jobs with steps of their own, None for the others; [] where no job has any."""
    if "expect_time_s" not in workload.extra:
        return []
    steps = steps_of(workload)
    submit_s, after_s = workload.submit_s.tolist(), workload.extra["expect_time_s"].tolist()
    cells: list[str | None] = []
    for row, (times, values) in enumerate(zip(steps.time_s.tolist(), steps.value.tolist(), strict=True)):
        count = len([time for time in times if time == time])
        plain = count == 1 and values[0] == STRICT_VALUE and submit_s[row] + after_s[row][0] == workload.deadline_s[row]
        pairs = zip(after_s[row][:count], values[:count], strict=True)
        cells.append(None if plain or not count else ";".join(f"{_number(x)}:{_number(y)}" for x, y in pairs))
    return cells


def _number(value: float) -> str:
    """Without `.0`, and so that it reads back the same."""
    return f"{value:.0f}" if float(value).is_integer() else repr(float(value))


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
