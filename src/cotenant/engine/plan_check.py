"""What a plan must respect before the engine carries it out; every complaint names the policy, the job and the rule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Slices
from cotenant.core.state import State
from cotenant.core.view import View

_SLACK = 1e-6


def check_plan(run: Mapping[int, Slices], state: State, view: View, name: str) -> None:
    """Gangs whole (elastic ones of a size they take) and inside one open pool, nodes within GPUs, cores and memory,
    tenants within their quotas."""
    active = set(view.rows.tolist())
    gpus: dict[int, int] = {}
    cpus: dict[int, float] = {}
    mem_gib: dict[int, float] = {}
    tenants: dict[int, int] = {}
    for row, slices in run.items():
        complaint = f"row {row}, which is not active" if row not in active else misplaced(state, view, row, slices)
        if complaint:
            raise InputError(f"policy '{name}': plan runs job {complaint}")
        need, tenant = sum(count for _, count in slices), int(state.i[row, col.TENANT])
        tenants[tenant] = tenants.get(tenant, 0) + need
        size = max(int(state.i[row, col.GPUS]), 1)  # what its cores and memory are asked for; a plan may change it
        for node, count in slices:
            gpus[node] = gpus.get(node, 0) + count
            cpus[node] = cpus.get(node, 0.0) + float(state.f[row, col.CPUS]) * count / size
            mem_gib[node] = mem_gib.get(node, 0.0) + float(state.f[row, col.MEM]) * count / size
    for node, count in gpus.items():
        if count > state.node[node, col.NODE_CAP]:
            raise InputError(f"policy '{name}': plan puts {count} GPUs on node {node}, which has too few")
        if cpus[node] > state.host[node, col.HOST_CPU_CAP] + _SLACK:
            raise InputError(f"policy '{name}': plan puts {cpus[node]:g} cores on node {node}, which has too few")
        if mem_gib[node] > state.host[node, col.HOST_MEM_CAP] + _SLACK:
            raise InputError(f"policy '{name}': plan puts {mem_gib[node]:g} GiB on node {node}, which has too little")
    for tenant, count in tenants.items():
        limit = int(state.quota[tenant, col.Q_LIMIT])
        if count > limit:
            raise InputError(f"policy '{name}': plan gives tenant {tenant} {count} GPUs, over its quota of {limit}")


def misplaced(state: State, view: View, row: int, slices: Slices) -> str:
    """What is wrong with the place of one gang, if anything is."""
    c = state.i[row, col.CLASS]
    size, elastic = sum(count for _, count in slices), view.facts.elastic
    whole = size == state.i[row, col.GPUS]
    if not whole and elastic is not None and elastic[row] and size > 0:
        (fewest,), (most,) = view.size_limits(np.array([row]))
        if not fewest <= size <= most:
            return f"row {row} on {size} GPUs, though it takes {fewest} to {most}"
        whole = True
    if not whole or any(count < 1 for _, count in slices):
        return f"row {row} as a broken gang {slices}"
    for node, count in slices:
        if not 0 <= node < len(state.node):
            return f"row {row} with {count} GPUs on node {node}, which is not there"
    pools = {int(state.node[node, col.NODE_POOL]) for node, _ in slices}
    if len(pools) > 1:
        return f"row {row} on {slices}, over several GPU types or partitions"
    mine = int(state.cls[c, col.C_POOLS])
    if state.i[row, col.STATE] == col.RUNNING:  # it may stay where it is, also with other sizes than it asked for
        mine |= sum(1 << pool for pool in {int(state.node[node, col.NODE_POOL]) for node, _ in view.placement(row)})
    if not mine >> pools.pop() & 1:
        return f"row {row} on {slices}, where it cannot run (GPU type, partition or size)"
    nodes = int(state.cls[c, col.C_NODES])
    if nodes and (len(slices) != nodes or len({count for _, count in slices}) > 1):
        return f"row {row} on {slices}, not in equal parts on {nodes} nodes"
    return ""
