"""What the cluster says of its tenants, for the tables: what each may hold, is guaranteed, and where it may run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.state import IntMatrix, Matrix, State


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
    quota[:, col.Q_LIMIT] = quota[:, col.Q_GUARANTEED] = [most_gpus(cluster, name) for name in tenants]
    if tree is not None:
        quota[:, col.Q_GUARANTEED] = [tree.guaranteed(name) for name in tenants]
        quota[:, col.Q_STAYS] = [not tree.of(name).preempts for name in tenants]
    return quota, np.zeros((len(tenants), col.USE_COLUMNS))


def lay_tenants(state: State, cluster: Cluster, tenants: Sequence[str]) -> None:
    """Write what the cluster says of these tenants, by number, into the tables; what they hold and have used stays."""
    quota, _ = quotas(cluster, tenants)
    columns = [col.Q_LIMIT, col.Q_GUARANTEED, col.Q_STAYS]
    state.quota[: len(tenants), columns] = quota[:, columns]
    tree = cluster.tenants
    if tree is not None:
        state.x[col.TENANTS] = max(int(state.x[col.TENANTS]), 1)
        times = [col.HALF_LIFE_S, col.LOAN_S, col.RESERVE_S]
        state.t[times] = tree.half_life_s, tree.min_run_s, tree.reserve_after_s
