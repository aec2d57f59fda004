"""Whether a job could run at all on some nodes if they were empty, and if not, what is too much and what could be had.

The same rules as the engine's (`engine.class_rows.pools_for`): a gang stays in one pool, and where it asks for cores or
memory each of its GPUs takes an equal part of them from its own node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cotenant.backends.base import NodeInfo
from cotenant.core.jobspec import JobSpec
from cotenant.service.planner.nodes import MOST_GPUS
from cotenant.service.store.tenants import BookTenants


@dataclass(frozen=True, slots=True)
class PoolNode:
    """What one node has for a gang."""

    gpu_type: str
    gpus: int
    cpus: float
    mem_gib: float
    gpu_mem_gib: float


Pool = Sequence[PoolNode]
"""Nodes of one GPU type between which gangs may be spread."""


def pools_of(nodes: Iterable[NodeInfo], apart: Callable[[str], object] = lambda node: None) -> list[Pool]:
    """Nodes by GPU type, and by whatever else keeps them `apart`, by name."""
    pools: dict[tuple[str, object], list[PoolNode]] = {}
    for node in nodes:
        if node.usable:
            pools.setdefault((node.gpu_type, apart(node.name)), []).extend(_hosts(node))
    return list(pools.values())


def _hosts(node: NodeInfo) -> list[PoolNode]:
    """A node with more GPUs than the engine's masks have bits counts as several."""
    sizes = [min(MOST_GPUS, node.usable - first) for first in range(0, node.usable, MOST_GPUS)]
    share = [size / node.usable for size in sizes]
    return [
        PoolNode(node.gpu_type, size, part * node.cpus, part * node.mem_gib, node.gpu_mem_gib or math.inf)
        for size, part in zip(sizes, share, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What a job asks of a pool; all of the gang together, but for `gpu_mem_gib`."""

    gpus: int
    gpu_type: str = ""
    nodes: int = 0
    cpus: float = 0.0
    mem_gib: float = 0.0
    gpu_mem_gib: float = 0.0


def demand_of(spec: JobSpec, hosts: bool = True) -> PoolDemand:
    """What a spec asks; without `hosts` cores and memory are dealt out while jobs run, and bind nobody."""
    cpus, mem_gib = (spec.cpus, spec.mem_gib) if hosts else (0.0, 0.0)
    return PoolDemand(spec.gpus, spec.gpu_type, spec.nodes, cpus, mem_gib, spec.gpu_mem_gib)


class Admission:
    """Which jobs the nodes of one look could hold if they were empty: worked out once per tenant and demand."""

    def __init__(self, nodes: Sequence[NodeInfo], tenants: BookTenants) -> None:
        self._nodes, self._tenants = nodes, tenants
        self._pools: dict[str, list[Pool] | None] = {}
        self._wrong: dict[tuple[str, PoolDemand], str] = {}

    def is_of(self, nodes: Sequence[NodeInfo], tenants: BookTenants) -> bool:
        """Whether what was worked out still holds."""
        return nodes is self._nodes and tenants is self._tenants

    def wrong(self, ask: PoolDemand, tenant: str) -> str:
        """What keeps jobs of a tenant that ask so much from all nodes; empty where nothing does."""
        if (tenant, ask) not in self._wrong:
            if tenant not in self._pools:
                self._pools[tenant] = self._open_to(tenant)
            pools, others = self._pools[tenant], f"no node takes jobs of tenant '{tenant}': all are dedicated to others"
            self._wrong[tenant, ask] = others if pools is None else misfit(ask, pools)
        return self._wrong[tenant, ask]

    def _open_to(self, tenant: str) -> list[Pool] | None:
        """The pools that are open to a tenant; None where all nodes are for others."""
        mine = [node for node in self._nodes if self._tenants.takes(node.name, tenant)]
        if not mine and self._nodes:
            return None
        whole = (replace(node, out=()) if node.out else node for node in mine)  # GPUs that are not well may be again
        return pools_of(whole, lambda node: self._tenants.mark(node).dedicated)


def misfit(ask: PoolDemand, pools: Sequence[Pool]) -> str:
    """Which field is too much and the most that could be had; empty where some pool could hold the job."""
    if ask.gpus < 1:
        return "field 'gpus' is 0: every job takes at least 1 GPU"
    if ask.nodes and ask.gpus % ask.nodes:
        return f"field 'nodes' is {ask.nodes}, but {ask.gpus} GPUs do not divide by it"
    if any(_holds(ask, pool) for pool in pools):
        return ""
    types = list(dict.fromkeys(node.gpu_type for pool in pools for node in pool))
    if ask.gpu_type and ask.gpu_type not in types:
        return f"field 'gpus' asks for type '{ask.gpu_type}'; there is {', '.join(types) or 'no GPU'}"
    return _too_much(ask, [pool for pool in pools if any(ask.gpu_type in ("", node.gpu_type) for node in pool)])


def _too_much(ask: PoolDemand, pools: Sequence[Pool]) -> str:
    """The first field that no pool can meet, when those before it are as asked."""
    kind = f" of type '{ask.gpu_type}'" if ask.gpu_type else ""
    bare = PoolDemand(ask.gpus, ask.gpu_type)
    if not any(_holds(bare, pool) for pool in pools):
        most = max((sum(node.gpus for node in pool) for pool in pools), default=0)
        return f"field 'gpus' is {ask.gpus}; the largest pool has {most}{kind}"
    bare = replace(bare, nodes=ask.nodes)
    if not any(_holds(bare, pool) for pool in pools):
        each = ask.gpus // ask.nodes
        count = max(sum(node.gpus >= each for node in pool) for pool in pools)
        has = f"{count} such node{'' if count == 1 else 's'}"
        return f"field 'nodes' is {ask.nodes}, with {each} GPUs{kind} each; there {'is' if count == 1 else 'are'} {has}"
    sized = replace(bare, gpu_mem_gib=ask.gpu_mem_gib)
    if not any(_holds(sized, pool) for pool in pools):
        most_gib = max((_gpu_gib(pool) for pool in pools if _holds(bare, pool)), default=0.0)
        best = f"the most is {most_gib:g} where there are {ask.gpus} GPUs together"
        return f"field 'gpu_mem' is {ask.gpu_mem_gib:g} GiB per GPU; {best}"
    for name, unit in (("cpus", "cores"), ("mem_gib", "GiB")):
        if not any(_holds(replace(sized, **{name: getattr(ask, name)}), pool) for pool in pools):
            amount = max(_most(sized, pool, name) for pool in pools)
            field = name.removesuffix("_gib")
            return f"field '{field}' is {getattr(ask, name):g} {unit}; {ask.gpus} GPUs come with at most {amount:g}"
    return f"fields 'cpus' ({ask.cpus:g}) and 'mem' ({ask.mem_gib:g} GiB) together are more than any pool has left"


def _gpu_gib(pool: Pool) -> float:
    """Memory of the smallest GPU, by which a pool is judged; without end where nobody knows."""
    return min((node.gpu_mem_gib for node in pool), default=0.0)


def _holds(ask: PoolDemand, pool: Pool) -> bool:
    if not pool or ask.gpu_type not in ("", pool[0].gpu_type) or ask.gpu_mem_gib > _gpu_gib(pool):
        return False
    fed = [_fed(ask, node) for node in pool]
    if ask.nodes:
        return sum(gpus >= ask.gpus // ask.nodes for gpus in fed) >= ask.nodes
    return sum(fed) >= ask.gpus


def _fed(ask: PoolDemand, node: PoolNode) -> int:
    """GPUs of a node that it can give with their part of cores and memory."""
    gpus = node.gpus
    for need, has in ((ask.cpus, node.cpus), (ask.mem_gib, node.mem_gib)):
        if need > 0:
            gpus = min(gpus, math.floor(has / (need / ask.gpus) + 1e-9))
    return gpus


def _most(ask: PoolDemand, pool: Pool, name: str) -> float:
    """The most cores or memory with which a pool could hold the job: so that some node is just used up."""
    shapes = {(getattr(node, name), node.gpus) for node in pool}
    amounts = sorted({has / gpus * ask.gpus for has, size in shapes for gpus in range(1, size + 1)}, reverse=True)
    return next((amount for amount in amounts if _holds(replace(ask, **{name: amount}), pool)), 0.0)
