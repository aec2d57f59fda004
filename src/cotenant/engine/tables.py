"""Build the engine's tables from a workload and a cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.state import IntMatrix, State
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.class_rows import barred_types, find_classes, lay_out_classes, other_types, with_bound_classes
from cotenant.engine.tenant_rows import lay_tenants, nobody, pools_of, quotas
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
        return cls(*(np.full(rows, value) for value in times))

    @property
    def lags(self) -> bool:
        """Whether some job does not leave its GPUs at once."""
        return bool((self.save_s > 0).any())


def build_state(
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
) -> State:
    """Lay out all tables for the jobs of `work`, nothing arrived yet.

    `speed[row, GPU type, consolidated | spread]`: `speed_row` says which row is a job's (its model, if not
    given). A job is kept off the types on which its speed is 0. `sharing` gives GPUs identities, so that several
    jobs may sit on one; with `overcommits` a quota bars nobody. `need_gib` is what each job needs of the memory of
    each of its GPUs, `gpu_gib` what a GPU of each type has. `costs` says what stopping takes where that holds GPUs,
    which gives them identities too, `job_costs` the same where jobs differ; `tiers` makes room for priorities that
    come later; a GPU may be cut into `most_slices`, and so have so many jobs.
    """
    rows, costs = len(work), costs or StopCosts()
    each = job_costs or JobCosts.alike(costs, rows)
    lags = costs.lags or each.lags
    rotates = costs.rotates if job_costs is None else lags and bool((each.yields & 1).any())
    sharing = sharing or lags
    node, host, pool = _nodes(cluster, placement.counts_only)
    modelled = bool(np.isfinite(host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]]).any())
    f, i = _jobs(work, belief_s, restore_s, draw, modelled)
    _write_costs(f, i, each)
    i[:, col.SPEED_ROW] = work.model.code if speed_row is None else speed_row
    f[:, col.STEPS] = 1.0 if steps_per_s is None else np.nan_to_num(steps_per_s, nan=1.0)
    f[:, col.GPU_GIB] = 0.0 if need_gib is None else need_gib
    barred = barred_types(speed)[i[:, col.SPEED_ROW]] | other_types(work, cluster)
    parts = np.zeros(rows, np.int64) if placement.counts_only else work.nodes
    quota, use = quotas(cluster, work.tenant.names)
    limits = quota.copy()
    if overcommits:  # nobody is too large for a quota that it need not have
        limits[:, col.Q_LIMIT] = col.UNLIMITED
    cls, of = find_classes(work, cluster, f, placement.modes(skew), pool, limits, node, host, barred, parts)
    i[:, col.CLASS] = of
    tier = f[:, col.TIER]
    cls, members, tree_size = lay_out_classes(cls, of, tier, i, placement.relax_after_s < np.inf)
    cls, members = with_bound_classes(cls, members, i, costs.most_suspended)
    attempts, attempt_of = _attempts(work)
    have = attempt_of[:, 1] > 0
    f[have, col.FAIL_AT] = attempts[attempt_of[have, 0], 0]
    gpus, places = int(node[:, col.NODE_CAP].sum()), max(col.SLOTS, most_slices)
    most = gpus * (places if sharing else 1)  # jobs that run at a time
    x, t = _scalars(work, gpus, measure or (0, rows - 1), gantt_window)
    x[col.USE_HOST], x[col.SHARING], x[col.LAGS], x[col.ROTATES] = modelled, sharing, lags, rotates
    t[col.PATIENCE], use[:, col.U_SINCE] = costs.patience_s, t[col.NOW]
    gpu, gpu_first = _gpus(node, places, sharing)
    rows_of_tree, asked, claims = nobody(len(pool))
    state = State(
        f=f, i=i, node=node, host=host, pool=pool, cls=cls, slices=_slices((6 if lags else 3) * most + 16),
        quota=quota, use=use, rows=rows_of_tree, asked=asked, claims=claims, members=members,
        heap=np.zeros(len(members), np.int64), events=np.zeros(rows + 1, np.int64), tree=np.full(tree_size, np.inf),
        speed=np.array(speed, np.float64, order="C"), gpu=gpu, gpu_first=gpu_first,
        gpu_leaving=np.zeros(len(gpu), np.int64), gpu_bound=np.zeros(len(gpu), np.int64),
        gpu_gib=np.full(speed.shape[1], np.inf) if gpu_gib is None else np.asarray(gpu_gib, np.float64),
        attempts=attempts, attempt_of=attempt_of, x=x, t=t, failed=np.zeros(len(cls), np.int64),
        lines=np.zeros(len(cls) + 1, np.int64), series=np.zeros((_SERIES_ROWS, 4)),
        segments=np.zeros((_SEGMENT_ROWS, 5)),
        **_for_walks(len(node), gpus, most, 4 if tiers or (tier != tier[:1]).any() else 3),
        **_seats(node, x, 2 * most + 16, quota),
    )  # fmt: skip
    return lay_tenants(state, cluster, work.tenant.names)[0]


def _write_costs(f: np.ndarray, i: IntMatrix, each: JobCosts) -> None:
    """What leaving and coming back takes."""
    f[:, col.SAVE], f[:, col.START_UP], f[:, col.RESUME] = each.save_s, each.start_s, each.resume_s
    i[:, col.RUNG], i[:, col.YIELDS], f[:, col.EXIT] = each.rung, each.yields, each.exit_s
    f[:, col.SAVING] = np.where(np.isfinite(each.save_s), each.save_s, 0.0)


def _scalars(work: Workload, gpus: int, measure: tuple[int, int], window: tuple[float, float]) -> tuple[Ints, Floats]:
    """The engine's own numbers before anything has happened."""
    rows, (first, last) = len(work), measure
    x, t = np.zeros(col.INT_SCALARS, np.int64), np.zeros(col.FLOAT_SCALARS)
    x[col.IDLE], x[col.STAMP], x[col.WATCH], x[col.RESERVED] = gpus, 1, -1, -1
    x[col.MEASURE_FROM], x[col.MEASURE_TO] = measure
    x[col.N_MEASURED_LEFT] = max(min(last, rows - 1) - first + 1, 0)
    t[col.NOW] = t[col.BUSY_SINCE] = work.submit_s[0] if rows else 0.0
    t[col.WINDOW_FROM], t[col.WINDOW_TO] = window
    t[col.LAST_SAMPLE] = -np.inf
    t[[col.NEXT_TURN, col.NEXT_LOOSE, col.NEXT_WARM, col.NEXT_CLAIM]] = np.inf
    return x, t


def _slices(spare: int) -> IntMatrix:
    """Slices that nobody has yet, each before the next one."""
    slices = np.zeros((spare, 4), np.int64)
    slices[:, col.SLICE_NEXT] = np.arange(1, spare + 1)
    slices[-1, col.SLICE_NEXT] = -1
    return slices


def _for_walks(nodes: int, gpus: int, most: int, keys: int) -> dict[str, np.ndarray]:
    """Running jobs, none yet, and what a decision works with; so many run at `most`."""
    room = 2 * most + 16
    return {
        "run": np.zeros(room, np.int64), "hot": np.zeros((col.HOT_COLUMNS, room)), "keys": np.zeros((keys, room)),
        "open": np.zeros((nodes, 4), np.int64), "open_host": np.zeros((nodes, 4)),
        "pick": np.zeros((gpus + 1, 2), np.int64), "order": np.zeros((3, room), np.int64), "scratch": np.zeros(room),
        "stops": np.zeros(most + 1, np.int64), "starts": np.zeros((most + 1, 4), np.int64),
        "log": np.zeros((8 * most + 64, 3), np.int64),
    }  # fmt: skip


def _jobs(
    work: Workload, belief_s: Floats, restore_s: Floats, draw: Floats, hosts_modelled: bool
) -> tuple[np.ndarray, IntMatrix]:
    """The two job tables, before anything arrived."""
    f = np.zeros((len(work), col.FLOAT_COLUMNS))
    i = np.zeros((len(work), col.INT_COLUMNS), np.int64)
    f[:, col.SUBMIT], f[:, col.WORK], f[:, col.BELIEF] = work.submit_s, work.duration_s, belief_s
    f[:, col.SPEED] = f[:, col.SHARE] = f[:, col.CAP] = 1.0
    f[:, col.FIRST] = f[:, col.FINISH] = np.nan
    f[:, col.FAIL_AT] = f[:, col.EVENT] = np.inf
    if hosts_modelled:
        f[:, col.CPUS], f[:, col.MEM] = np.nan_to_num(work.cpus), np.nan_to_num(work.mem_gib)
    f[:, col.DRAW], f[:, col.RESTORE], f[:, col.DEADLINE] = draw, restore_s, work.deadline_s
    f[:, col.TIER] = -work.priority
    i[:, col.GPUS], i[:, col.TENANT], i[:, col.MODEL] = work.gpus, work.tenant.code, work.model.code
    i[:, col.ARRIVAL] = np.arange(len(work))
    weight = work.extra.get("weight")
    f[:, col.WEIGHT] = 1.0 if weight is None else np.asarray(weight, np.float64)
    f[:, col.LEAVES] = np.inf
    f[:, [col.BARRED, col.GAIN, col.COST]] = np.nan
    for name in (col.HEAP_AT, col.EVENT_AT, col.SLICE, col.HOST, col.OLD, col.HOME):
        i[:, name] = -1
    return f, i


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


def _seats(node: IntMatrix, x: Ints, room: int, quota: IntMatrix) -> dict[str, np.ndarray]:
    """Who sits on each node, nobody yet, and what follows for orders; nothing where nodes are large or GPUs shared."""
    x[col.QUOTAS] = int((quota[:, col.Q_LIMIT] < col.UNLIMITED).any())
    width, nodes = int(node[:, col.NODE_SIZE].max()), len(node)
    x[col.SEATED], x[col.ROUND] = int(width <= _SEATS and not x[col.SHARING]), -1
    width = width if x[col.SEATED] else 0
    return {
        "seat": np.zeros((nodes, width + 1), np.int64),
        "top": np.full((3 * width + 3, nodes + 1), np.inf),
        "held": np.zeros((4, width + 1)),
        "stale": np.zeros(nodes, np.int64),
        "shield": np.zeros(room, np.int64),
    }


def _attempts(work: Workload) -> tuple[np.ndarray, IntMatrix]:
    """Points of DONE at which attempts fail, and where each job's points begin."""
    of = np.zeros((len(work), 2), np.int64)
    points: list[float] = []
    for job, durations in sorted(work.attempts.items()):
        ends = [p for p in np.cumsum(durations).tolist() if 0 < p < work.duration_s[job]]
        of[job] = len(points), len(ends)
        points += ends
    return np.array(points or [np.inf]).reshape(-1, 1), of


def infeasible(state: State) -> Ints:
    """Jobs that no pool could hold even if it were empty."""
    return np.flatnonzero(state.cls[state.i[:, col.CLASS], col.C_POOLS] == 0)
