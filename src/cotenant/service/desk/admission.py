"""What a job asks of the cluster, checked when it is submitted: a job that could never start is refused at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec


def check_place(spec: JobSpec, nodes: Sequence[NodeInfo]) -> None:
    """Raise unless some pool (the nodes of one GPU type) could hold the job if it were empty."""
    job = f"job '{spec.name}'"
    if spec.nodes and spec.gpus % spec.nodes:
        raise InputError(f"{job}: field 'nodes' is {spec.nodes}, but {spec.gpus} GPUs do not divide by it")
    pools: dict[str, list[int]] = {}
    for node in nodes:
        pools.setdefault(node.gpu_type, []).append(node.gpus)
    if spec.gpu_type and spec.gpu_type not in pools:
        raise InputError(f"{job} asks for GPU type '{spec.gpu_type}'; this cluster has {', '.join(pools)}")
    open_to_it = [pools[spec.gpu_type]] if spec.gpu_type else list(pools.values())
    most = max((sum(sizes) for sizes in open_to_it), default=0)
    if spec.gpus > most:
        where = f"there are {most} of type '{spec.gpu_type}'" if spec.gpu_type else f"the largest pool has {most}"
        raise InputError(f"{job} asks for {spec.gpus} GPUs; {where}")
    if spec.nodes:
        each = spec.gpus // spec.nodes
        fit = max(sum(size >= each for size in sizes) for sizes in open_to_it)
        if fit < spec.nodes:
            kind = f" of type '{spec.gpu_type}'" if spec.gpu_type else ""
            has = f"has {fit} such node{'s' if fit != 1 else ''}"
            asks = f"{spec.nodes} node{'s' if spec.nodes > 1 else ''} with {each} GPUs{kind} each"
            raise InputError(f"{job} asks for {asks}; this cluster {has}")


def check_gpu_memory(spec: JobSpec, nodes: Sequence[NodeInfo]) -> None:
    """Raise when no GPU type has as many GPUs of the size that the job needs as it asks for."""
    sizes = [node.gpu_mem_gib or math.inf for node in nodes if spec.gpu_type in ("", node.gpu_type) and node.gpus]
    if not spec.gpu_mem_gib or not sizes:
        return
    asks = f"job '{spec.name}': field 'gpu_mem' is {spec.gpu_mem_gib:g} GiB per GPU"
    if spec.gpu_mem_gib > max(sizes):
        raise InputError(f"{asks}; the largest GPU has {max(sizes):g}")
    smallest: dict[str, float] = {}
    for node in nodes:
        smallest[node.gpu_type] = min(node.gpu_mem_gib or math.inf, smallest.get(node.gpu_type, math.inf))
    fit = [
        node for node in nodes if spec.gpu_type in ("", node.gpu_type) and spec.gpu_mem_gib <= smallest[node.gpu_type]
    ]
    try:
        check_place(spec, fit)
    except InputError:
        raise InputError(f"{asks}; no GPU type has {spec.gpus} GPUs of that size where it asks for them") from None
