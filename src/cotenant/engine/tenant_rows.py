"""What the cluster says of its tenants, for the tables: what each may hold, is guaranteed, and where it may run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.state import IntMatrix, Matrix, State
from cotenant.core.tenants import Tree
from cotenant.tenancy.asked import WAITING_COLUMNS, Asked, Claims, new_claims
from cotenant.tenancy.tree_tables import Rows, tree_tables


def pools_of(cluster: Cluster) -> list[tuple[str, str, tuple[str, ...]]]:
    """(partition, GPU type, tenants to whom it is dedicated) of the pools."""
    return list(dict.fromkeys((group.partition, group.gpu_type, group.dedicated) for group in cluster.groups))


def open_to(cluster: Cluster, tenant: str) -> int:
    """A bit for each pool whose nodes are shared, or dedicated to a tenant or to those above it."""
    tree = cluster.tenants
    above = (tenant,) if tree is None else tree.path(tenant)
    only = tree is not None and any(tree.of(name).only_dedicated for name in above)
    bits = 0
    for at, (_, _, owners) in enumerate(pools_of(cluster)):
        if any(name in owners for name in above) if owners else not only:
            bits |= 1 << at
    return bits


def tells_apart(cluster: Cluster) -> bool:
    """Whether jobs of different tenants are never alike: what they may hold, or where, is not what others may."""
    return cluster.tenants is not None or any(group.dedicated for group in cluster.groups)


def most_gpus(cluster: Cluster, tenant: str) -> int:
    """The most GPUs that a tenant may ever hold: its quota, or what the tree allows it and those above it."""
    tree = cluster.tenants
    if tree is None:
        return cluster.quotas.get(tenant, col.UNLIMITED)
    most = col.UNLIMITED
    for name in tree.path(tenant):
        one = tree.of(name)
        most = min(most, col.UNLIMITED if one.ceiling is None else one.ceiling)
        most = min(most, col.UNLIMITED if one.borrow is None else tree.guaranteed(name) + one.borrow)
    return most


def quotas(cluster: Cluster, tenants: Sequence[str]) -> tuple[IntMatrix, Matrix]:
    """What these tenants may hold and are guaranteed, and that they have used nothing yet."""
    quota, tree = np.zeros((len(tenants), col.QUOTA_COLUMNS), np.int64), cluster.tenants
    most = [most_gpus(cluster, name) for name in tenants]
    quota[:, col.Q_LIMIT] = quota[:, col.Q_GUARANTEED] = quota[:, col.Q_MOST] = most
    if tree is not None:
        quota[:, col.Q_GUARANTEED] = [tree.guaranteed(name) for name in tenants]
        quota[:, col.Q_STAYS] = [not tree.of(name).preempts for name in tenants]
        shared = [
            min((most_gpus(cluster, above) for above in tree.path(name)[1:]), default=col.UNLIMITED) for name in tenants
        ]
        quota[:, col.Q_MOST] = np.where(np.array(shared) < col.UNLIMITED, 0, most)  # others hold a part of that, too
    return quota, np.zeros((len(tenants), col.USE_COLUMNS))


def only_type(barred: int, types: int) -> int:
    """The one GPU type that is left to a job, -1 where there are several."""
    left = [kind for kind in range(types) if not (barred >> kind) & 1]
    return left[0] if len(left) == 1 and types > 1 else -1


def lay_tenants(state: State, cluster: Cluster, tenants: Sequence[str]) -> tuple[State, IntMatrix]:
    """The tables with what the cluster says of these tenants, by number; what they hold and have used stays.

    And the row of the tree for the jobs of each tenant: those that may run on several GPU types, then by type.
    """
    quota, _ = quotas(cluster, tenants)
    columns = [col.Q_LIMIT, col.Q_GUARANTEED, col.Q_STAYS, col.Q_MOST]
    state.quota[: len(tenants), columns] = quota[:, columns]
    tree = cluster.tenants
    if tree is None:
        return state, np.zeros((0, 0), np.int64)
    state.x[col.TENANTS] = max(int(state.x[col.TENANTS]), 1)
    state.x[col.EPOCH] += 1  # whatever was counted before no longer holds
    state.t[[col.HALF_LIFE_S, col.LOAN_S, col.RESERVE_S]] = tree.half_life_s, tree.min_run_s, tree.reserve_after_s
    types = list(dict.fromkeys(group.gpu_type for group in cluster.groups))
    tables = tree_tables(tree, tenants, types)
    cls = state.cls
    cls[:, col.C_LEAF] = tables.leaf[cls[:, col.C_TENANT], 1 + cls[:, col.C_TYPE]] if len(tenants) else 0
    state = with_lines(state._replace(rows=tables.rows), len(tenants))
    for row in np.flatnonzero(np.isin(state.i[:, col.STATE], (col.RUNNING, col.PINNED))).tolist():
        pool = state.node[state.slices[state.i[row, col.SLICE], col.SLICE_NODE], col.NODE_POOL]
        place = len(state.pool) if state.i[row, col.STATE] == col.PINNED else pool
        state.asked.running[cls[state.i[row, col.CLASS], col.C_LEAF], place] += state.i[row, col.GPUS]
    return state, tables.leaf


def with_lines(state: State, tenants: int) -> State:
    """The tables with empty questions and answers about so many tenants, and room for all classes."""
    rows, pools, lines = len(state.rows.parent), len(state.pool), len(state.cls)
    asked = Asked(
        np.zeros(pools, np.int64), np.zeros((rows, pools + 1), np.int64), np.zeros((rows, 2)), np.zeros(rows),
        np.zeros((lines, WAITING_COLUMNS), np.int64), np.zeros((lines, 2)),
    )  # fmt: skip
    return state._replace(asked=asked, claims=new_claims(state.rows, tenants, pools, lines))


def nobody(pools: int) -> tuple[Rows, Asked, Claims]:
    """The same where there is no tree: nobody asks."""
    rows = tree_tables(Tree(), ()).rows
    none = np.zeros(0, np.int64)
    asked = Asked(
        none, np.zeros((0, pools + 1), np.int64), np.zeros((0, 2)), np.zeros(0),
        np.zeros((0, WAITING_COLUMNS), np.int64), np.zeros((0, 2)),
    )  # fmt: skip
    return rows, asked, new_claims(rows, 0, pools, 0)
