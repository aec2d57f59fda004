"""The cluster that a user names: a spec such as `32x8:h200`, or a YAML file with groups of nodes and their tenants.

groups:
  - {nodes: 4, gpus: 8, type: h200, cpu: 96, mem: 768, partition: vcA}   # per node; mem in GiB
  - {nodes: 2, gpus: 8, dedicated: [vision], labels: {rack: a3}}         # nobody else's
  - {nodes: 2, gpus: 8, mem: 512, borrow: 128, borrow_factor: 0.5}       # GiB of its peers, at half speed
  - {nodes: 2, gpus: 8, names: [gpu-07, gpu-08]}                         # live: these; without: whichever are alike
  - {nodes: 2, gpus: 8, type: h100, slices: mig}                         # GPUs may be cut: docs/slices.md
fair_share: {half_life: 7d, min_run: 60, reserve_after: 600}             # the tree of tenants: docs/tenants.md
tenants: {research: {guaranteed: 32, children: {vision: {guaranteed: 16}}}}
quotas: {vcA: 16}                                                        # or only the most GPUs that each may hold
network: {link: 25, rack: 4, uplink: 50}                                 # Gbit/s, nodes, Gbit/s: docs/network.md
services: {chat: {target_ms: 50, service_ms: 8, rate: 40}}               # inference services: docs/inference.md
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cotenant.core import reading
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError, unknown
from cotenant.core.network import Network
from cotenant.core.partitions import read_partitions
from cotenant.core.tenants import Tree
from cotenant.workload.services import services_of

_GROUP_KEYS = (
    "nodes", "gpus", "type", "cpu", "mem", "partition", "dedicated", "labels", "names", "slices", "borrow",
    "borrow_factor",
)  # fmt: skip
_TOP_KEYS = ("groups", "quotas", "fair_share", "tenants", "network", "services")


def load_cluster(spec: str) -> Cluster:
    """Read a spec, or the YAML file that it names."""
    if not spec.strip().lower().endswith((".yaml", ".yml")):
        return Cluster.parse(spec)
    import yaml

    path = Path(spec)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f" line {mark.line + 1}" if mark is not None else ""
        raise InputError(f"{path}{at}: broken YAML ({getattr(error, 'problem', None) or 'cannot be read'})") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: must hold 'groups:' and optionally 'quotas:'")
    reading.known(f"{path}", data, _TOP_KEYS)
    groups = data.get("groups")
    if not isinstance(groups, list) or not groups:
        raise InputError(f"{path}: groups: must be a list such as [{{nodes: 4, gpus: 8, type: h200}}]")
    cluster = Cluster(
        tuple(_group(f"{path}: groups[{at}]", item) for at, item in enumerate(groups)),
        quotas=_quotas(path, data.get("quotas") or {}),
        spec=spec,
        tenants=_tree(path, data),
        network=Network.from_dict(data["network"], f"{path}: network") if "network" in data else None,
        services=services_of(data["services"], f"{path}: services", path.parent) if "services" in data else (),
    )
    _check_tenants(path, cluster)
    return cluster


def load_tenants(path: str) -> Cluster:
    """Read a file that has to say who shares the cluster."""
    if not path.strip().lower().endswith((".yaml", ".yml")):
        raise InputError(f"{path}: tenants are in a YAML file: name one that ends in .yaml")
    cluster = load_cluster(path)
    if cluster.tenants is None:
        raise InputError(f"{path}: has no 'tenants:', such as tenants: {{vision: {{guaranteed: 8}}}}")
    return cluster


def cluster_text(cluster: Cluster) -> str:
    """A cluster as the YAML that `load_cluster` reads."""
    import yaml

    groups = []
    for group in cluster.groups:
        data: dict[str, Any] = {"nodes": group.count, "gpus": group.gpus_per_node, "type": group.gpu_type}
        data |= {"cpu": group.cpus} if group.cpus < math.inf else {}
        data |= {"mem": group.mem_gib} if group.mem_gib < math.inf else {}
        data |= {"partition": group.partition} if group.partition else {}
        data |= {"dedicated": list(group.dedicated)} if group.dedicated else {}
        data |= {"labels": dict(group.labels)} if group.labels else {}
        data |= {"names": list(group.names)} if group.names else {}
        data |= {"slices": group.slices.as_data()} if group.slices is not None else {}
        data |= {"borrow": group.borrow_gib, "borrow_factor": group.borrow_factor} if group.borrow_gib else {}
        groups.append(data)
    said = {"groups": groups} | ({"quotas": cluster.quotas} if cluster.quotas else {})
    said |= cluster.tenants.as_dict() if cluster.tenants is not None else {}
    said |= {"network": cluster.network.as_dict()} if cluster.network is not None else {}
    return yaml.safe_dump(said, sort_keys=False, default_flow_style=None, width=120)


def _tree(path: Path, data: dict[str, Any]) -> Tree | None:
    if "tenants" not in data and "fair_share" not in data:
        return None
    if data.get("quotas"):
        raise InputError(f"{path}: quotas: beside tenants: write quotas.NAME as tenants.NAME.ceiling")
    return Tree.from_dict({key: data[key] for key in ("fair_share", "tenants") if key in data}, str(path))


def _check_tenants(path: Path, cluster: Cluster) -> None:
    """Names and numbers that groups and tenants must agree on."""
    for at, group in enumerate(cluster.groups):
        for name in group.dedicated:
            if cluster.tenants is None or name not in cluster.tenants:
                known = [tenant.name for tenant in cluster.tenants.tenants] if cluster.tenants else []
                raise InputError(f"{path}: groups[{at}].dedicated: {unknown('tenant', name, known)}")
    given = cluster.tenants.guaranteed("") if cluster.tenants is not None else 0
    if given > cluster.gpus:
        raise InputError(f"{path}: tenants: {given} GPUs are guaranteed, but the cluster has {cluster.gpus}: say less")


def _group(where: str, item: Any) -> NodeGroup:
    if not isinstance(item, dict):
        raise InputError(f"{where}: must be a mapping such as {{nodes: 4, gpus: 8}}")
    reading.known(where, item, _GROUP_KEYS)
    names = reading.names(f"{where}.names", item.get("names") or ())
    item = {**({"nodes": len(names)} if names else {}), **item}
    for key in ("nodes", "gpus"):
        if key not in item:
            raise InputError(f"{where}.{key} is missing; say how many")
    labels = reading.mapping(f"{where}.labels", item.get("labels") or {}, "{rack: a3}")
    kind = reading.text(f"{where}.type", item.get("type", "gpu"))
    return NodeGroup(
        reading.whole(f"{where}.nodes", item["nodes"], 1),
        reading.whole(f"{where}.gpus", item["gpus"], 1),
        kind,
        reading.amount(f"{where}.cpu", item.get("cpu", math.inf), " per node"),
        reading.amount(f"{where}.mem", item.get("mem", math.inf), " per node"),
        reading.text(f"{where}.partition", item.get("partition", "")),
        reading.names(f"{where}.dedicated", item.get("dedicated") or ()),
        tuple((str(key), reading.text(f"{where}.labels.{key}", value)) for key, value in labels.items()),
        names,
        read_partitions(f"{where}.slices", item["slices"], kind) if "slices" in item else None,
        *_borrowed(where, item),
    )


def _borrowed(where: str, item: dict[str, Any]) -> tuple[float, float]:
    """GiB that a node may borrow, and the speed of what works there."""
    if "borrow" not in item:
        return 0.0, 0.5
    if "mem" not in item:
        raise InputError(f"{where}.borrow: it borrows beyond an amount that it does not name; say mem: GIB")
    factor = reading.amount(f"{where}.borrow_factor", item.get("borrow_factor", 0.5), "")
    if factor > 1:
        raise InputError(f"{where}.borrow_factor is {factor:g}: write a speed above 0 and at most 1")
    return reading.amount(f"{where}.borrow", item["borrow"], " per node"), factor


def _quotas(path: Path, data: Any) -> dict[str, int]:
    if not isinstance(data, dict):
        raise InputError(f"{path}: quotas: must be a mapping such as {{vcA: 16}}")
    return {str(tenant): reading.whole(f"{path}: quotas.{tenant}", gpus, 0) for tenant, gpus in data.items()}
