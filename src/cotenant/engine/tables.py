"""Build the engine's tables from a workload and a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.state import IntMatrix, State
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.job_rows import JobRows, alike
from cotenant.engine.openings import RING
from cotenant.engine.tenant_rows import lay_tenants, nobody, only_type, open_to, pools_of, quotas, tells_apart
from cotenant.placement.modes import PlacementRule

_SERIES_ROWS, _SEGMENT_ROWS = 4096, 50_000
_SEATS = 32  # GPUs of a node up to which it is noted who sits on it


@dataclass(frozen=True, slots=True)
class StopCosts:
    """What leaving GPUs and coming back takes, in seconds: by default nothing beyond the price of restoring.

    `save_s` from the order to leave until the GPUs are free (infinity: the world tells), `start_s` for every start,
    `resume_s` for going on after a suspension. With `suspends` jobs that make room are suspended, so many at most.
    """

    save_s: float = 0.0
    start_s: float = 0.0
    resume_s: float = 0.0
    suspends: bool = False
    most_suspended: int = 0
    patience_s: float = 30.0

    @property
    def lags(self) -> bool:
        """Whether GPUs are not free at once when somebody has to leave them."""
        return self.save_s > 0

    @property
    def rotates(self) -> bool:
        """Whether jobs that take turns really come and go: where they can be suspended, and where the world tells."""
        return self.lags and (self.suspends or self.save_s == np.inf)


@dataclass(frozen=True, slots=True)
class JobCosts:
    """The same by job, where jobs differ; `rung` and `yields` as in the columns of these names."""

    save_s: Floats
    start_s: Floats
    resume_s: Floats
    rung: Ints
    yields: Ints
    exit_s: Floats  # of its work, the last: saving and leaving after all steps

    @classmethod
    def alike(cls, costs: StopCosts, rows: int) -> JobCosts:
        """All jobs cost the same."""
        times = (costs.save_s, costs.start_s, costs.resume_s, int(costs.suspends), 2 + int(costs.suspends), 0.0)
        return cls(*(np.broadcast_to(value, rows) for value in times))

    @property
    def lags(self) -> bool:
        """Whether some job does not leave its GPUs at once."""
        return bool((self.save_s > 0).any())


def build_state(work: Workload, cluster: Cluster, placement: PlacementRule, **about: Any) -> State:
    """The tables with all rows of `work` written: see `lay_tables`."""
    state, rows = lay_tables(work, cluster, placement, **about)
    rows.fill(state, 0, rows.count)
    return state


def lay_tables(
    work: Workload,
    cluster: Cluster,
    placement: PlacementRule,
    *,
    belief_s: Floats,
    restore_s: Floats,
    draw: Floats,
    speed: np.ndarray,
    skew: Floats,
    speed_row: Ints | None = None,
    steps_per_s: Floats | None = None,
    sharing: bool = False,
    overcommits: bool = False,
    need_gib: Floats | None = None,
    gpu_gib: Floats | None = None,
    gantt_window: tuple[float, float] = (0.0, np.inf),
    measure: tuple[int, int] | None = None,
    costs: StopCosts | None = None,
    job_costs: JobCosts | None = None,
    tiers: bool = False,
    most_slices: int = 0,
) -> tuple[State, JobRows]:
    """Lay out all tables for the jobs of `work`, nothing arrived yet; the rows of jobs are still to be written.

    `speed[row, GPU type, consolidated | spread]`: `speed_row` says which row is a job's (its model, if not
    given). A job is kept off the types on which its speed is 0. `sharing` gives GPUs identities, so that several
    jobs may sit on one; with `overcommits` a quota bars nobody. `need_gib` is what each job needs of the memory of
    each of its GPUs, `gpu_gib` what a GPU of each type has. `costs` says what stopping takes where that holds GPUs,
    which gives them identities too, `job_costs` the same where jobs differ; `tiers` makes room for priorities that
    come later; a GPU may be cut into `most_slices`, and so have so many jobs.
    """
    rows, costs = len(work), costs or StopCosts()
    each = job_costs or JobCosts.alike(costs, rows)
    lags, rotates = costs.lags or each.lags, costs.rotates
    if job_costs is not None:
        rotates = lags and bool((each.yields & 1).any())
    sharing = sharing or lags
    node, host, pool = _nodes(cluster, placement.counts_only)
    modelled = bool(np.isfinite(host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]).any())
    kind = work.model.code if speed_row is None else speed_row
    hosts = [np.nan_to_num(one) if modelled else np.broadcast_to(0.0, rows) for one in (work.cpus, work.mem_gib)]
    barred = _barred(speed, kind, work, cluster)
    parts = np.broadcast_to(0, rows) if placement.counts_only else work.nodes
    quota, use = quotas(cluster, work.tenant.names)
    held = quota[:, col.Q_LIMIT].copy()
    if overcommits:  # nobody is too large for a quota that it need not have
        quota[:, col.Q_LIMIT] = col.UNLIMITED
    modes = placement.modes(skew)
    cls, of = _classes(work, cluster, hosts, modes, pool, quota, node, host, barred, parts)
    if overcommits:
        quota[:, col.Q_LIMIT] = held
    tier = alike(-work.priority.astype(np.float64))
    cls, members, rank, tree_size = _lay_out_classes(cls, of, tier, placement.relax_after_s < np.inf)
    cls, members = _with_bound_classes(cls, members, costs.most_suspended)
    attempts, attempt_of, fail_at = _attempts(work)
    weight = work.extra.get("weight")
    jobs = JobRows(
        rows,
        {
            col.SUBMIT: work.submit_s, col.WORK: work.duration_s, col.BELIEF: belief_s, col.DRAW: draw,
            col.RESTORE: alike(restore_s), col.DEADLINE: alike(work.deadline_s), col.TIER: tier, col.FAIL_AT: fail_at,
            col.CPUS: alike(hosts[0]), col.MEM: alike(hosts[1]),
            col.WEIGHT: 1.0 if weight is None else np.asarray(weight, np.float64),
            col.STEPS: 1.0 if steps_per_s is None else alike(np.nan_to_num(steps_per_s, nan=1.0)),
            col.GPU_GIB: 0.0 if need_gib is None else need_gib,
            col.SAVE: alike(each.save_s), col.START_UP: alike(each.start_s), col.RESUME: alike(each.resume_s),
            col.SAVING: alike(np.where(np.isfinite(each.save_s), each.save_s, 0.0)), col.EXIT: alike(each.exit_s),
        },
        {
            col.GPUS: work.gpus, col.TENANT: work.tenant.code, col.MODEL: work.model.code, col.SPEED_ROW: kind,
            col.CLASS: of + costs.most_suspended if costs.most_suspended else of, col.RANK: rank,
            col.RUNG: alike(each.rung), col.YIELDS: alike(each.yields),
        },
    )  # fmt: skip
    gpus = int(node[:, col.NODE_CAP].sum())
    places = max(col.SLOTS, most_slices)
    most = gpus * (places if sharing else 1)
    spare = (6 if lags else 3) * most + 16
    slices = np.zeros((spare, 4), np.int64)
    slices[:, col.SLICE_NEXT] = np.arange(1, spare + 1)
    slices[-1, col.SLICE_NEXT] = -1
    x = np.zeros(col.INT_SCALARS, np.int64)
    x[col.IDLE], x[col.STAMP], x[col.USE_HOST], x[col.WATCH] = gpus, 1, int(modelled), -1
    x[col.SHARING], x[col.LAGS], x[col.ROTATES] = int(sharing), int(lags), int(rotates)
    gpu, gpu_first = _gpus(node, places, sharing)
    first, last = measure or (0, rows - 1)
    x[col.MEASURE_FROM], x[col.MEASURE_TO] = first, last
    x[col.N_MEASURED_LEFT] = max(min(last, rows - 1) - first + 1, 0)
    t = np.zeros(col.FLOAT_SCALARS)
    t[col.NOW] = t[col.BUSY_SINCE] = work.submit_s[0] if rows else 0.0
    t[col.WINDOW_FROM], t[col.WINDOW_TO] = gantt_window
    t[col.LAST_SAMPLE] = -np.inf
    t[col.PATIENCE] = costs.patience_s
    t[[col.NEXT_TURN, col.NEXT_LOOSE, col.NEXT_WARM, col.NEXT_CLAIM]] = np.inf
    t[[col.GIVES_UNTIL, col.REPEATS_UNTIL]] = -np.inf
    x[col.RESERVED] = -1
    use[:, col.U_SINCE] = t[col.NOW]
    nodes, room = len(node), 2 * most + 16
    rows_of_tree, asked, claims = nobody(len(pool))
    state = State(
        f=np.zeros((rows, col.FLOAT_COLUMNS)),
        i=np.zeros((rows, col.INT_COLUMNS), np.int64),
        node=node,
        host=host,
        pool=pool,
        cls=cls,
        slices=slices,
        quota=quota,
        use=use,
        rows=rows_of_tree,
        asked=asked,
        claims=claims,
        run=np.zeros(room, np.int64),
        hot=np.zeros((col.HOT_COLUMNS, room)),
        keys=np.zeros((4 if tiers or _differ(tier) else 3, room)),
        heap=np.zeros(len(members), np.int64),
        members=members,
        events=np.zeros(rows + 1, np.int64),
        when=np.zeros(rows + 1),
        tree=np.full(tree_size, np.inf),
        speed=np.array(speed, np.float64, order="C"),
        gpu=gpu,
        gpu_first=gpu_first,
        gpu_leaving=np.zeros(len(gpu), np.int64),
        gpu_bound=np.zeros(len(gpu), np.int64),
        gpu_gib=np.full(speed.shape[1], np.inf) if gpu_gib is None else np.asarray(gpu_gib, np.float64),
        attempts=attempts,
        attempt_of=attempt_of,
        x=x,
        t=t,
        open=np.zeros((nodes, 4), np.int64),
        open_host=np.zeros((nodes, 4)),
        pick=np.zeros((gpus + 1, 2), np.int64),
        order=np.zeros((3, room), np.int64),
        scratch=np.zeros(room),
        stops=np.zeros(most + 1, np.int64),
        starts=np.zeros((most + 1, 4), np.int64),
        failed=np.zeros(len(cls), np.int64),
        lines=np.zeros(len(cls) + 1, np.int64),
        moved=np.zeros(len(cls) + 1, np.int64),
        series=np.zeros((_SERIES_ROWS, 4)),
        segments=np.zeros((_SEGMENT_ROWS, 5)),
        log=np.zeros((8 * most + 64, 3), np.int64),
        given=np.zeros((0, 3)),
        around=np.zeros(0, np.int64),
        **_seats(node, x, room, len(slices), quota),
    )
    return lay_tenants(state, cluster, work.tenant.names)[0], jobs


def _nodes(cluster: Cluster, counts_only: bool) -> tuple[IntMatrix, np.ndarray, IntMatrix]:
    """Nodes pool by pool: a pool is one GPU type of one partition, dedicated to the same tenants or to nobody. Counting
    merges a pool into one node."""
    types = list(dict.fromkeys(group.gpu_type for group in cluster.groups))
    parts = list(cluster.partitions)
    pools = pools_of(cluster)
    if len(pools) > 60:
        raise InputError(f"cluster has {len(pools)} pools of GPU type and partition; at most 60 are supported")
    sizes: list[int] = []
    cpus: list[float] = []
    mems: list[float] = []
    pool_rows: list[list[int]] = []
    node_pool: list[int] = []
    for at, (part, kind, owners) in enumerate(pools):
        groups = [g for g in cluster.groups if (g.partition, g.gpu_type, g.dedicated) == (part, kind, owners)]
        lo = len(sizes)
        for group in groups:
            count = 1 if counts_only else group.count
            factor = group.count if counts_only else 1
            sizes += [group.gpus_per_node * factor] * count
            cpus += [group.cpus * factor] * count
            mems += [(group.mem_gib + group.borrow_gib) * factor] * count
        if counts_only:
            sizes[lo:], cpus[lo:], mems[lo:] = [sum(sizes[lo:])], [sum(cpus[lo:])], [sum(mems[lo:])]
        largest = max(sizes[lo:])
        pool_rows.append([lo, len(sizes), types.index(kind), largest, sizes[lo:].count(largest), parts.index(part)])
        node_pool += [at] * (len(sizes) - lo)
    size = np.array(sizes, np.int64)
    node = np.stack([size, size, np.array(node_pool, np.int64), size, 0 * size], axis=1)
    host = np.stack([cpus, cpus, mems, mems], axis=1).astype(np.float64)
    return node, host, np.array(pool_rows, np.int64)


def _gpus(node: IntMatrix, places: int, sharing: bool) -> tuple[IntMatrix, Ints]:
    """Who uses each GPU (nobody yet), and where the GPUs of each node begin; no GPUs unless they are shared."""
    first = np.concatenate([[0], np.cumsum(node[:, col.NODE_SIZE])]).astype(np.int64)
    if sharing and (node[:, col.NODE_SIZE] > 62).any():
        raise InputError("sharing GPUs needs to know nodes: use a placement other than count")
    return np.full((int(first[-1]) if sharing else 0, places), -1, np.int64), first


def _seats(node: IntMatrix, x: Ints, room: int, slices: int, quota: IntMatrix) -> dict[str, np.ndarray]:
    """Who sits on each node, nobody yet, and what follows for orders; nothing where nodes are large or GPUs shared."""
    x[col.QUOTAS] = int((quota[:, col.Q_LIMIT] < col.UNLIMITED).any())
    width, nodes = int(node[:, col.NODE_SIZE].max()), len(node)
    x[col.SEATED], x[col.ROUND] = int(width <= _SEATS and not x[col.SHARING]), -1
    width = width if x[col.SEATED] else 0
    return {
        "seat": np.zeros((nodes, width + 1), np.int64),
        "top": np.full((3 * width + 3, nodes + 1), np.inf),
        "held": np.zeros((4, width + 1)),
        "limit": np.full(slices, -np.inf),
        "stale": np.zeros(nodes, np.int64),
        "changed": np.zeros(RING, np.int64),
        "rest": np.full((2, width + 1), np.inf),
        "shield": np.zeros(room, np.int64),
        "bare": np.zeros(room),
    }


def _partition_of(work: Workload, cluster: Cluster) -> Ints:
    """Partition of each job: the one named after its tenant, else the open one, else none (-1)."""
    parts = list(cluster.partitions)
    fallback = parts.index("") if "" in parts else -1
    by_tenant = np.array([parts.index(t) if t in parts else fallback for t in work.tenant.names], np.int64)
    return _looked_up(by_tenant, work.tenant.code)


def _classes(
    work: Workload, cluster: Cluster, hosts: Sequence[Floats], modes: Ints, pool: IntMatrix,
    quota: IntMatrix, node: IntMatrix, host: np.ndarray, barred: Ints, nodes: Ints,
) -> tuple[IntMatrix, Ints]:  # fmt: skip
    part = _partition_of(work, cluster)
    apart = (quota[:, col.Q_LIMIT] < col.UNLIMITED) | tells_apart(cluster)
    tenant = np.where(apart, np.arange(len(apart)), -1)
    opened = [open_to(cluster, name) for name in work.tenant.names]
    mode, owner = _looked_up(modes, work.model.code), _looked_up(tenant, work.tenant.code)
    first, of = _unique_rows((work.gpus, mode, owner, part, *hosts, barred, nodes))
    cls = np.zeros((len(first), col.CLASS_COLUMNS), np.int64)
    for c, row in enumerate(first):
        cls[c, col.C_GPUS], cls[c, col.C_MODE], cls[c, col.C_NODES] = work.gpus[row], mode[row], nodes[row]
        cls[c, col.C_TENANT], cls[c, col.C_PART] = work.tenant.code[row], part[row]
        bits, needs = int(barred[row]), np.array([one[row] for one in hosts])
        cls[c, col.C_TYPE] = only_type(bits, int(pool[:, col.POOL_TYPE].max()) + 1)
        mask = _pools_for(cls[c, col.C_GPUS], int(nodes[row]), needs, int(part[row]), bits, pool, node, host)
        if cls[c, col.C_GPUS] > quota[cls[c, col.C_TENANT], col.Q_LIMIT]:
            mask = 0
        cls[c, col.C_POOLS] = mask & opened[work.tenant.code[row]]
    return cls, of


def _pools_for(
    gpus: int, nodes: int, host_need: Floats, part: int, barred: int, pool: IntMatrix, node: IntMatrix, host: np.ndarray
) -> int:
    """A bit for each pool that could hold such a gang if it were empty."""
    mask = 0
    for p, (lo, hi, kind) in enumerate(pool[:, [col.POOL_LO, col.POOL_HI, col.POOL_TYPE]].tolist()):
        open_to_it = not (barred >> kind) & 1 and pool[p, col.POOL_PART] == part
        if open_to_it and _holds(gpus, nodes, host_need, node, host, lo, hi):
            mask |= 1 << p
    return mask


def pools_for(state: State, gpus: int, nodes: int, hosts: tuple[float, float], part: int, barred: int) -> int:
    """The same for the tables of a cluster."""
    return _pools_for(gpus, nodes, np.array(hosts), part, barred, state.pool, state.node, state.host)


def _barred_types(speed: np.ndarray) -> Ints:
    """Per row of the speeds, a bit for each GPU type on which such a job cannot run."""
    return np.asarray((speed[:, :, 0] <= 0) @ (1 << np.arange(speed.shape[1], dtype=np.int64)), np.int64)


def _barred(speed: np.ndarray, kind: Ints, work: Workload, cluster: Cluster) -> Ints:
    """Per job, a bit for each GPU type on which it cannot run or that is not the one it names; all of them where the
    cluster does not have that."""
    types = list(dict.fromkeys(group.gpu_type for group in cluster.groups))
    every = (1 << len(types)) - 1
    bits = [every ^ (1 << types.index(name)) if name in types else every if name else 0 for name in work.gpu_type.names]
    slow, other = _looked_up(_barred_types(speed), kind), _looked_up(np.array(bits, np.int64), work.gpu_type.code)
    return slow | other if slow.strides[0] or other.strides[0] else np.broadcast_to(slow[:1] | other[:1], len(work))


def _looked_up(values: Ints, code: Ints) -> Ints:
    """`values[code]`; where all values are the same, one number that looks like many."""
    if len(values) and len(code) and (values == values[0]).all():
        return np.broadcast_to(values[0], len(code))
    return np.asarray(values[code])


def _distinct(values: np.ndarray) -> np.ndarray:
    """`np.unique`, without loading masked arrays for it: that takes longer than a small run."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered[1:] != ordered[:-1]) & ~np.isnan(ordered[:-1])
    return np.asarray(ordered[new])


def _unique_rows(columns: Sequence[np.ndarray]) -> tuple[Ints, Ints]:
    """The first of each kind of rows, in order of their values, and the kind of each row.

    Long tables have few different rows: their values are looked up, which is far cheaper than sorting positions.
    """
    rows = len(columns[0])
    code, codes = np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64)
    for column in columns:
        if column.strides[0] and (column != column[:1]).any():
            values = _distinct(column)
            code = code * len(values) + np.searchsorted(values, column)
            codes = _distinct(code)
            code = np.searchsorted(codes, code)
    first = np.zeros(len(codes), np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]  # of equal ones the last that is written stays: the first row
    return first, code.astype(np.int64, copy=False)


def _holds(gpus: int, nodes: int, host_need: Floats, node: IntMatrix, host: np.ndarray, lo: int, hi: int) -> bool:
    """Whether an empty pool can hold the gang at all."""
    fed = node[lo:hi, col.NODE_SIZE].astype(np.float64)
    for need, cap in zip(host_need, (col.HOST_CPU_CAP, col.HOST_MEM_CAP), strict=True):
        if need > 0:
            fed = np.minimum(fed, np.floor(host[lo:hi, cap] / (need / gpus) + 1e-9))
    if nodes > 0:
        return bool(gpus % nodes == 0 and (fed >= gpus // nodes).sum() >= nodes)
    return bool(fed.sum() >= gpus)


def _differ(tier: Floats | float) -> bool:
    """Whether jobs were given different priorities."""
    return isinstance(tier, np.ndarray) and len(tier) > 0


def _lay_out_classes(cls: IntMatrix, of: Ints, tier: Floats | float, twins: bool) -> tuple[IntMatrix, Ints, Ints, int]:
    """Give each class its stretch of the heap and of the backfill tree, a twin for relaxed placement, and each job its
    place among those of its class."""
    count = len(cls)
    sizes = np.bincount(of, minlength=count)
    small = of.astype(np.int16) if count < 2**15 else of  # sorted in one pass
    order = np.lexsort((np.asarray(tier), of)) if _differ(tier) else np.argsort(small, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rank = np.zeros(len(of), np.int64)
    for c in range(count):
        rank[order[offsets[c] : offsets[c + 1]]] = np.arange(sizes[c])
    leaves = np.array([1 << max(int(size - 1).bit_length(), 0) for size in sizes], np.int64)
    trees = np.concatenate([[0], np.cumsum(2 * leaves)])
    cls[:, col.C_OFFSET], cls[:, col.C_TREE], cls[:, col.C_LEAVES] = offsets[:-1], trees[:-1], leaves
    cls[:, col.C_TWIN] = cls[:, col.C_HEAD] = -1
    if not twins:
        return cls, order.astype(np.int64, copy=False), rank, int(trees[-1])
    twin = cls.copy()
    twin[:, col.C_MODE] = col.ANYWHERE
    twin[:, col.C_OFFSET] += len(of)
    twin[:, col.C_TREE] += trees[-1]
    twin[:, col.C_TWIN] = -2 - np.arange(count)
    cls[:, col.C_TWIN] = np.arange(count) + count
    members = np.concatenate([order, order]).astype(np.int64)
    return np.concatenate([cls, twin]), members, rank, 2 * int(trees[-1])


def _with_bound_classes(cls: IntMatrix, members: Ints, most: int) -> tuple[IntMatrix, Ints]:
    """Classes for suspended jobs, one each, before all others."""
    cls[:, col.C_BOUND], cls[:, col.C_ROOM] = -1, np.diff(np.append(cls[:, col.C_OFFSET], len(members)))
    if not most:
        return cls, members
    bound = np.zeros((most, col.CLASS_COLUMNS), np.int64)
    bound[:, col.C_BOUND], bound[:, col.C_ROOM] = -2, 1
    bound[:, col.C_TWIN] = bound[:, col.C_HEAD] = -1
    bound[:, col.C_OFFSET] = len(members) + np.arange(most)
    twin = cls[:, col.C_TWIN]
    cls[:, col.C_TWIN] = np.where(twin >= 0, twin + most, np.where(twin < -1, twin - most, twin))
    return np.concatenate([bound, cls]), np.concatenate([members, np.zeros(most, np.int64)])


def _attempts(work: Workload) -> tuple[np.ndarray, IntMatrix, Floats | float]:
    """Points of DONE at which attempts fail, where each job's points begin, and its first one."""
    of = np.zeros((len(work), 2), np.int64)
    points: list[float] = []
    for job, durations in sorted(work.attempts.items()):
        ends = [p for p in np.cumsum(durations).tolist() if 0 < p < work.duration_s[job]]
        of[job] = len(points), len(ends)
        points += ends
    table = np.array(points or [np.inf]).reshape(-1, 1)
    return (
        table,
        of,
        np.where(of[:, 1] > 0, table[np.minimum(of[:, 0], len(table) - 1), 0], np.inf) if points else np.inf,
    )


def infeasible(state: State, rows: JobRows) -> Ints:
    """Jobs that no pool could hold even if it were empty."""
    return np.flatnonzero(state.cls[np.asarray(rows.ints[col.CLASS], np.int64), col.C_POOLS] == 0)
