"""What a policy sees: the active jobs as read-only columns, and the cluster. Beliefs and facts, never the truth.

A view is a wall. It holds copies in memory that nobody can write to (`sealed`) and no way back to the engine's tables,
so whatever a policy does to it changes nothing but that policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core import schema
from cotenant.core.deadlines import Steps, strict_steps
from cotenant.core.partitions import Slicing
from cotenant.core.stages import Stages
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.together import Together
from cotenant.core.training import Training
from cotenant.core.workload import Floats, Ints

# Columns that the engine computes for the view in one go.
V_REMAINING, V_ATTAINED, V_WAITED, V_RUNNING, V_PROGRESS, V_STARTING = range(6)
VIEW_COLUMNS = 6
SHOWN_FLOATS = np.array([k for k, column in enumerate(schema.FLOATS) if column.shown])
SHOWN_INTS = np.array([k for k, column in enumerate(schema.INTS) if column.shown])
SHOWN_SHAPES = np.array([getattr(col, column.name) for column in schema.SHAPES])
_FLOATS = [column.shown for column in (*schema.LOOKS, *schema.shown(schema.FLOATS))]
_INTS = [column.shown for column in (*schema.shown(schema.INTS), *schema.SHAPES)]
FLOAT_LINES = {name: line for line, name in enumerate(_FLOATS)}  # of `View.floats`, for kernels
INT_LINES = {name: line for line, name in enumerate(_INTS)}

_Column = TypeVar("_Column")
_FEW = 8  # searches for a row that cost less than a table of all
_NOTHING_GIVEN: Matrix = np.ndarray((0, 3), np.float64, b"")


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that nobody can make writable, because its memory is a `bytes`."""
    return np.ndarray(array.shape, array.dtype, array.tobytes())


def blank(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Zeros that are sealed from the beginning: compiled code alone can fill them, before anybody else has them."""
    return np.ndarray(shape, dtype, bytes(int(np.dtype(dtype).itemsize * math.prod(shape))))


def seal(value: Any) -> Any:
    """A copy of a dataclass or tuple with every array in it sealed."""
    if isinstance(value, np.ndarray):
        return sealed(value)
    if isinstance(value, tuple):
        return tuple(seal(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: seal(getattr(value, part.name)) for part in fields(value)})
    return value


def rates_of(speed: NDArray[np.float64], kind: Ints, open_pools: Ints, pool: IntMatrix) -> NDArray[np.float64]:
    """Jobs x pools: seconds of work per second when consolidated there; 0 where a job cannot or may not run."""
    open_ = (open_pools[:, None] >> np.arange(len(pool))[None, :]) & 1
    return np.asarray(speed[kind][:, pool[:, col.POOL_TYPE], 0] * open_)


class Shown(Generic[_Column]):
    """A column of the view, by the name that the schema gives it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._table, names = ("floats", _FLOATS) if name in _FLOATS else ("ints", _INTS)
        self._place = names.index(name)

    def __get__(self, view: View, owner: type) -> _Column:
        column: _Column = self if view is None else getattr(view, self._table)[self._place]
        return column


@dataclass(frozen=True, slots=True)
class Bonds:
    """What keeps live jobs from being stopped and moved at will, for policies that promise leases.

    By row; of nodes by number.
    """

    stays: NDArray[np.bool_]  # nobody may stop it once it runs
    loses: NDArray[np.bool_]  # stopped it begins anew, or goes on in the same place only
    guessed: NDArray[np.bool_]  # nobody knows how long it takes
    reserve_s: Floats  # seconds that it may take in all, though less is believed
    handover_s: float  # from the request to leave until GPUs are free
    pinned: tuple[tuple[int, int, float], ...]  # (node, GPUs, until when) of jobs that nobody may stop
    shut: tuple[int, ...]  # nodes that are down, or take nobody in


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change during a run: the pools, what GPUs cost, how well kinds of jobs share, who is who."""

    pool_types: tuple[str, ...] = ()
    pool_prices: Floats = field(default_factory=lambda: np.zeros(0))
    pair: NDArray[np.float64] | None = None  # kind x kind x GPU type: speed of the first beside the second
    stages: Stages | None = None  # stage times of jobs, where they are known
    together: Together | None = None  # what is believed of jobs that share GPUs
    rates: NDArray[np.float64] | None = None  # `rates_of` all rows, where somebody has worked them out
    steps: Steps | None = None  # deadline steps of all rows; None: the deadlines as strict ones
    elastic: NDArray[np.bool_] | None = None  # row -> whether it may change its size; None: nobody may
    training: Training | None = None  # what elastic jobs have told of themselves
    sizes: Ints | None = None  # row x (fewest, most) GPUs of elastic jobs; None: any number
    bonds: Bonds | None = None  # None: all may be stopped, and go on anywhere
    movable: NDArray[np.bool_] | None = None  # row -> whether it may be moved while it runs; None: everybody may
    slicing: Slicing | None = None  # how GPUs may be cut, where policy and cluster know slices


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """The cluster at one moment; columns of the tables are named in `cotenant.core.columns`."""

    node: IntMatrix  # nodes x (capacity, free, pool, size); the capacity of a node that is down is 0
    host: Matrix  # nodes x (cores, cores free, GiB, GiB free)
    hosts_bind: bool  # whether cores and host memory are modelled
    pool: IntMatrix
    quota: IntMatrix  # tenants x (limit, used, guaranteed)
    users: IntMatrix  # GPUs x places: rows of the jobs on each GPU, -1 for nobody; no rows unless GPUs are shared
    open: NDArray[np.bool_]  # GPUs, as in `users`, that may be given away: no node is shut, no job there is pinned
    gpu_first: Ints  # first GPU of each node, and the end
    gpu_gib: Floats  # GPU type -> GiB of memory of one GPU; infinity where nobody asks
    speed: NDArray[np.float64]  # kind x GPU type x (consolidated, spread), seconds of work per second
    failures: int  # of nodes, so far
    rotates: bool = False  # jobs of different turns really have GPUs one after the other, not shares of their time

    @property
    def largest_node(self) -> int:
        """GPUs of the largest node, up or not."""
        return max(int(self.node[:, col.NODE_SIZE].max(initial=1)), 1)

    @property
    def node_type(self) -> Ints:
        """GPU type of each node, as a number."""
        return np.asarray(self.pool[self.node[:, col.NODE_POOL], col.POOL_TYPE])

    @property
    def gpu_node(self) -> Ints:
        """Node of each GPU."""
        return np.repeat(np.arange(len(self.node)), np.diff(self.gpu_first))

    def quota_left(self) -> Ints:
        """GPUs that each tenant may still take; an array of one's own."""
        return np.asarray(self.quota[:, col.Q_LIMIT] - self.quota[:, col.Q_USED], np.int64)

    def guaranteed_left(self) -> Ints:
        """GPUs that each tenant may still take of what it is guaranteed; without a tree of tenants of its quota."""
        return np.asarray(self.quota[:, col.Q_GUARANTEED] - self.quota[:, col.Q_USED], np.int64)


@dataclass(frozen=True, slots=True)
class View:
    """Active jobs (waiting and running) at one moment; all columns are in step with `rows`. Times are seconds."""

    now_s: float
    rows: Ints  # which jobs: rows of the workload
    floats: Matrix  # what the engine computes for a look, then the shown float columns; one line per column
    ints: IntMatrix  # the shown integer columns, then those of the job's class
    held: IntMatrix  # (place in `rows`, node, GPUs, mask) of every piece that a job holds, a job's own in order
    site: ClusterSite
    facts: Facts = field(default_factory=Facts)
    given: Matrix = field(default_factory=lambda: _NOTHING_GIVEN)  # (when, row, pool) since the last plan; row -1: none
    _kept: dict[str, Any] = field(default_factory=dict)

    remaining_s = Shown[Floats]()
    attained_s = Shown[Floats]()
    waited_s = Shown[Floats]()
    progress_s = Shown[Floats]()
    starting_s = Shown[Floats]()
    submit_s = Shown[Floats]()
    believed_s = Shown[Floats]()
    since_s = Shown[Floats]()
    speed = Shown[Floats]()
    first_start_s = Shown[Floats]()
    cpus = Shown[Floats]()
    mem_gib = Shown[Floats]()
    restore_s = Shown[Floats]()
    deadline_s = Shown[Floats]()
    tier = Shown[Floats]()
    weight = Shown[Floats]()
    steps_per_s = Shown[Floats]()
    alone_speed = Shown[Floats]()
    gpu_gib = Shown[Floats]()
    share = Shown[Floats]()
    cap = Shown[Floats]()
    gpus = Shown[Ints]()
    class_number = Shown[Ints]()
    preemptions = Shown[Ints]()
    tenant = Shown[Ints]()
    kind = Shown[Ints]()
    host_row = Shown[Ints]()
    level = Shown[Ints]()
    turn = Shown[Ints]()
    opportunistic = Shown[Ints]()
    arrival = Shown[Ints]()
    leaving = Shown[Ints]()
    promised = Shown[Ints]()
    sliced = Shown[Ints]()
    column = Shown[Ints]()
    asked_gpus = Shown[Ints]()
    mode = Shown[Ints]()
    open_pools = Shown[Ints]()
    parts = Shown[Ints]()

    # -- jobs --------------------------------------------------------------------------------------------------

    @property
    def running(self) -> NDArray[np.bool_]:
        """Whether each job runs now."""
        return np.asarray(self.floats[V_RUNNING] > 0)

    @property
    def attained_gpu_s(self) -> Floats:
        """GPU-seconds that each job has held."""
        return self.attained_s * self.gpus

    @property
    def steps(self) -> Steps:
        """Deadline steps of each job and what they are worth."""
        known = self.facts.steps
        return strict_steps(self.deadline_s) if known is None else known.take(self.rows)

    @property
    def priority(self) -> Floats:
        """Priority that each job's owner gave it, 0 unless told; higher comes first, before any other order."""
        return -self.tier

    @property
    def rates(self) -> NDArray[np.float64]:
        """Jobs x pools: seconds of work per second when consolidated there; 0 where a job cannot or may not run."""
        if "rates" not in self._kept:
            known, site = self.facts.rates, self.site
            found = rates_of(site.speed, self.kind, self.open_pools, site.pool) if known is None else known[self.rows]
            self._kept["rates"] = sealed(found)
        return np.asarray(self._kept["rates"])

    @property
    def pool(self) -> Ints:
        """Pool in which each job runs; -1 for those that wait."""
        found = np.full(len(self.rows), -1, np.int64)
        found[self.held[:, 0]] = self.site.node[self.held[:, 1], col.NODE_POOL]
        return found

    @property
    def slowdown(self) -> Floats:
        """How much longer an iteration of each running job takes now than without company; 1 for the others."""
        speed = self.speed
        return np.where(self.running & (speed > 0), self.alone_speed / np.where(speed > 0, speed, 1.0), 1.0)

    def size_limits(self, rows: Ints) -> tuple[Ints, Ints]:
        """Fewest and most GPUs that elastic jobs take."""
        known = self.facts.sizes
        if known is None:
            return np.ones(len(rows), np.int64), np.full(len(rows), self.cluster_gpus, np.int64)
        return np.maximum(known[rows, 0], 1), known[rows, 1]

    def at(self, row: int) -> int:
        """The place of a row in the columns: looked for among sorted rows at first, by a table if asked often."""
        table: dict[int, int] | None = self._kept.get("at")
        if table is not None:
            return table[row]
        sought = self._kept["sought"] = self._kept.get("sought", 0) + 1
        if sought <= _FEW:
            place = int(self.rows.searchsorted(row))
            if place < len(self.rows) and self.rows[place] == row:
                return place
        return self.places_of_rows()[row]

    def places_of_rows(self) -> dict[int, int]:
        """Row -> its place in the columns, of all."""
        if "at" not in self._kept:
            self._kept["at"] = dict(zip(self.rows.tolist(), range(len(self.rows)), strict=True))
        found: dict[int, int] = self._kept["at"]
        return found

    def at_rows(self, rows: Ints) -> Ints:
        """The places of several rows."""
        order = np.argsort(self.rows, kind="stable")
        return order[np.searchsorted(self.rows, rows, sorter=order)]

    def placement(self, row: int) -> tuple[tuple[int, int], ...]:
        """(node, GPUs) pairs that a running job holds."""
        return tuple((node, gpus) for node, gpus, _ in self.places(row))

    def places(self, row: int) -> tuple[tuple[int, int, int], ...]:
        """(node, GPUs, mask of GPUs of the node) of a running job; masks are 0 unless GPUs are shared."""
        if "pieces" not in self._kept:
            self._kept["pieces"] = np.searchsorted(self.held[:, 0], np.arange(len(self.rows) + 1)).tolist()
        place = self.places_of_rows().get(row, -1)
        if place < 0:
            return ()
        first, end = self._kept["pieces"][place : place + 2]
        return tuple(map(tuple, self.held[first:end, 1:].tolist()))

    # -- the cluster -------------------------------------------------------------------------------------------

    @property
    def node_free_gpus(self) -> Ints:
        """Idle GPUs per node; an array of one's own."""
        return self.site.node[:, col.NODE_FREE].copy()

    @property
    def cluster_gpus(self) -> int:
        """GPUs on nodes that are up."""
        return int(self.site.node[:, col.NODE_CAP].sum())

    @property
    def pool_gpus(self) -> Ints:
        """GPUs per pool (one GPU type of one partition) on nodes that are up."""
        node = self.site.node
        return np.bincount(node[:, col.NODE_POOL], node[:, col.NODE_CAP], len(self.site.pool)).astype(np.int64)

    @property
    def pool_types(self) -> tuple[str, ...]:
        """GPU type of each pool."""
        return self.facts.pool_types

    @property
    def pool_prices(self) -> Floats:
        """Money per GPU-hour in each pool."""
        return self.facts.pool_prices

    @property
    def pair_rates(self) -> NDArray[np.float64] | None:
        """Kind x kind x pool: rate of the first beside the second on the same GPUs; 0 where they cannot share."""
        pair = self.facts.pair
        return None if pair is None else pair[:, :, self.site.pool[:, col.POOL_TYPE]]
