"""Tables that take jobs in one by one and stay: for whoever does not know all jobs beforehand.

A job gets a row when it comes and keeps it until it is dropped. Rows are given in order of arrival, so that ties by row
are ties by arrival. Classes and
tenants are made when their first job comes. Every class has its stretch of the heap (and, for backfill searches,
of the tree), which moves to a larger one when it is full: a decision costs what changed, never what waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.state import Rule, State
from cotenant.core.tenants import Tree
from cotenant.core.workload import Floats, make_workload
from cotenant.engine.events import unpromise
from cotenant.engine.heaps import remove_waiting
from cotenant.engine.ledger import set_leaf, stand_in_line
from cotenant.engine.partitions import most_slices
from cotenant.engine.tables import StopCosts, build_state, pools_for
from cotenant.engine.tenant_rows import lay_tenants, most_gpus, only_type, open_to, quotas, tells_apart
from cotenant.placement.modes import PlacementRule

_LEAST_ROWS, _LEAST_ROOM = 1024, 8


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job is when it comes. Cores and memory are of the whole gang; `barred` has a bit per GPU type.

    `parts` are partitions that are open to it beside its own; it stands in the line of `line`, if that is one.
    """

    gpus: int
    submit_s: float
    tenant: str = ""
    kind: int = 0  # row of the speeds
    cpus: float = 0.0
    mem_gib: float = 0.0
    nodes: int = 0
    barred: int = 0
    gpu_gib: float = 0.0
    priority: float = 0.0
    deadline_s: float = np.nan
    draw: float = 0.0
    steps_per_s: float = np.nan
    weight: float = 1.0
    parts: tuple[str, ...] = ()
    line: str = ""
    skew: float = np.nan  # of its model, for a placement that asks


class LiveRows:
    """The tables of a cluster, empty at first. `state` is replaced when they grow: ask for it, do not keep it."""

    def __init__(
        self, cluster: Cluster, placement: PlacementRule, rule: Rule, speed: np.ndarray, *, costs: StopCosts,
        sharing: bool = False, gpu_gib: Floats | None = None, start_s: float = 0.0,
    ) -> None:  # fmt: skip
        none = np.zeros(0)
        self.cluster, self.placement, self.rule = cluster, placement, rule
        self._apart = tells_apart(cluster)
        self.state: State = build_state(
            make_workload("live", none, none.astype(np.int64), none), cluster, placement, belief_s=none, restore_s=none,
            draw=none, speed=speed, skew=np.full(1, np.nan), sharing=sharing, gpu_gib=gpu_gib, costs=costs, tiers=True,
            most_slices=most_slices(cluster),
        )  # fmt: skip
        self.state.t[col.NOW] = self.state.t[col.BUSY_SINCE] = start_s
        self._used = 0
        self._classes: dict[tuple[float, ...], int] = {}
        self._count = len(self.state.cls)  # classes in use, those of suspended jobs included
        self._heap_end, self._tree_end = len(self.state.heap), len(self.state.tree)
        self._parts = list(cluster.partitions)
        self._tenants: dict[str, int] = {"": 0}
        self._ranks: dict[int, int] = {}  # class -> ranks given out
        self.costs = costs
        self._lay_tenants()

    def __len__(self) -> int:
        return self._used

    @property
    def tenants(self) -> tuple[str, ...]:
        """Names of the tenants by number."""
        return tuple(self._tenants)

    def enter(self, job: NewJob) -> int:
        """A row for a job that has come; it does not wait yet."""
        if self._used == len(self.state.f):
            self._grow_rows()
        state, row = self.state, self._used
        self._used += 1
        state.x[col.NEXT_ARRIVAL] = self._used
        f, i = state.f[row], state.i[row]
        f[col.SUBMIT], f[col.WORK], f[col.SINCE] = job.submit_s, np.inf, job.submit_s
        f[col.CPUS], f[col.MEM] = (job.cpus, job.mem_gib) if state.x[col.USE_HOST] else (0.0, 0.0)
        f[col.DRAW], f[col.DEADLINE], f[col.TIER] = job.draw, job.deadline_s, -job.priority
        f[col.WEIGHT], f[col.GPU_GIB] = job.weight, job.gpu_gib
        f[col.STEPS] = 1.0 if np.isnan(job.steps_per_s) else job.steps_per_s
        i[col.GPUS], i[col.SPEED_ROW], i[col.TENANT] = job.gpus, job.kind, self._tenant(job.tenant)
        i[col.ARRIVAL] = row
        i[col.CLASS] = self._class_of(job)
        self._rank(row)
        return row

    def set_speeds(self, speed: np.ndarray) -> None:
        """Speeds of more kinds: those known keep their rows."""
        self.state = self.state._replace(speed=np.array(speed, np.float64, order="C"))

    def set_priority(self, row: int, priority: float) -> None:
        """Another tier; the caller lets the job stand in line anew."""
        self._give_up_leaf(row)
        self.state.f[row, col.TIER] = -priority
        bound = int(self.state.i[row, col.CLASS])
        if self.state.cls[bound, col.C_BOUND] == row:  # a suspended job keeps its place among its like
            self.state.i[row, col.CLASS] = self.state.cls[bound, col.C_ORIGIN]
        self._rank(row)
        if self.state.cls[bound, col.C_BOUND] == row:
            self.state.i[row, col.CLASS] = bound

    def set_gpus(self, row: int, gpus: int, job: NewJob, now_s: float) -> bool:
        """Another size of a job, unless it runs; whether it was changed. What it was promised is withdrawn."""
        state = self.state
        if state.i[row, col.PROMISED] == 1:
            unpromise(state, self.rule, row, now_s)
        if state.i[row, col.STATE] in (col.RUNNING, col.PINNED):
            return False
        waits = state.i[row, col.HEAP_AT] >= 0
        if waits:
            remove_waiting(state, row)
        self._give_up_leaf(row)
        f, i = state.f[row], state.i[row]
        f[col.CPUS], f[col.MEM] = (job.cpus, job.mem_gib) if state.x[col.USE_HOST] else (0.0, 0.0)
        i[col.GPUS], i[col.CLASS], i[col.SPEED_ROW] = gpus, self._class_of(job), job.kind
        self._rank(row)
        if waits:
            stand_in_line(self.state, row)
        return True

    def _give_up_leaf(self, row: int) -> None:
        """Nobody must find the job by the rank that it had; it is entered anew with its keys."""
        if self.rule.flags[col.EASY] and self.state.cls[self.state.i[row, col.CLASS], col.C_BOUND] < 0:
            set_leaf(self.state, row, np.inf)

    def queue_of(self, row: int) -> int:
        """The queue of a job with what it has attained."""
        attained = self.state.f[row, col.ATTAINED] * self.state.i[row, col.GPUS]
        return int(np.searchsorted(self.rule.thresholds, attained, side="right"))

    # -- classes ---------------------------------------------------------------------------------------------------

    def _tenant(self, name: str) -> int:
        if name in self._tenants:
            return self._tenants[name]
        number = self._tenants[name] = len(self._tenants)
        if number >= len(self.state.quota):
            quota, use = quotas(self.cluster, [""] * max(number, 8))
            use[:, col.U_SINCE] = self.state.t[col.NOW]
            quota, use = np.concatenate([self.state.quota, quota]), np.concatenate([self.state.use, use])
            self.state = self.state._replace(quota=quota, use=use)
        self._lay_tenants()
        return number

    def _lay_tenants(self) -> None:
        self.state, self._leaf = lay_tenants(self.state, self.cluster, self.tenants)

    def set_tree(self, tree: Tree | None) -> bool:
        """Another tree of tenants, from the next decision on; False, and nothing changed, where one comes or goes:
        then jobs are told apart in another way, and the tables have to be laid out anew."""
        if (tree is None) != (self.cluster.tenants is None):
            return False
        self.cluster = replace(self.cluster, tenants=tree)
        self._lay_tenants()
        for key, c in self._classes.items():
            self.state.cls[c, col.C_POOLS] = self._pools(key)
        self.state.x[col.NEW_TREE] = self.state.x[col.DIRTY] = 1
        self.state.x[col.NODES] += 1  # other nodes may be open to jobs that wait, or are set aside
        self.state.x[col.UNSURE] = 2
        return True

    def _class_of(self, job: NewJob) -> int:
        apart = self._apart or job.tenant in self.cluster.quotas
        tenant = self._tenants[job.tenant] if apart else -1
        hosts = (job.cpus, job.mem_gib) if self.state.x[col.USE_HOST] else (0.0, 0.0)
        parts = self._parts
        part = parts.index(job.tenant) if job.tenant in parts else parts.index("") if "" in parts else -1
        more = [parts.index(name) for name in job.parts if name in parts]
        line = parts.index(job.line) if job.line in parts else max(part, 0) if more else part
        mode = int(self.placement.modes(np.array([job.skew]))[0])
        key = (job.gpus, tenant, part, line, *hosts, job.barred, job.nodes, mode, *more)
        known = self._classes.get(key)
        if known is not None:
            return known
        if self._count == len(self.state.cls):
            self._grow_classes()
        c = self._classes[key] = self._count
        self._count += 1
        row = self.state.cls[c]
        row[col.C_GPUS], row[col.C_TENANT], row[col.C_PART] = job.gpus, self._tenants[job.tenant], line
        row[col.C_MODE], row[col.C_NODES] = mode, job.nodes
        row[col.C_POOLS] = self._pools(key)
        row[col.C_TYPE] = only_type(job.barred, len({group.gpu_type for group in self.cluster.groups}))
        if self.cluster.tenants is not None:
            row[col.C_LEAF] = self._leaf[row[col.C_TENANT], 1 + row[col.C_TYPE]]
        self._move_class(c, np.zeros(0, np.int64))
        return c

    def _pools(self, key: tuple[float, ...]) -> int:
        """The pools in which jobs of a class may run."""
        gpus, tenant, part, _, cpus, mem_gib, barred, nodes, _, *more = key
        name = self.tenants[int(tenant)] if tenant >= 0 else ""
        bits = 0
        for one in {part, *more}:
            bits |= pools_for(self.state, int(gpus), int(nodes), (cpus, mem_gib), int(one), int(barred))
        return bits & open_to(self.cluster, name) if gpus <= most_gpus(self.cluster, name) else 0

    def _rank(self, row: int) -> None:
        """A place for a job in its class, by tier and arrival; the class moves when it is full or out of order."""
        state, c = self.state, int(self.state.i[row, col.CLASS])
        rank, room = self._ranks[c], int(state.cls[c, col.C_ROOM])
        offset = int(state.cls[c, col.C_OFFSET])
        in_order = rank == 0 or state.f[state.members[offset + rank - 1], col.TIER] <= state.f[row, col.TIER]
        if rank < room and in_order:
            state.members[offset + rank] = row
            state.i[row, col.RANK] = rank
            self._ranks[c] = rank + 1
            return
        of = state.i[: self._used, col.CLASS]
        of = np.where(state.cls[of, col.C_BOUND] >= 0, state.cls[of, col.C_ORIGIN], of)
        alive = np.flatnonzero((of == c) & (state.i[: self._used, col.STATE] != col.FINISHED))
        self._move_class(c, np.union1d(alive, [row]))

    def _move_class(self, c: int, rows: np.ndarray) -> None:
        """Give a class a larger stretch, and its jobs their ranks anew."""
        state = self.state
        room = max(_LEAST_ROOM, 1 << int(2 * len(rows)).bit_length())
        heap = _longer(state.heap, self._heap_end + room)
        members = _longer(state.members, self._heap_end + room)
        tree = _longer(state.tree, self._tree_end + 2 * room)
        old, length = int(state.cls[c, col.C_OFFSET]), int(state.cls[c, col.C_LEN])
        heap[self._heap_end : self._heap_end + length] = state.heap[old : old + length]
        self.state = state = state._replace(heap=heap, members=members, tree=tree)
        row = state.cls[c]
        row[col.C_OFFSET], row[col.C_ROOM] = self._heap_end, room
        row[col.C_TREE], row[col.C_LEAVES] = self._tree_end, room
        tree[self._tree_end : self._tree_end + 2 * room] = np.inf
        self._heap_end, self._tree_end = self._heap_end + room, self._tree_end + 2 * room
        ordered = rows[np.lexsort((rows, state.f[rows, col.TIER]))].astype(np.int64)
        members[row[col.C_OFFSET] : row[col.C_OFFSET] + len(ordered)] = ordered
        state.i[ordered, col.RANK] = np.arange(len(ordered))
        self._ranks[c] = len(ordered)
        if self.rule.flags[col.EASY]:
            for job in ordered[state.i[ordered, col.STATE] == col.WAITING].tolist():
                set_leaf(state, job, float(state.f[job, col.BELIEF]))

    # -- growing ---------------------------------------------------------------------------------------------------

    def _grow_rows(self) -> None:
        more = max(_LEAST_ROWS, len(self.state.f))
        f, i = np.zeros((more, col.FLOAT_COLUMNS)), np.zeros((more, col.INT_COLUMNS), np.int64)
        f[:, col.SPEED] = f[:, col.SHARE] = f[:, col.CAP] = f[:, col.ALONE] = 1.0
        f[:, [col.FIRST, col.FINISH, col.BARRED, col.GAIN, col.COST]] = np.nan
        f[:, [col.FAIL_AT, col.EVENT, col.LEAVES]] = np.inf
        f[:, col.SAVE], f[:, col.START_UP] = self.costs.save_s, self.costs.start_s
        f[:, col.RESUME] = self.costs.resume_s
        i[:, col.RUNG], i[:, col.YIELDS] = int(self.costs.suspends), 2 + int(self.costs.suspends)
        i[:, [col.HEAP_AT, col.EVENT_AT, col.SLICE, col.HOST, col.OLD, col.HOME]] = -1
        state = self.state
        self.state = state._replace(
            f=np.concatenate([state.f, f]),
            i=np.concatenate([state.i, i]),
            events=_longer(state.events, len(state.f) + more + 1),
            when=_longer(state.when, len(state.f) + more + 1),
            attempt_of=np.concatenate([state.attempt_of, np.zeros((more, 2), np.int64)]),
        )

    def _grow_classes(self) -> None:
        state, more = self.state, max(64, len(self.state.cls))
        cls = np.zeros((more, col.CLASS_COLUMNS), np.int64)
        cls[:, [col.C_BOUND, col.C_HEAD, col.C_TWIN]] = -1
        self.state = state._replace(
            cls=np.concatenate([state.cls, cls]),
            failed=_longer(state.failed, len(state.cls) + more),
            lines=_longer(state.lines, len(state.cls) + more + 1),
            moved=_longer(state.moved, len(state.cls) + more + 1),
        )
        self._lay_tenants()


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """The same array with room for `size`, doubled where it has to grow; what is new is zero."""
    if len(array) >= size:
        return array
    return np.concatenate([array, np.zeros(max(size, 2 * len(array)) - len(array), array.dtype)])
