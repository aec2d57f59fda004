"""A cluster with tenants that fits a generated workload: what each is guaranteed follows from what it asks for."""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Floats, Ints, Workload

_NODE_GPUS = 8
_BUSY = 0.9  # of a cluster that nobody gave a size: how much of it the jobs ask for
_GUARANTEED = 0.8  # of the GPUs; the rest is for whoever borrows
_HALF_LIFE_S = 7 * 86400.0


def fitting_cluster(work: Workload, cluster: Cluster | None, gpus: int = 0, departments: int = 0) -> Cluster:
    """The cluster given, or nodes of eight GPUs, with the tenants of the workload in a tree.

    Guarantees are whole GPUs in proportion to the GPU-seconds that tenants ask for, at least 1. With `departments`
    tenants stand under so many, dealt out by size; a department is guaranteed what its tenants are.
    """
    if cluster is None:
        cluster = _nodes(gpus or math.ceil(work.gpu_s / max(work.span_s, 1.0) / _BUSY))
    names = [work.tenant.names[code] for code in np.unique(work.tenant.code).tolist()]
    if len(names) > cluster.gpus:
        raise InputError(f"{len(names)} tenants cannot each be guaranteed a GPU of {cluster.gpus}: ask for fewer")
    gpu_s = np.bincount(work.tenant.code, work.gpus * work.duration_s, len(work.tenant.names))
    asked = np.asarray(gpu_s[np.unique(work.tenant.code)], np.float64)
    guaranteed = dict(zip(names, _parts(asked, int(cluster.gpus * _GUARANTEED)).tolist(), strict=True))
    if not departments:
        tenants = [Tenant(name, "", guaranteed[name]) for name in names]
    else:
        heads = [f"department{at:02d}" for at in range(1, min(departments, len(names)) + 1)]
        by_size = sorted(names, key=lambda name: -guaranteed[name])
        of = {name: heads[at % len(heads)] for at, name in enumerate(by_size)}
        tenants = [Tenant(head) for head in heads] + [Tenant(name, of[name], guaranteed[name]) for name in names]
    return Cluster(cluster.groups, {}, cluster.spec, Tree(tuple(tenants), half_life_s=_HALF_LIFE_S))


def _nodes(gpus: int) -> Cluster:
    each = next(size for size in (_NODE_GPUS, 4, 2, 1) if gpus % size == 0 or gpus > 8 * size)
    return Cluster((NodeGroup(-(-gpus // each), each),))


def _parts(asked: Floats, gpus: int) -> Ints:
    """Whole parts of the GPUs in proportion, at least 1 each, by largest remainder."""
    gpus = max(gpus, len(asked))
    exact = asked / asked.sum() * (gpus - len(asked))
    parts = np.floor(exact).astype(np.int64)
    order = np.argsort(parts - exact, kind="stable")
    parts[order[: gpus - len(asked) - int(parts.sum())]] += 1
    return np.asarray(parts + 1, np.int64)
