"""The family of CSVs that grew out of the Tiresias simulator: the same columns, three different units.

Tiresias (NSDI'19) counts seconds. Muri (SIGCOMM'22) adds stage times and counts milliseconds. Chronus
(SoCC'21) adds deadlines, counts minutes, and its `user` is a Philly virtual cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.core.workload import Workload
from cotenant.workload.readers.base import Reader, build, extras, keep_gpu_rows
from cotenant.workload.readers.table import Table

_COMMON = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")
_MS = 1e-3
_MIN = 60.0


class TiresiasLog(Reader):
    """Times in seconds."""

    name: ClassVar[str] = "tiresias"
    about: ClassVar[str] = "Tiresias simulator CSV (job_id, num_gpu, submit_time, ..., in seconds)"
    required: ClassVar[tuple[str, ...]] = _COMMON
    unit_s: ClassVar[float] = 1.0

    def kept(self, table: Table) -> dict[str, tuple[str, float]]:
        """Columns that are kept as extra: name with unit, and factor."""
        return {"iterations": ("iterations", 1.0), "interval": ("interval_s", self.unit_s)}

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Columns as they are, in seconds."""
        kept = self.kept(table)
        table = table.ignore_others((*_COMMON, *kept))
        table, gpus = keep_gpu_rows(table, "num_gpu")
        return build(
            table,
            table.ids("job_id"),
            table.numbers("submit_time", low=None) * self.unit_s,
            gpus,
            table.numbers("duration") * self.unit_s,
            model=table.codes("model_name"),
            extra=extras(table, kept),
        )


class MuriLog(TiresiasLog):
    """Times in milliseconds; `resource_time_0..2` are data, GPU and network stages of one iteration."""

    name: ClassVar[str] = "muri"
    about: ClassVar[str] = "Muri CSV (Tiresias columns and resource_time_0.., in milliseconds)"
    required: ClassVar[tuple[str, ...]] = (*_COMMON, "resource_time_0")
    unit_s: ClassVar[float] = _MS

    def kept(self, table: Table) -> dict[str, tuple[str, float]]:
        """Everything beyond the common columns, times in seconds."""
        stages = [name for name in table.columns if name.startswith("resource_time_")]
        more = {"batch_size": ("batch_size", 1.0), "priority": ("priority", 1.0)}
        times = {name: (f"{name}_s", _MS) for name in ("iteration_time", *stages)}
        return {**super().kept(table), **more, **times}


class ChronusLog(Reader):
    """Times in minutes; deadlines are steps after submission, each worth a value."""

    name: ClassVar[str] = "chronus"
    about: ClassVar[str] = "Chronus CSV (Tiresias columns and expect_time_list, in minutes)"
    required: ClassVar[tuple[str, ...]] = (*_COMMON, "expect_time_list")

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """The deadline is the first step; a best-effort job has none (its list in the file means nothing)."""
        lists = ("user", "interval", "expect_value_list", "best_effort", "job_type")
        table = table.ignore_others((*self.required, *lists))
        table, gpus = keep_gpu_rows(table, "num_gpu")
        submit_s = table.numbers("submit_time", low=None) * _MIN
        best = _best_effort(table)
        steps_s = _lists(table, "expect_time_list", _MIN)
        first_s = np.array([steps[0] for steps in steps_s], np.float64)
        kept = {"iterations": ("iterations", 1.0), "interval": ("interval_s", _MIN)}
        extra = extras(table, kept)
        extra["best_effort"] = best
        extra["expect_time_s"] = steps_s
        if table.has("expect_value_list"):
            extra["expect_value"] = _lists(table, "expect_value_list", 1.0)
        if table.has("job_type"):
            extra["job_type"] = np.asarray(table.text("job_type").to_numpy(), dtype=object)
        return build(
            table,
            table.ids("job_id"),
            submit_s,
            gpus,
            table.numbers("duration") * _MIN,
            tenant=table.codes("user"),
            user=table.codes("user"),
            model=table.codes("model_name"),
            deadline_s=np.where(best, np.nan, submit_s + first_s),
            extra=extra,
        )


def _best_effort(table: Table) -> NDArray[np.bool_]:
    if not table.has("best_effort"):
        return np.zeros(len(table), np.bool_)
    return np.asarray(table.numbers("best_effort") > 0, np.bool_)


def _lists(table: Table, column: str, factor: float) -> NDArray[np.object_]:
    """Cells like `159-189-229` as tuples of numbers times `factor`."""
    cells = np.empty(len(table), dtype=object)
    known: dict[str, tuple[float, ...]] = {}
    for row, cell in enumerate(table.text(column).to_list()):
        if cell not in known:
            try:
                known[cell] = tuple(float(part) * factor for part in cell.split("-"))
            except ValueError:
                raise InputError(f"{table.where(row)}: {column} is '{cell}', not numbers joined by '-'") from None
        cells[row] = known[cell]
    return cells
