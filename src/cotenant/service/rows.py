"""The jobs that may run, as columns in order of submission, kept up to date job by job.

A decision over a long queue must not touch every job in Python. What waits does not change, so its row is
written once; what runs is written again for every decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Codes, Floats, Ints

# GPU_MEM: GiB per GPU. ALONE: 1 where it may not share GPUs. BATCH: samples per step and GPU, 0: it may not be cut.
# PACE: its speed in its present company against alone, as measured. FEWEST, MOST: GPUs of an elastic job; 0 for others.
SUBMITTED, BELIEVED, DONE, ATTAINED, FIRST, CPUS, MEM, SINCE, COST, DEADLINE, PRIORITY = range(11)
GPU_MEM, ALONE, NODES, BATCH, PACE, FEWEST, MOST = range(11, 18)
_FLOATS = 18
_LEAST = 1024

Slices = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One job as the decision sees it. Times are Unix seconds; NaN where there is none."""

    id: str
    tenant: str
    gpus: int
    values: tuple[float, ...]  # in the order of the names above
    model: str = ""
    gpu_type: str = ""  # the only one it may run on; empty for any


@dataclass(frozen=True, slots=True)
class Columns:
    """What one decision is about. `running` are positions in these columns, `slices` (node, GPUs) pairs of each.

    `coming` marks those of them that are only promised their GPUs: others still sit there. `ident` is a whole number
    per job that never changes and is never given twice, however rows are laid out. Where GPUs are shared, `masks` says
    for each of `running` which GPUs of its nodes (0: any), and `hosts` the row of whose guest it is (-1: nobody's).
    """

    ids: NDArray[np.object_]
    ident: Ints
    tenant: Codes
    model: Codes
    gpu_type: Codes
    gpus: Ints
    values: NDArray[np.float64]
    running: Ints
    slices: Sequence[Slices]
    coming: NDArray[np.bool_]
    masks: Sequence[tuple[int, ...]]
    hosts: Ints

    def of(self, column: int) -> Floats:
        """One column."""
        return np.ascontiguousarray(self.values[:, column])


class Rows:
    """The columns of all jobs that may run, with holes where jobs have left; holes are closed now and then."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._end = 0
        self._values = np.zeros((_LEAST, _FLOATS))
        self._gpus = np.zeros(_LEAST, np.int64)
        self._tenant = np.zeros(_LEAST, np.int64)
        self._ids = np.empty(_LEAST, object)
        self._order = np.zeros(_LEAST, np.int64)
        self._in = np.zeros(_LEAST, bool)
        self._model = np.zeros(_LEAST, np.int64)
        self._type = np.zeros(_LEAST, np.int64)
        self._ident = np.zeros(_LEAST, np.int64)
        self._tenants: dict[str, int] = {}
        self._models: dict[str, int] = {"": 0}
        self._types: dict[str, int] = {"": 0}
        self._idents: dict[str, int] = {}
        self._given = 0

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, job: str) -> bool:
        return job in self._at

    def put(self, order: int, row: Row) -> None:
        """Write a job, new or known. `order` is its place among all: it never changes."""
        at = self._at.get(row.id)
        if at is None:
            at = self._at[row.id] = self._room()
            self._ids[at], self._order[at], self._in[at] = row.id, order, True
            self._ident[at] = self._number(row.id)
            self._tenant[at] = self._tenants.setdefault(row.tenant, len(self._tenants))
            self._model[at] = self._models.setdefault(row.model, len(self._models))
            self._type[at] = self._types.setdefault(row.gpu_type, len(self._types))
        self._gpus[at] = row.gpus
        self._values[at] = row.values

    def drop(self, job: str) -> None:
        """A job that may not run now, or never again."""
        at = self._at.pop(job, None)
        if at is not None:
            self._in[at] = False
            self._ids[at] = None

    def forget(self, job: str) -> None:
        """A job that will never be heard of again."""
        self._idents.pop(job, None)

    def _number(self, job: str) -> int:
        """The number of a job, for as long as this process lives."""
        if job not in self._idents:
            self._idents[job] = self._given
            self._given += 1
        return self._idents[job]

    def columns(
        self, running: Sequence[tuple[str, Slices]], coming: Set[str] = frozenset(),
        masks: Mapping[str, tuple[int, ...]] | None = None, hosts: Mapping[str, str] | None = None,
    ) -> Columns:  # fmt: skip
        """Everything that may run, by order of submission. Of `running`, those `coming` do not have their GPUs yet.

        `masks` and `hosts` (guest -> host) are about jobs of `running`, by id.
        """
        masks, hosts = masks or {}, hosts or {}
        rows = np.flatnonzero(self._in[: self._end])
        if (np.diff(self._order[rows]) < 0).any():  # somebody came back: a resumed or preempted job
            rows = rows[np.argsort(self._order[rows], kind="stable")]
        place = np.zeros(self._end, np.int64)
        place[rows] = np.arange(len(rows))
        at = np.array([place[self._at[job]] for job, _ in running], np.int64)
        waits = np.zeros(len(rows), bool)
        if coming:
            waits[at] = [job in coming for job, _ in running]
        tenant = Codes(self._tenant[rows], tuple(self._tenants) or ("",))
        model, gpu_type = Codes(self._model[rows], tuple(self._models)), Codes(self._type[rows], tuple(self._types))
        slices = [slices for _, slices in running]
        return Columns(
            self._ids[rows], self._ident[rows], tenant, model, gpu_type, self._gpus[rows], self._values[rows], at,
            slices, waits, [masks.get(job, (0,) * len(own)) for job, own in running],
            np.array([place[self._at[hosts[job]]] if job in hosts else -1 for job, _ in running], np.int64),
        )  # fmt: skip

    def _room(self) -> int:
        if self._end == len(self._in):
            self._pack()
        self._end += 1
        return self._end - 1

    def _pack(self) -> None:
        """Close the holes, in order of submission; double the room where they were few."""
        rows = np.flatnonzero(self._in)
        rows = rows[np.argsort(self._order[rows], kind="stable")]
        size = max(len(self._in) * (2 if 2 * len(rows) > len(self._in) else 1), _LEAST)
        for name in ("_values", "_gpus", "_tenant", "_model", "_type", "_ident", "_ids", "_order", "_in"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: len(rows)] = old[rows]
            setattr(self, name, new)
        self._end = len(rows)
        self._at = {job: at for at, job in enumerate(self._ids[: self._end].tolist())}
