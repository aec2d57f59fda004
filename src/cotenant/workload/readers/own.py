"""Cotenant's own CSV: `job_id,submit_s,num_gpus,duration_s` and what else is known of a job.

Seconds, GiB and whole GPUs. `vc` is read as tenant. `attempts` lists the seconds of the attempts that failed
before the last one, joined by `;`; they are part of `duration_s`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Codes, Floats, Ints, Workload
from cotenant.workload.readers.base import STATUS_OF, HeaderReader, build, keep_gpu_rows, statuses
from cotenant.workload.readers.table import Table

REQUIRED = ("job_id", "submit_s", "num_gpus", "duration_s")
_STATUSES = ("passed", "killed", "failed")
OPTIONAL = (
    "tenant",
    "vc",
    "user",
    "model",
    "status",
    "cpus",
    "mem_gib",
    "deadline_s",
    "priority",
    "gpu_type",
    "nodes",
    "attempts",
)


class Own(HeaderReader):
    """The format that `cotenant generate` writes."""

    name: ClassVar[str] = "cotenant"
    about: ClassVar[str] = "own CSV (job_id, submit_s, num_gpus, duration_s, optional tenant, user, ...)"
    required: ClassVar[tuple[str, ...]] = REQUIRED

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Columns as they are; optional numbers may be empty."""
        table = table.ignore_others(REQUIRED + OPTIONAL)
        ids = table.ids("job_id")
        table, gpus = keep_gpu_rows(table, "num_gpus")
        if len(ids) > len(table):
            ids = table.ids("job_id")
        duration_s = table.numbers("duration_s")
        return build(
            table,
            ids,
            table.numbers("submit_s", low=None),
            gpus,
            duration_s,
            tenant=_tenant(table),
            user=table.codes("user"),
            model=table.codes("model"),
            status=_status(table),
            cpus=_optional(table, "cpus"),
            mem_gib=_optional(table, "mem_gib"),
            deadline_s=_optional(table, "deadline_s"),
            priority=_whole(table, "priority", low=None),
            gpu_type=table.codes("gpu_type"),
            nodes=_nodes(table, gpus),
            attempts=_attempts(table, duration_s),
        )


def _tenant(table: Table) -> Codes:
    return table.codes("tenant" if table.has("tenant") else "vc")


def _optional(table: Table, column: str) -> Floats | None:
    low = None if column == "deadline_s" else 0.0
    return table.numbers(column, low=low, empty=np.nan) if table.has(column) else None


def _whole(table: Table, column: str, low: float | None = 0.0) -> Ints | None:
    """A column of whole numbers in which an empty cell means 0."""
    if not table.has(column):
        return None
    values = table.numbers(column, low=low, empty=0.0)
    if (values != np.floor(values)).any():
        at = int(np.argmax(values != np.floor(values)))
        raise InputError(f"{table.where(at)}: {column} is {values[at]:g}, not a whole number")
    return values.astype(np.int64)


def _nodes(table: Table, gpus: Ints) -> Ints | None:
    nodes = _whole(table, "nodes")
    odd = gpus % np.maximum(nodes, 1) != 0 if nodes is not None else np.zeros(0, bool)
    if nodes is not None and odd.any():
        at = int(np.argmax(odd))
        raise InputError(f"{table.where(at)}: nodes is {nodes[at]}, which does not divide num_gpus, {gpus[at]}")
    return nodes


def _status(table: Table) -> Ints | None:
    if not table.has("status"):
        return None
    text = table.text("status")
    for name in text.unique(maintain_order=True).to_list():
        if name.strip().lower() not in STATUS_OF:
            at = int(np.argmax((text == name).to_numpy()))
            raise InputError(f"{table.where(at)}: {unknown('status', name, ('passed', 'killed', 'failed', ''))}")
    return statuses(text)


def _attempts(table: Table, duration_s: Floats) -> dict[int, tuple[float, ...]]:
    if not table.has("attempts"):
        return {}
    text = table.text("attempts")
    rows = np.flatnonzero((text != "").to_numpy())
    cells = text[rows].to_list()
    found: dict[int, tuple[float, ...]] = {}
    for row, cell in zip(rows.tolist(), cells, strict=True):
        try:
            lengths = tuple(map(float, cell.split(";")))
        except ValueError:
            raise InputError(f"{table.where(row)}: attempts is '{cell}', not seconds joined by ';'") from None
        if not (min(lengths) >= 0 and sum(lengths) <= duration_s[row] * (1 + 1e-9)):
            raise InputError(f"{table.where(row)}: attempts '{cell}' must be part of duration_s, which is less")
        found[row] = lengths
    return found
