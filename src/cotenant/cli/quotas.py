"""Quotas as something to vary: `quota.vision=8,16` (the most that a tenant may hold), `guaranteed.vision=8-32:8`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cotenant.core.cluster import Cluster
    from cotenant.core.workload import Workload

_KEY = re.compile(r"(quota|guaranteed)\.(.+)")
KEYS = ("quota.TENANT", "guaranteed.TENANT")


def tenant_of(key: str) -> str:
    """The tenant that a key is about; '' where it is about something else."""
    match = _KEY.fullmatch(key)
    return match[2] if match else ""


def with_quota(machines: Cluster, key: str, gpus: int) -> Cluster:
    """The cluster with another quota of one tenant. A guarantee makes a tree of tenants where there is none."""
    from cotenant.core.errors import InputError
    from cotenant.core.tenants import Tree

    name = tenant_of(key)
    if key.startswith("quota.") and machines.tenants is None:
        return replace(machines, quotas={**machines.quotas, name: gpus})
    if machines.quotas:
        raise InputError(f"--vary {key}: '{machines.spec}' has quotas:, which are limits; write them as tenants:")
    tree = machines.tenants or Tree()
    field = "ceiling" if key.startswith("quota.") else "guaranteed"
    tree = tree.with_(replace(tree.of(name), **{field: gpus}))
    if tree.guaranteed("") > machines.gpus:
        raise InputError(f"--vary {key}={gpus}: {tree.guaranteed('')} GPUs would be guaranteed of {machines.gpus}")
    return replace(machines, tenants=tree)


def jobs_of(key: str, work: Workload, machines: Cluster) -> NDArray[np.bool_]:
    """The jobs of that tenant, and of those below it."""
    import numpy as np

    from cotenant.core.errors import unknown

    name = tenant_of(key)
    tree = machines.tenants
    inside = [one == name or (tree is not None and name in tree.path(one)) for one in work.tenant.names]
    mine = np.array(inside, np.bool_)[work.tenant.code]
    if not mine.any():
        raise unknown("tenant with jobs in this log", name, [one for one in work.tenant.names if one])
    return mine
