"""What the cluster is made of: groups of equal nodes, their GPU type, cores, memory and owners."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cotenant.core.errors import InputError
from cotenant.core.network import Network
from cotenant.core.tenants import Tree

if TYPE_CHECKING:
    from cotenant.core.partitions import Partitions
    from cotenant.core.serving import InferenceService

_GROUP = re.compile(r"^(?P<count>\d+)x(?P<gpus>\d+)(?::(?P<type>[A-Za-z][\w.-]*))?(?:/(?P<host>.+))?$")
_NETWORK = ("link", "uplink", "rack")  # of a network, in a spec
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
    slices: Partitions | None = None  # how its GPUs may be cut; None: never
    borrow_gib: float = 0.0  # memory that a node may use beyond its own, of its peers
    borrow_factor: float = 0.5  # speed of what works on borrowed memory

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
    network: Network | None = None  # None: what gangs send costs nothing
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
        said: dict[str, float] = {}
        groups = tuple(_parse_group(part.strip(), spec, said) for part in spec.split("+"))
        network = Network.from_dict(said, f"cluster spec '{spec}': network") if said else None
        return cls(groups, spec=spec, network=network)


def _parse_group(part: str, spec: str, network: dict[str, float]) -> NodeGroup:
    """One group of nodes; what it says of the network (link, uplink, rack) is the whole cluster's."""
    match = _GROUP.match(part)
    if match is None:
        raise InputError(f"cluster spec '{spec}': cannot read '{part}': {_EXAMPLE}")
    count, gpus = int(match["count"]), int(match["gpus"])
    if count < 1 or gpus < 1:
        raise InputError(f"cluster spec '{spec}': '{part}' has no nodes or no GPUs: {_EXAMPLE}")
    if count > _MOST_NODES or gpus > _MOST_PER_NODE:
        most = f"{_MOST_NODES} nodes of {_MOST_PER_NODE} GPUs"
        raise InputError(f"cluster spec '{spec}': '{part}' is larger than the {most} that can be played")
    host, factor = {"cpu": math.inf, "mem": math.inf, "borrow": 0.0}, 0.5
    for item in (match["host"] or "").split(","):
        if not item:
            continue
        key, _, value = item.partition("=")
        value, penalty, share = value.partition("@") if key == "borrow" else (value, "", "")
        try:
            amount = float(value)
            factor = float(share) if penalty else factor
        except ValueError:
            amount = math.nan
        if key in _NETWORK and amount > 0 and key not in network:
            network[key] = int(amount) if key == "rack" and amount == int(amount) else amount
            continue
        if key not in host or not amount > 0 or not 0 < factor <= 1:
            raise InputError(
                f"cluster spec '{spec}': '{item}' is not cpu=CORES, mem=GIB, borrow=GIB@SPEED (above 0, at most 1), or"
                f" once for the network link=GBIT, uplink=GBIT or rack=NODES: {_EXAMPLE}"
            )
        host[key] = amount
    if host["borrow"] and not math.isfinite(host["mem"]):
        raise InputError(
            f"cluster spec '{spec}': '{part}' borrows memory beyond an amount that it does not name: mem=GIB"
        )
    kind = match["type"] or "gpu"
    return NodeGroup(count, gpus, kind, host["cpu"], host["mem"], borrow_gib=host["borrow"], borrow_factor=factor)
