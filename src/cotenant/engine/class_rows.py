"""Classes of jobs: which are alike for placement and quotas, in which pools they may run, and where they wait."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.state import IntMatrix, State
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.engine.tenant_rows import only_type, open_to, tells_apart


def _partition_of(work: Workload, cluster: Cluster) -> Ints:
    """Partition of each job: the one named after its tenant, else the open one, else none (-1)."""
    parts = list(cluster.partitions)
    fallback = parts.index("") if "" in parts else -1
    by_tenant = np.array([parts.index(t) if t in parts else fallback for t in work.tenant.names], np.int64)
    return by_tenant[work.tenant.code]


def find_classes(
    work: Workload, cluster: Cluster, f: np.ndarray, modes: Ints, pool: IntMatrix,
    quota: IntMatrix, node: IntMatrix, host: np.ndarray, barred: Ints, nodes: Ints,
) -> tuple[IntMatrix, Ints]:  # fmt: skip
    """The classes of these jobs, without places for them to wait, and which one each job is of."""
    part = _partition_of(work, cluster)
    apart = (quota[:, col.Q_LIMIT] < col.UNLIMITED) | tells_apart(cluster)
    tenant = np.where(apart[work.tenant.code], work.tenant.code, -1)
    opened = [open_to(cluster, name) for name in work.tenant.names]
    patterns = _distinct(barred)
    pattern = np.searchsorted(patterns, barred)
    shape = np.stack(
        [work.gpus, modes[work.model.code], tenant, part, f[:, col.CPUS], f[:, col.MEM], pattern, nodes],
        axis=1,
    ).astype(np.float64)
    unique, first, of = _unique_rows(shape)
    cls = np.zeros((len(unique), col.CLASS_COLUMNS), np.int64)
    for c, row in enumerate(first):
        cls[c, col.C_GPUS], cls[c, col.C_MODE] = unique[c, 0], unique[c, 1]
        cls[c, col.C_TENANT], cls[c, col.C_PART] = work.tenant.code[row], unique[c, 3]
        cls[c, col.C_NODES] = unique[c, 7]
        bits = int(patterns[int(unique[c, 6])])
        cls[c, col.C_TYPE] = only_type(bits, int(pool[:, col.POOL_TYPE].max()) + 1)
        mask = _pools_for(
            cls[c, col.C_GPUS], int(unique[c, 7]), unique[c, 4:6], int(unique[c, 3]), bits, pool, node, host
        )
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


def barred_types(speed: np.ndarray) -> Ints:
    """Per row of the speeds, a bit for each GPU type on which such a job cannot run."""
    return np.asarray((speed[:, :, 0] <= 0) @ (1 << np.arange(speed.shape[1], dtype=np.int64)), np.int64)


def other_types(work: Workload, cluster: Cluster) -> Ints:
    """Per job, a bit for each GPU type but the one it names; all of them where the cluster does not have it."""
    types = list(dict.fromkeys(group.gpu_type for group in cluster.groups))
    every = (1 << len(types)) - 1
    bits = [every ^ (1 << types.index(name)) if name in types else every if name else 0 for name in work.gpu_type.names]
    return np.array(bits, np.int64)[work.gpu_type.code]


def _distinct(values: np.ndarray) -> np.ndarray:
    """`np.unique`, without loading masked arrays for it: that takes longer than a small run."""
    ordered = np.sort(values)
    new = np.ones(len(ordered), bool)
    new[1:] = (ordered[1:] != ordered[:-1]) & ~np.isnan(ordered[:-1])
    return np.asarray(ordered[new])


def _unique_rows(table: np.ndarray) -> tuple[np.ndarray, Ints, Ints]:
    """`np.unique` over rows with first index and inverse, column by column and without sorting rows.

    Long tables have few different rows: their values are looked up, which is far cheaper than sorting positions.
    """
    code, codes = np.zeros(len(table), np.int64), np.zeros(min(len(table), 1), np.int64)
    for column in np.ascontiguousarray(table.T):
        if (column != column[:1]).any():
            values = _distinct(column)
            code = code * len(values) + np.searchsorted(values, column)
            codes = _distinct(code)
            code = np.searchsorted(codes, code)
    first = np.zeros(len(codes), np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]  # of equal ones the last that is written stays: the first row
    return table[first], first, code.astype(np.int64)


def _holds(gpus: int, nodes: int, host_need: Floats, node: IntMatrix, host: np.ndarray, lo: int, hi: int) -> bool:
    """Whether an empty pool can hold the gang at all."""
    fed = node[lo:hi, col.NODE_SIZE].astype(np.float64)
    for need, cap in zip(host_need, (col.HOST_CPU_CAP, col.HOST_MEM_CAP), strict=True):
        if need > 0:
            fed = np.minimum(fed, np.floor(host[lo:hi, cap] / (need / gpus) + 1e-9))
    if nodes > 0:
        return bool(gpus % nodes == 0 and (fed >= gpus // nodes).sum() >= nodes)
    return bool(fed.sum() >= gpus)


def lay_out_classes(cls: IntMatrix, of: Ints, tier: Floats, i: IntMatrix, twins: bool) -> tuple[IntMatrix, Ints, int]:
    """Give each class its stretch of the heap and of the backfill tree; a twin for relaxed placement."""
    count = len(cls)
    sizes = np.bincount(of, minlength=count)
    order = np.lexsort((tier, of)) if (tier != tier[:1]).any() else np.argsort(of, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    for c in range(count):
        i[order[offsets[c] : offsets[c + 1]], col.RANK] = np.arange(sizes[c])
    leaves = np.array([1 << max(int(size - 1).bit_length(), 0) for size in sizes], np.int64)
    trees = np.concatenate([[0], np.cumsum(2 * leaves)])
    cls[:, col.C_OFFSET], cls[:, col.C_TREE], cls[:, col.C_LEAVES] = offsets[:-1], trees[:-1], leaves
    cls[:, col.C_TWIN] = cls[:, col.C_HEAD] = -1
    if not twins:
        return cls, order.astype(np.int64), int(trees[-1])
    twin = cls.copy()
    twin[:, col.C_MODE] = col.ANYWHERE
    twin[:, col.C_OFFSET] += len(of)
    twin[:, col.C_TREE] += trees[-1]
    twin[:, col.C_TWIN] = -2 - np.arange(count)
    cls[:, col.C_TWIN] = np.arange(count) + count
    return np.concatenate([cls, twin]), np.concatenate([order, order]).astype(np.int64), 2 * int(trees[-1])


def with_bound_classes(cls: IntMatrix, members: Ints, i: IntMatrix, most: int) -> tuple[IntMatrix, Ints]:
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
    i[:, col.CLASS] += most
    return np.concatenate([bound, cls]), np.concatenate([members, np.zeros(most, np.int64)])
