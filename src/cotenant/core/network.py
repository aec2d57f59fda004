"""A network that gangs share: links of nodes, uplinks of racks, what a gang sends, and how fast that lets it go.

Every node has a link to the switch of its rack, every rack an uplink to all others; both carry so much each way. A gang
on n nodes sends its gradients once per step. In a ring (the default) each node sends 2(n-1)/n of them to the next; its
members stand in the ring rack by rack, so that it leaves each rack once. With `collective: server` its first node sends
them to all others and gets them from there.

A link is shared by max-min fairness between all gangs that use it, as if each sent all the time: two on one link have
half of it each, three a third, and who is held back elsewhere leaves the rest to others. That is the worst case, for
they do not all send at once. A step takes compute + max(0, exchange - overlap x compute). A gang's speed is its step
with the links for itself, on as few nodes as it needs and in one rack, over its step now: what a log says that it
took is taken as that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cotenant.core import reading
from cotenant.core.errors import InputError, unknown

if TYPE_CHECKING:
    from cotenant.core.workload import Floats

COLLECTIVES = ("ring", "server")
TOLD = ("gradient_mb", "step_s")  # what a log may say of a job
_FULL = 1e-9  # relative: what is left of a link that is used up
_TIE = 1e-9  # relative
Loads = dict[int, float]
"""Link -> what a gang sends over it in a step, as a part of what it sends over its busiest one."""


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a cluster as people write it. Gbit/s each way; `gradient_mb` and `step_s` are of jobs of which
    nobody knows more. `rack` is how many nodes, in the order of the cluster, make one; 0: their label `rack` says it.
    """

    link: float
    uplink: float = math.inf
    rack: int = 0
    overlap: float = 0.5
    collective: str = COLLECTIVES[0]
    gradient_mb: float = 400.0
    step_s: float = 0.25

    @classmethod
    def from_dict(cls, data: Any, where: str) -> Network:
        """Read a mapping such as {link: 25, rack: 4, uplink: 50}."""
        data = reading.mapping(where, data, "{link: 25, rack: 4, uplink: 50}")
        reading.known(where, data, cls.__slots__)
        if "link" not in data:
            raise InputError(f"{where}.link is missing; say how many Gbit/s each node has")
        given: dict[str, Any] = dict(data)
        for key in ("link", "uplink", "gradient_mb", "step_s"):
            if key in data:
                given[key] = reading.amount(f"{where}.{key}", data[key])
        if "rack" in data:
            reading.whole(f"{where}.rack", data["rack"], 1)
        overlap = data.get("overlap", 0.0)
        if isinstance(overlap, bool) or not isinstance(overlap, int | float) or not 0 <= overlap <= 1:
            raise InputError(f"{where}.overlap is {overlap!r}; write the part of the time to compute, from 0 to 1")
        if data.get("collective", COLLECTIVES[0]) not in COLLECTIVES:
            raise unknown(f"{where}.collective", str(data["collective"]), COLLECTIVES)
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` reads; what is as usual is left out."""
        usual = Network(self.link)
        return {key: value for key, value in asdict(self).items() if key == "link" or value != getattr(usual, key)}


@dataclass(frozen=True, slots=True)
class Traffic:
    """What jobs send, by row: bytes of gradients, and seconds that a step takes without sending them."""

    gradient: Floats
    compute_s: Floats


@dataclass(frozen=True, slots=True)
class Gang:
    """A job on several nodes: what it sends over which links in a step, and its steps without and with that, alone."""

    loads: Loads
    sends: float  # bytes over the busiest link
    compute_s: float
    alone_s: float


class Topology:
    """The links of a cluster by number: those of nodes first, then uplinks; bytes per second, and what gangs do there.

    `racks` is the rack of every node.
    """

    def __init__(self, network: Network, racks: Sequence[int]) -> None:
        self.network, self.racks = network, tuple(racks)
        self.nodes = len(self.racks)
        count = max(self.racks, default=-1) + 1
        self._bytes_per_s = [network.link * 1e9 / 8] * self.nodes + [network.uplink * 1e9 / 8] * count

    def name(self, link: int) -> str:
        """A link in words."""
        return f"the link of node {link}" if link < self.nodes else f"the uplink of rack {link - self.nodes}"

    def gang(self, nodes: Iterable[int], fewest: int, gradient: float, compute_s: float) -> Gang:
        """A job on these nodes that could sit on `fewest`."""
        at = sorted(set(nodes), key=lambda node: (self.racks[node], node))
        every = self._ring(at) if self.network.collective == "ring" else self._server(at)
        loads = {link: load for link, load in every.items() if gradient > 0 and self._bytes_per_s[link] < math.inf}
        alone_s = compute_s
        if fewest > 1:
            alone_s = self._step_s(compute_s, self._sends(fewest) * gradient, self.network.link * 1e9 / 8)
        return Gang(loads, self._sends(len(at)) * gradient, compute_s, alone_s)

    def _sends(self, nodes: int) -> float:
        """Over the busiest link, in gradients."""
        return 2 * (nodes - 1) / nodes if self.network.collective == "ring" else nodes - 1.0

    def _ring(self, nodes: Sequence[int]) -> Loads:
        used = {self.racks[node] for node in nodes}
        uplinks = {self.nodes + rack: 1.0 for rack in used} if len(used) > 1 else {}
        return dict.fromkeys(nodes, 1.0) | uplinks if len(nodes) > 1 else {}

    def _server(self, nodes: Sequence[int]) -> Loads:
        others = len(nodes) - 1
        loads = dict.fromkeys(nodes[1:], 1.0 / others) | {nodes[0]: 1.0} if others else {}
        home = self.racks[nodes[0]]
        for node in nodes[1:]:
            if self.racks[node] != home:
                for rack in (home, self.racks[node]):
                    loads[self.nodes + rack] = loads.get(self.nodes + rack, 0.0) + 1.0 / others
        return loads

    def _step_s(self, compute_s: float, sends: float, bytes_per_s: float) -> float:
        return compute_s + max(sends / bytes_per_s - self.network.overlap * compute_s, 0.0)

    def bandwidths(self, gangs: Sequence[Gang]) -> list[float]:
        """Bytes per second of each gang on its busiest link: all rise alike until a link that they use is full."""
        found = [math.inf] * len(gangs)
        left = {link: self._bytes_per_s[link] for gang in gangs for link in gang.loads}
        rising, level = [at for at, gang in enumerate(gangs) if gang.loads], 0.0
        while rising:
            wanted: dict[int, float] = {}
            for at in rising:
                for link, load in gangs[at].loads.items():
                    wanted[link] = wanted.get(link, 0.0) + load
            rise = min(left[link] / load for link, load in wanted.items())
            level += rise
            for link, load in wanted.items():
                left[link] -= rise * load
            full = {link for link in wanted if left[link] <= _FULL * self._bytes_per_s[link]}
            for at in rising:
                found[at] = level if not full.isdisjoint(gangs[at].loads) else math.inf
            rising = [at for at in rising if found[at] == math.inf]
        return found

    def speeds(self, gangs: Sequence[Gang]) -> list[float]:
        """Of each gang among all of them, against alone."""
        return [
            gang.alone_s / self._step_s(gang.compute_s, gang.sends, rate) if gang.loads else 1.0
            for gang, rate in zip(gangs, self.bandwidths(gangs), strict=True)
        ]

    def play(self, gangs: Sequence[Gang], left_s: Sequence[float], starts_s: Sequence[float]) -> list[float]:
        """When gangs end that begin at these times and have so many seconds left alone, if nobody else comes."""
        now, left, ends = 0.0, list(left_s), [math.nan] * len(gangs)
        while any(map(math.isnan, ends)):
            here = [at for at, end in enumerate(ends) if math.isnan(end) and starts_s[at] <= now]
            speed = dict(zip(here, self.speeds([gangs[at] for at in here]), strict=True))
            next_s = min((start for start in starts_s if start > now), default=math.inf)
            then = min([next_s, *(now + left[at] / speed[at] for at in here)])
            for at in here:
                if now + left[at] / speed[at] <= then:
                    ends[at] = then
                left[at] -= (then - now) * speed[at]
            now = then
        return ends


def meeting(gang: Gang, others: Mapping[int, Gang]) -> dict[int, Gang]:
    """Those who share a link with a gang, or with one of those."""
    found: dict[int, Gang] = {}
    links, more = set(gang.loads), True
    while more:
        new = {row: one for row, one in others.items() if row not in found and not links.isdisjoint(one.loads)}
        found |= new
        links.update(*(one.loads for one in new.values()))
        more = bool(new)
    return found


def better_later(
    topology: Topology, own: Gang, own_left_s: float, others: Mapping[int, Gang], left_s: Mapping[int, float]
) -> tuple[frozenset[int], float] | None:
    """Whom a gang had better wait for, and by how much that lowers the sum of all ends; None if it should start now.

    It starts now or when one of those has ended with whom it shares a link. As in SJF-BSBF's test of two jobs on a GPU
    (IWQoS'24, theorem 1), of which this is the case of one other, equal means wait.
    """
    gangs, work = [*others.values(), own], [*(left_s[row] for row in others), own_left_s]

    def total(start_s: float) -> float:
        return sum(topology.play(gangs, work, [0.0] * len(others) + [start_s]))

    ends = dict(zip(others, topology.play(gangs[:-1], work[:-1], [0.0] * len(others)), strict=True))
    met = [row for row, gang in others.items() if not gang.loads.keys().isdisjoint(own.loads)]
    wait, until = min(((total(ends[row]), ends[row]) for row in met), default=(math.inf, 0.0))
    now = total(0.0)
    if now < wait - _TIE * wait or not met:
        return None
    return frozenset(row for row in met if ends[row] <= until), now - wait
