"""The jobs of a log or a generator, as columns. Rows are sorted by (submit time, row in the source)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Status(IntEnum):
    """How a job ended in its log."""

    UNKNOWN = 0
    PASSED = 1
    KILLED = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Codes:
    """A text column as small numbers: `names[code[i]]` is the text of row i; '' means not given."""

    code: Ints
    names: tuple[str, ...]

    @classmethod
    def empty(cls, rows: int) -> Codes:
        """A column that the source does not have."""
        return cls(np.zeros(rows, np.int64), ("",))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Codes:
        """A column of texts; names in order of first appearance."""
        place = {name: code for code, name in enumerate(dict.fromkeys(texts))}
        return cls(np.array([place[text] for text in texts], np.int64), tuple(place))

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Codes:
        """The same names, fewer rows."""
        return Codes(self.code[rows], self.names)


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs as equal-length columns. Times in seconds; NaN in cpus, mem_gib, deadline_s means not given.

    `duration_s` is the time the job needs on the GPUs it asked for. `attempts`, where a log has them,
    lists per row the durations of the attempts that failed before the last one; they are part of
    `duration_s`, and a replay fails and requeues the job at each of those points.
    Of jobs with different `priority` the higher comes first, whatever the policy. A job that names a `gpu_type`
    runs on no other, and one that names `nodes` sits on so many, in equal parts ('' and 0: anywhere).
    `extra` keeps columns that only some formats have (iterations, batch size, stage times, ...).
    """

    source: str
    job_id: NDArray[np.object_]
    submit_s: Floats
    gpus: Ints
    duration_s: Floats
    tenant: Codes
    user: Codes
    model: Codes
    status: Ints
    cpus: Floats
    mem_gib: Floats
    deadline_s: Floats
    priority: Ints
    gpu_type: Codes
    nodes: Ints
    attempts: dict[int, tuple[float, ...]] = field(default_factory=dict)
    extra: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.submit_s[-1] - self.submit_s[0]) if len(self) else 0.0

    @property
    def gpu_s(self) -> float:
        """GPU-seconds of all jobs."""
        return float(np.dot(self.gpus, self.duration_s))

    def load(self, cluster_gpus: int) -> float:
        """Offered load: GPU-seconds asked over GPU-seconds available while jobs arrive."""
        return self.gpu_s / (cluster_gpus * self.span_s) if self.span_s > 0 else np.inf

    def tenant_of(self, row: int) -> str:
        """Name of a job's tenant."""
        return self.tenant.names[int(self.tenant.code[row])]

    def asks(self, row: int) -> str:
        """What a job asks for, in words: `8 GPUs of type 'h200' on 2 nodes`."""
        kind, nodes = self.gpu_type.names[self.gpu_type.code[row]], int(self.nodes[row])
        text = f"{self.gpus[row]} GPUs" + (f" of type '{kind}'" if kind else "")
        return text + (f" on {nodes} node{'s' if nodes > 1 else ''}, equally many on each" if nodes else "")

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Workload:
        """Some of the rows, in their order. Notes are kept."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, np.int64)
        columns: dict[str, Any] = {}
        for name in _COLUMNS:
            column = getattr(self, name)
            columns[name] = column.take(index) if isinstance(column, Codes) else column[index]
        attempts = {new: self.attempts[old] for new, old in enumerate(index.tolist()) if old in self.attempts}
        extra = {name: column[index] for name, column in self.extra.items()}
        return replace(self, attempts=attempts, extra=extra, **columns)


_COLUMNS = tuple(part.name for part in fields(Workload) if part.name not in ("source", "attempts", "extra", "notes"))


def make_workload(
    source: str,
    submit_s: Floats,
    gpus: Ints,
    duration_s: Floats,
    *,
    job_id: NDArray[np.object_] | None = None,
    tenant: Codes | None = None,
    user: Codes | None = None,
    model: Codes | None = None,
    status: Ints | None = None,
    cpus: Floats | None = None,
    mem_gib: Floats | None = None,
    deadline_s: Floats | None = None,
    priority: Ints | Floats | None = None,
    gpu_type: Codes | None = None,
    nodes: Ints | Floats | None = None,
    attempts: dict[int, tuple[float, ...]] | None = None,
    extra: dict[str, NDArray[np.generic]] | None = None,
    notes: tuple[str, ...] = (),
) -> Workload:
    """Build a workload from the columns a source has; sorts by submit time, keeping row order on ties."""
    rows = len(submit_s)
    unknown, zeros, unnamed = np.full(rows, np.nan), np.zeros(rows, np.int64), Codes.empty(rows)
    work = Workload(
        source=source,
        job_id=np.array([str(i) for i in range(rows)], dtype=object) if job_id is None else job_id,
        submit_s=np.asarray(submit_s, np.float64),
        gpus=np.asarray(gpus, np.int64),
        duration_s=np.asarray(duration_s, np.float64),
        tenant=tenant or unnamed,
        user=user or unnamed,
        model=model or unnamed,
        status=zeros if status is None else status,
        cpus=unknown if cpus is None else cpus,
        mem_gib=unknown if mem_gib is None else mem_gib,
        deadline_s=unknown if deadline_s is None else deadline_s,
        priority=np.asarray(zeros if priority is None else priority, np.int64),
        gpu_type=gpu_type or unnamed,
        nodes=np.asarray(zeros if nodes is None else nodes, np.int64),
        attempts=attempts or {},
        extra=extra or {},
        notes=notes,
    )
    if rows and np.any(np.diff(work.submit_s) < 0):
        work = work.take(np.argsort(work.submit_s, kind="stable"))
    return work
