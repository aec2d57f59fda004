"""A log as a table of text: opened, unpacked and cut into columns, with every cell traceable to its line.

Columns stay text until a reader asks for them as numbers, so that a bad cell can be named by file, line and
column. gzip is told by its content, parquet and JSON too; nothing depends on the file's suffix.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError, nearest
from cotenant.core.workload import Codes, Floats, Ints

if TYPE_CHECKING:
    import polars as pl

STDIN = "-"  # as the name of a file
EXAMPLE = "job_id,submit_s,num_gpus,duration_s"


def open_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is gzip; every way this can fail is one clear line."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; name a trace file")
    try:
        raw = sys.stdin.buffer.read() if str(path) == STDIN else path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error):
            raise InputError(f"{path}: gzip data is truncated or corrupt; copy the file again") from None
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        name = "standard input" if str(path) == STDIN else path
        raise InputError(f"{name} is empty; it must begin with a header line such as {EXAMPLE}")
    return raw


def first_fields(raw: bytes) -> tuple[list[str], str]:
    """The cells of the first line that is not blank, and the separator (tab or comma)."""
    end = 0
    line = b""
    while not line.strip():
        start, end = end, raw.find(b"\n", end) + 1
        line = raw[start : end or None]
    text = line.decode("utf-8", "replace").rstrip("\r\n")
    separator = "\t" if "\t" in text else ","
    return [cell.strip() for cell in next(csv.reader([text], delimiter=separator))], separator


@dataclass(frozen=True)
class Table:
    """Columns of a log. `row` maps each kept row to its number in the source, counted from 0."""

    path: Path
    frame: pl.DataFrame
    row: Ints
    raw: bytes = b""
    header_lines: int = 1
    notes: tuple[str, ...] = ()
    lines_before: int = 0  # of the file, where this is a piece of it

    def __len__(self) -> int:
        return len(self.row)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.frame.columns)

    def where(self, index: int) -> str:
        """`file line 7` for a kept row, the header counted; `file row 7` where there are no lines."""
        source = int(self.row[index])
        if not self.raw:
            return f"{self.path} row {source + 1}"
        wanted, seen = source + self.header_lines, -1
        for number, line in enumerate(self.raw.split(b"\n"), start=1):
            seen += bool(line.rstrip(b"\r"))
            if seen == wanted:
                return f"{self.path} line {number + self.lines_before}"
        return f"{self.path} line {wanted + 1 + self.lines_before}"

    def note(self, text: str) -> Table:
        """The same table with one more note for the user."""
        return replace(self, notes=(*self.notes, f"{self.path.name}: {text}"))

    def keep(self, mask: NDArray[np.bool_], why: str) -> Table:
        """Only the rows of `mask`; what is left out is counted in a note that says `why`."""
        dropped = int(np.count_nonzero(~mask))
        if not dropped:
            return self
        if dropped == len(self):
            raise InputError(f"{self.path}: no job is left; all {dropped} rows are left out ({why})")
        rows = np.flatnonzero(mask)
        kept = replace(self, frame=self.frame[rows], row=self.row[rows])
        return kept.note(f"{dropped} row{'s' * (dropped > 1)} left out ({why})")

    def ignore_others(self, known: Sequence[str]) -> Table:
        """One note naming the columns that no reader looks at."""
        others = [
            f"{name} (did you mean '{near}'?)" if (near := nearest(name, known)) and not self.has(near) else name
            for name in self.columns
            if name not in known
        ]
        return self.note(f"column{'s' * (len(others) > 1)} ignored: {', '.join(others)}") if others else self

    def has(self, column: str) -> bool:
        """Whether the log has this column."""
        return column in self.frame.columns

    def text(self, column: str) -> pl.Series:
        """A column as text; empty cells are ''."""
        import polars as pl

        series = self.frame[column]
        return (series if series.dtype == pl.String else series.cast(pl.String)).fill_null("")

    def numbers(self, column: str, *, low: float | None = 0.0, empty: float | None = None) -> Floats:
        """A column as finite numbers not below `low`; an empty cell becomes `empty` (None: an error)."""
        import polars as pl

        series = self.frame[column]
        if series.dtype == pl.String and self._needs_strip(series):
            series = series.str.strip_chars()
        values = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64, copy=True)
        bad = ~np.isfinite(values)
        if bad.any():
            blank = (self.text(column).str.strip_chars() == "").to_numpy()
            if empty is not None:
                values[blank] = empty
                bad &= ~blank
            if bad.any():
                at = int(np.argmax(bad))
                cell = "is empty" if blank[at] else f"is '{self.text(column)[at]}', not a number"
                raise InputError(f"{self.where(at)}: {column} {cell}; correct or remove that row")
        if low is not None and (values < low).any():
            at = int(np.argmax(values < low))
            raise InputError(
                f"{self.where(at)}: {column} is {values[at]:g}, but must be at least {low:g}; "
                "correct or remove that row"
            )
        return values

    def optional(self, column: str, *, low: float | None = 0.0) -> Floats:
        """The same where cells may be empty and the column missing: NaN there."""
        return self.numbers(column, low=low, empty=np.nan) if self.has(column) else np.full(len(self), np.nan)

    @staticmethod
    def _needs_strip(series: pl.Series) -> bool:
        head = series.head(1000)
        return bool((head != head.str.strip_chars()).any())

    def whole(self, column: str) -> Ints:
        """A column as whole numbers that are not negative."""
        values = self.numbers(column)
        odd = values != np.floor(values)
        if odd.any():
            at = int(np.argmax(odd))
            raise InputError(f"{self.where(at)}: {column} is {values[at]:g}, not a whole number; round it up")
        return values.astype(np.int64)

    def ids(self, column: str) -> NDArray[np.object_]:
        """A column of names that must be there and differ from each other."""
        return self.check_ids(self.text(column), column)

    def check_ids(self, series: pl.Series, column: str) -> NDArray[np.object_]:
        """The ids as objects, or an error that names the first empty or repeated one."""
        blank = (series == "").to_numpy()
        if blank.any():
            raise InputError(f"{self.where(int(np.argmax(blank)))}: {column} is empty; give the job an id")
        if series.n_unique() < len(series):
            again = int(np.argmax((~series.is_first_distinct()).to_numpy()))
            first = int(np.argmax((series == series[again]).to_numpy()))
            earlier = self.where(first).rsplit(" ", 2)[1:]
            raise InputError(
                f"{self.where(again)}: {column} '{series[again]}' was used before, in {' '.join(earlier)}; "
                "ids must differ"
            )
        return np.asarray(series.to_numpy(), dtype=object)

    def codes(self, column: str) -> Codes:
        """A text column as codes, in order of first appearance; a missing column is all ''."""
        return encode(self.text(column)) if self.has(column) else Codes.empty(len(self))

    def seconds(self, column: str) -> Floats:
        """A column of dates `YYYY-MM-DD HH:MM:SS` as seconds from 1970 on the log's own clock."""
        found = self.dates(column)
        if np.isnan(found).any():
            at = int(np.argmax(np.isnan(found)))
            cell = self.text(column)[at]
            raise InputError(f"{self.where(at)}: {column} is '{cell}', not a date YYYY-MM-DD HH:MM:SS")
        return found

    def dates(self, column: str) -> Floats:
        """The same, NaN where a cell is no date."""
        import polars as pl

        text = self.text(column).str.slice(0, 19).str.replace("T", " ", literal=True)
        stamps = text.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
        return np.asarray(stamps.dt.epoch("s").cast(pl.Float64).fill_null(np.nan).to_numpy(), np.float64)


def encode(series: pl.Series) -> Codes:
    """Text to codes; names in order of first appearance."""
    import polars as pl

    names = series.unique(maintain_order=True).to_list()
    code = series.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    return Codes(code, tuple(names))


def load_csv(path: Path, raw: bytes, separator: str, names: Sequence[str] | None, lines_before: int = 0) -> Table:
    """Cut text into columns. `names` are given for logs without a header line."""
    import polars as pl

    if b"\r" in raw[:10_000]:
        raw = raw.replace(b"\r\n", b"\n")
    try:
        frame = pl.read_csv(
            io.BytesIO(raw.lstrip(b"\n")),
            has_header=names is None,
            separator=separator,
            infer_schema=False,
            encoding="utf8-lossy",
            new_columns=list(names) if names is not None else None,
        )
    except pl.exceptions.PolarsError:
        raise _bad_shape(path, raw, separator) from None
    frame.columns = [name.strip() for name in frame.columns]
    if b"\n\n" in raw:
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    if not len(frame):
        raise InputError(f"{path} has a header line but no jobs below it")
    header_lines = 0 if names is not None else 1
    return Table(path, frame, np.arange(len(frame)), raw, header_lines, lines_before=lines_before)


def load_parquet(path: Path, raw: bytes) -> Table:
    """The columns of a parquet file."""
    import polars as pl

    try:
        frame = pl.read_parquet(io.BytesIO(raw))
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"{path}: parquet data is truncated or corrupt; copy the file again") from None
    if not len(frame):
        raise InputError(f"{path} has columns but no jobs")
    return Table(path, frame, np.arange(len(frame)))


def _bad_shape(path: Path, raw: bytes, separator: str) -> InputError:
    reader = csv.reader(io.StringIO(raw.decode("utf-8", "replace")), delimiter=separator)
    width = 0
    try:
        for cells in reader:
            width = width or len(cells)
            if cells and len(cells) > width:
                return InputError(
                    f"{path} line {reader.line_num}: {len(cells)} cells, but the first line has {width}; "
                    "quote text that holds the separator"
                )
    except csv.Error:
        pass
    return InputError(f"{path} line {max(reader.line_num, 1)}: cannot be read as comma-separated text")
