"""What a reader of one log format is, and the words that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints, Status, Workload, make_workload
from cotenant.workload.readers.table import Table

if TYPE_CHECKING:
    import polars as pl

_WORDS = {
    Status.PASSED: "pass passed completed complete terminated succeeded success finished",
    Status.KILLED: "killed cancelled canceled cancel revoked preempted",
    Status.FAILED: "failed fail unsuccessful timeout node_fail out_of_memory error boot_fail deadline",
    Status.UNKNOWN: "unknown running waiting pending requeued resizing suspended completing",
}
STATUS_OF = {"": Status.UNKNOWN, **{word: status for status, words in _WORDS.items() for word in words.split()}}


class Reader(ABC):
    """One log format: how to tell it by its columns, and how to make jobs of them.

    `headerless` names the columns of a format that is also written without a header line, `duration_means` says
    what the log calls a duration.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    required: ClassVar[tuple[str, ...]]
    headerless: ClassVar[tuple[str, ...]] = ()
    duration_means: ClassVar[str] = "the time on GPUs as the log gives it"

    def matches(self, columns: tuple[str, ...]) -> bool:
        """Whether a header with these columns is of this format."""
        return set(self.required) <= set(columns)

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Whether a first line with these cells is of this format, written without a header."""
        return False

    @abstractmethod
    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Make jobs of the table."""


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def statuses(series: pl.Series) -> Ints:
    """Words of many logs to `Status`; words nobody knows become UNKNOWN."""
    from cotenant.workload.readers.table import encode

    codes = encode(series)
    of_name = np.array([STATUS_OF.get(status_word(name), Status.UNKNOWN) for name in codes.names], np.int64)
    return np.asarray(of_name[codes.code], np.int64)


def status_word(text: str) -> str:
    """The word of a status: `CANCELLED by 1000` and `CANCELLED+` are cancelled."""
    return text.strip().lower().split(" ")[0].rstrip("+")


def keep_gpu_rows(table: Table, column: str) -> tuple[Table, Ints]:
    """Leave out the rows that ask for no GPU, with a counted note; the GPUs of the others."""
    gpus = table.whole(column)
    return table.keep(gpus > 0, "0 GPUs asked"), gpus[gpus > 0]


def build(
    table: Table, job_id: NDArray[np.object_], submit_s: Floats, gpus: Ints, duration_s: Floats, **columns: object
) -> Workload:
    """`make_workload` with the table's notes, and one more where rows had to be sorted."""
    if np.any(np.diff(submit_s) < 0):
        table = table.note("rows were not sorted by submit time; sorted")
    return make_workload(
        str(table.path),
        submit_s,
        gpus,
        duration_s,
        job_id=job_id,
        notes=table.notes,
        **columns,  # type: ignore[arg-type]
    )


def extras(table: Table, columns: dict[str, tuple[str, float]]) -> dict[str, NDArray[np.generic]]:
    """Numeric columns that only this format has: source column -> (name with unit, factor)."""
    return {
        name: table.numbers(column, low=None, empty=np.nan) * factor
        for column, (name, factor) in columns.items()
        if table.has(column)
    }


def facts(table: Table, columns: dict[str, str]) -> dict[str, NDArray[np.generic]]:
    """What the cluster wrote down of how jobs went: source column -> name. A cell that is no number is NaN.

    Nothing that is simulated depends on them; `cotenant analyze` reports them. Names: `submit_clock_s` (seconds from
    1970, local time of the log), `wait_s` (before the first start), `fair_share_s` and `fragmentation_s` (parts of it),
    `servers` (nodes it was on), `gpu_util` (0 to 1), `failure` (text), `first_to_last_s` (first start to last end).
    """
    import polars as pl

    found: dict[str, NDArray[np.generic]] = {}
    for column, name in columns.items():
        if table.has(column):
            values = table.text(column).str.strip_chars().cast(pl.Float64, strict=False).fill_null(np.nan)
            found[name] = np.asarray(values.to_numpy(), np.float64)
    return found
