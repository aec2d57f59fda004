"""Nodes and GPUs by name, and the numbers that the engine has for them.

Nodes of one GPU type stand side by side in the tables. A GPU is a bit of a mask there, so a node with more GPUs than a
number has bits becomes several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cotenant.backends.base import NodeInfo
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.plan import Places
from cotenant.service.store.job import Gpus
from cotenant.service.store.tenants import NO_TENANTS, BookTenants

MOST_GPUS = 60  # bits of a mask that are used
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class _Part:
    """Some GPUs of a node, by their indexes there."""

    name: str
    indexes: tuple[int, ...]


class NodeNumbers:
    """The nodes of a backend as a cluster; another list of nodes needs another one.

    Nodes with another label are in a partition of that name. `tenants`: who shares them, and which are dedicated.
    """

    def __init__(
        self, nodes: Sequence[NodeInfo], labels: Mapping[str, str] = _NO_LABELS, tenants: BookTenants = NO_TENANTS
    ) -> None:
        self.types: tuple[str, ...] = tuple(dict.fromkeys(node.gpu_type for node in nodes))
        owners = {node.name: tenants.mark(node.name).dedicated for node in nodes}
        ordered = sorted(nodes, key=lambda n: (self.types.index(n.gpu_type), labels.get(n.name, ""), owners[n.name]))
        self._parts: list[_Part] = []
        groups = []
        for node in ordered:
            there = tuple(index for index in range(node.gpus) if index not in node.out)
            for first in range(0, len(there), MOST_GPUS):
                indexes = there[first : first + MOST_GPUS]
                share = len(indexes) / len(there)
                self._parts.append(_Part(node.name, indexes))
                told = share * node.cpus, share * node.mem_gib, labels.get(node.name, ""), owners[node.name]
                groups.append(NodeGroup(1, len(indexes), node.gpu_type, *told, slices=node.slices))
        self.cluster = Cluster(tuple(groups), spec=f"{len(nodes)} nodes", tenants=tenants.tree)
        self._of: dict[str, list[int]] = {}
        for number, part in enumerate(self._parts):
            self._of.setdefault(part.name, []).append(number)

    @staticmethod
    def shape_of(
        nodes: Iterable[NodeInfo], labels: Mapping[str, str] = _NO_LABELS, tenants: BookTenants = NO_TENANTS
    ) -> set[tuple[object, ...]]:
        """What makes another cluster: two lists with the same shape have the same numbers."""
        return {
            (one.name, one.gpu_type, one.gpus, one.out, one.cpus, one.mem_gib, labels.get(one.name, ""),
             tenants.mark(one.name).dedicated, one.slices)
            for one in nodes
        }  # fmt: skip

    def numbers(self, name: str) -> Sequence[int]:
        """The numbers of a node."""
        return self._of.get(name, ())

    def names(self) -> Iterable[str]:
        """Names of all nodes."""
        return self._of

    def places(self, gpus: Gpus) -> Places:
        """GPUs by name as places; of nodes that are not there any more, nothing."""
        masks: dict[int, int] = {}
        for name, indexes in gpus:
            for number in self._of.get(name, ()):
                part = self._parts[number]
                for bit, index in enumerate(part.indexes):
                    if index in indexes:
                        masks[number] = masks.get(number, 0) | 1 << bit
        return tuple((number, mask.bit_count(), mask) for number, mask in sorted(masks.items()))

    def gpus(self, places: Places) -> Gpus:
        """The inverse."""
        found: dict[str, list[int]] = {}
        for number, _, mask in places:
            part = self._parts[number]
            found.setdefault(part.name, []).extend(k for bit, k in enumerate(part.indexes) if (mask >> bit) & 1)
        return tuple((name, tuple(sorted(indexes))) for name, indexes in found.items())
