"""The jobs that may run, as columns in order of submission, kept up to date job by job.

A decision over a long queue must not touch every job in Python. What waits does not change, so its row is written
once. What runs gets on by itself, and its row says how (`Clock`): it is written again only when something happens to
the job, and in part when it says something of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Codes, Floats, Ints

# GPU_MEM: GiB per GPU. ALONE: 1 where it may not share GPUs. BATCH: samples per step and GPU, 0: it may not be cut.
# PACE: its speed in its present company against alone, as measured. FEWEST, MOST: GPUs of an elastic job; 0 for others.
# SINCE: the moment from which on it runs, or waits.
SUBMITTED, FIRST, CPUS, MEM, SINCE, COST, DEADLINE, PRIORITY, GPU_MEM, ALONE, NODES = range(11)
BATCH, PACE, FEWEST, MOST = range(11, 15)
_GIVEN = 15
# Computed for every decision.
BELIEVED, DONE, ATTAINED = _GIVEN, _GIVEN + 1, _GIVEN + 2
_LEAST = 1024

Slices = tuple[tuple[int, int], ...]


class Belief(NamedTuple):
    """How long a job takes in all: the most of DONE + `more_s`, `least_s`, and `times` ATTAINED."""

    more_s: float = -np.inf
    least_s: float = 0.0
    times: float = 0.0


class Clock(NamedTuple):
    """How a job gets on: since then it has run, with so much attained and done before; at `pace` it does its work.

    `since_s` is infinite while it does not run.
    """

    since_s: float = np.inf
    attained_s: float = 0.0
    done_s: float = 0.0
    pace: float = 1.0


_STANDS, _UNKNOWN = Clock(), Belief()


@dataclass(frozen=True, slots=True)
class Row:
    """One job as the decision sees it. Times are Unix seconds; NaN where there is none."""

    id: str
    tenant: str
    gpus: int
    values: tuple[float, ...]  # in the order of the names above, but for those that are computed
    model: str = ""
    gpu_type: str = ""  # the only one it may run on; empty for any
    clock: Clock = _STANDS
    belief: Belief = _UNKNOWN


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
        self._values = np.zeros((_LEAST, _GIVEN))
        self._clock = np.zeros((_LEAST, len(Clock._fields)))
        self._belief = np.zeros((_LEAST, len(Belief._fields)))
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
        self._values[at], self._clock[at], self._belief[at] = row.values, row.clock, row.belief

    def hear(
        self, jobs: Sequence[str], cost_s: Sequence[float], pace: Sequence[float], beliefs: Sequence[Belief]
    ) -> None:
        """What may change of known jobs though nothing happens to them."""
        at = [self._at[job] for job in jobs]
        self._values[at, COST], self._values[at, PACE] = cost_s, pace
        self._belief[at] = np.fromiter(chain.from_iterable(beliefs), np.float64).reshape(-1, len(Belief._fields))

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
        self, now_s: float, running: Sequence[tuple[str, Slices]], coming: Set[str] = frozenset(),
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
        at = place[np.array([self._at[job] for job, _ in running], np.int64)]
        waits = np.zeros(len(rows), bool)
        if coming:
            waits[at] = [job in coming for job, _ in running]
        tenant = Codes(self._tenant[rows], tuple(self._tenants) or ("",))
        model, gpu_type = Codes(self._model[rows], tuple(self._models)), Codes(self._type[rows], tuple(self._types))
        slices = [slices for _, slices in running]
        host = np.full(len(running), -1, np.int64)
        if hosts:
            host[:] = [place[self._at[hosts[job]]] if job in hosts else -1 for job, _ in running]
        return Columns(
            self._ids[rows], self._ident[rows], tenant, model, gpu_type, self._gpus[rows], self._at_time(rows, now_s),
            at, slices, waits, [masks.get(job) or (0,) * len(own) for job, own in running], host,
        )  # fmt: skip

    def _at_time(self, rows: Ints, now_s: float) -> NDArray[np.float64]:
        """All values of some rows at a moment, computed ones last."""
        since, attained, done, pace = self._clock[rows].T
        more, least, times = self._belief[rows].T
        ran = np.maximum(now_s - since, 0.0)
        attained = attained + ran
        done = np.maximum(done + ran * pace, 0.0)
        believed = np.maximum(np.maximum(done + more, least), times * attained)
        computed = np.stack([believed, np.minimum(done, believed), attained], axis=1)
        return np.concatenate([self._values[rows], computed], axis=1)

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
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: len(rows)] = old[rows]
            setattr(self, name, new)
        self._end = len(rows)
        self._at = {job: at for at, job in enumerate(self._ids[: self._end].tolist())}


_COLUMNS = (
    "_values", "_clock", "_belief", "_gpus", "_tenant", "_model", "_type", "_ident", "_ids", "_order", "_in",
)  # fmt: skip
