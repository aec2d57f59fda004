"""What the cluster is made of: groups of equal nodes, their GPU type, cores, memory and owners."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cotenant.core.errors import InputError
from cotenant.core.tenants import Tree

if TYPE_CHECKING:
    from cotenant.core.serving import InferenceService

_GROUP = re.compile(r"^(?P<count>\d+)x(?P<gpus>\d+)(?::(?P<type>[A-Za-z][\w.-]*))?(?:/(?P<host>.+))?$")
_MOST_NODES, _MOST_PER_NODE = 200_000, 1024  # beyond which tables alone would fill a machine
_EXAMPLE = "write e.g. 15x4, 32x8:h200, 9x4:v100+9x4:p100 or 4x8/cpu=96,mem=768"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` equal nodes. Cores and memory are per node; infinity means they are not modelled."""

    count: int
    gpus_per_node: int
    gpu_type: str = "gpu"
    cpus: float = math.inf
    mem_gib: float = math.inf
    partition: str = ""
    dedicated: tuple[str, ...] = ()  # only these tenants and those below them; empty: everybody
    labels: tuple[tuple[str, str], ...] = ()  # what people say of the nodes, such as rack=a3
    names: tuple[str, ...] = ()  # of the nodes in a live service, or patterns of them

    @property
    def gpus(self) -> int:
        """GPUs of the whole group."""
        return self.count * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups of nodes in order, and the tenants who share them.

    Jobs of a tenant that names a partition run only there; everybody else runs on nodes without one.
    A gang never spans two GPU types or two partitions. `quotas` are the most GPUs that a tenant may hold at a time;
    a tree of tenants stands in their place, and who may hold what follows from it (`cotenant.tenancy`).
    """

    groups: tuple[NodeGroup, ...]
    quotas: dict[str, int] = field(default_factory=dict)
    spec: str = ""
    tenants: Tree | None = None
    services: tuple[InferenceService, ...] = ()  # inference services of its own, for simulations

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return sum(group.gpus for group in self.groups)

    @property
    def nodes(self) -> int:
        """Nodes of the whole cluster."""
        return sum(group.count for group in self.groups)

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions in order of first appearance; '' is the open one."""
        return tuple(dict.fromkeys(group.partition for group in self.groups))

    @classmethod
    def parse(cls, spec: str) -> Cluster:
        """Read `9x4:v100+9x4:p100/cpu=96,mem=768`. Reading YAML files is `cotenant.workload.cluster_file`."""
        if not spec.strip():
            raise InputError(f"cluster spec is empty: {_EXAMPLE}")
        return cls(tuple(_parse_group(part.strip(), spec) for part in spec.split("+")), spec=spec)


def _parse_group(part: str, spec: str) -> NodeGroup:
    match = _GROUP.match(part)
    if match is None:
        raise InputError(f"cluster spec '{spec}': cannot read '{part}': {_EXAMPLE}")
    count, gpus = int(match["count"]), int(match["gpus"])
    if count < 1 or gpus < 1:
        raise InputError(f"cluster spec '{spec}': '{part}' has no nodes or no GPUs: {_EXAMPLE}")
    if count > _MOST_NODES or gpus > _MOST_PER_NODE:
        most = f"{_MOST_NODES} nodes of {_MOST_PER_NODE} GPUs"
        raise InputError(f"cluster spec '{spec}': '{part}' is larger than the {most} that can be played")
    host = {"cpu": math.inf, "mem": math.inf}
    for item in (match["host"] or "").split(","):
        if not item:
            continue
        key, _, value = item.partition("=")
        try:
            amount = float(value)
        except ValueError:
            amount = math.nan
        if key not in host or not amount > 0:
            raise InputError(f"cluster spec '{spec}': '{item}' is not cpu=CORES or mem=GIB: {_EXAMPLE}")
        host[key] = amount
    return NodeGroup(count, gpus, match["type"] or "gpu", host["cpu"], host["mem"])
