"""From an experiment to the network that its gangs share: links, what jobs send, and what does not go with it."""

from __future__ import annotations

from cotenant.beliefs.company import PairSpeeds, SharedSpeeds
from cotenant.beliefs.network import NetworkSpeeds
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError, unknown
from cotenant.core.network import Topology
from cotenant.core.outcome import Scalar
from cotenant.core.traits import Traits
from cotenant.core.workload import Workload
from cotenant.engine.network import NetworkCare
from cotenant.engine.rates import RateModel
from cotenant.engine.senders import Senders
from cotenant.engine.tenant_rows import pools_of
from cotenant.sim.experiment import Experiment
from cotenant.workload.profiles import Profile
from cotenant.workload.traffic import traffic_of

WAYS = ("avoid", "wait")


def check_network(e: Experiment) -> None:
    """Refuse what does not go with a network, and what needs one where there is none."""
    ways = ways_of(e.network)
    if e.cluster.network is None:
        if ways:
            raise InputError(
                f"--network {e.network}: cluster '{e.cluster.spec}' has no network: say network: {{link: 25}} in its"
                " file, or 16x4/link=25,rack=4"
            )
        return
    if e.services:
        raise InputError(f"the network of cluster '{e.cluster.spec}' does not go with services: leave one of them out")
    if e.placement.split(":")[0] == "count":
        raise InputError(f"--placement {e.placement} knows no nodes, but cluster '{e.cluster.spec}' has a network")


def ways_of(text: str) -> tuple[str, ...]:
    """What decisions make of the network: `avoid`, `wait` or `avoid,wait`."""
    ways = tuple(part.strip() for part in text.split(",") if part.strip())
    for way in ways:
        if way not in WAYS:
            raise unknown("--network", way, WAYS)
    return ways


def senders_of(e: Experiment, work: Workload, profile: Profile, traits: Traits, allocated: bool) -> Senders | None:
    """Who sends what over which links; None where there is no network."""
    if e.cluster.network is None:
        return None
    if allocated or traits.interleaves or traits.resizes or e.compat:
        what = (
            f"--allocator {e.allocator}" if allocated
            else f"--compat {','.join(e.compat)}" if e.compat
            else f"policy '{e.policy}', which {'resizes jobs' if traits.resizes else 'lets jobs take turns by stages'}"
        )  # fmt: skip
        raise InputError(f"the network of cluster '{e.cluster.spec}' does not go with {what}")
    if e.network and traits.plans and not traits.names_pools:
        raise InputError(f"--network {e.network} does not go with policy '{e.policy}', which says itself where jobs go")
    topology = Topology(e.cluster.network, racks_of(e.cluster))
    return Senders(topology, traffic_of(work, e.cluster.network, profile))


def racks_of(cluster: Cluster) -> list[int]:
    """The rack of every node in the order of the tables: so many nodes of the file make one, or a label names it."""
    assert cluster.network is not None
    each, named = cluster.network.rack, [dict(group.labels).get("rack", "") for group in cluster.groups]
    number = {name: at for at, name in enumerate(dict.fromkeys(named))}
    by_group: list[list[int]] = []
    first = 0
    for group, name in zip(cluster.groups, named, strict=True):
        by_group.append([(first + k) // each if each else number[name] for k in range(group.count)])
        first += group.count
    return [
        rack
        for pool in pools_of(cluster)
        for group, racks in zip(cluster.groups, by_group, strict=True)
        if (group.partition, group.gpu_type, group.dedicated) == pool
        for rack in racks
    ]


def with_network(e: Experiment, senders: Senders | None, rates: RateModel | None) -> RateModel | None:
    """Speeds on the network, around those of GPUs in company."""
    if senders is None:
        return rates
    if rates is not None and not isinstance(rates, PairSpeeds | SharedSpeeds):
        raise InputError(f"the network of cluster '{e.cluster.spec}' does not go with GPUs in slices")
    return NetworkSpeeds(senders, rates)


def care_of(e: Experiment, senders: Senders | None) -> NetworkCare | None:
    """What decisions make of the network; None where there is none."""
    ways = ways_of(e.network)
    return None if senders is None else NetworkCare(senders, "avoid" in ways, "wait" in ways)


def network_figures(rates: RateModel | None, care: NetworkCare | None) -> dict[str, Scalar]:
    """For the summary of a run; nothing where there is no network."""
    if care is None or not isinstance(rates, NetworkSpeeds):
        return {}
    return {"network_lost_gpu_h": rates.lost_gpu_s / 3600, **care.figures()}
