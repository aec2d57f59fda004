"""What people say of nodes: to which tenants they are dedicated, and labels. What nodes have, the backend says.

A cluster file names nodes by group: `names` if it has them (patterns such as `gpu-0*` too), else as many nodes of the
group's GPU type and number of GPUs as it counts, in order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.cluster import NodeGroup

_ANY_TYPE = "gpu"  # of groups that do not say


@dataclass(frozen=True, slots=True)
class NodeMark:
    """Of one node: tenants whose (and whose children's) jobs alone it takes, none: everybody's; and labels."""

    dedicated: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For the journal, and for people."""
        return {"dedicated": list(self.dedicated), "labels": dict(self.labels)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NodeMark:
        """The inverse."""
        return cls(tuple(data.get("dedicated", ())), tuple(dict(data.get("labels", {})).items()))


UNMARKED = NodeMark()


def matched(groups: Sequence[NodeGroup], nodes: Iterable[NodeInfo]) -> tuple[dict[str, NodeMark], list[str]]:
    """Marks by name of the node, and what of the groups does not match the nodes that are there, a line each."""
    left = {node.name: node for node in sorted(nodes, key=lambda node: node.name)}
    marks: dict[str, NodeMark] = {}
    wrong: list[str] = []
    named_first = sorted(enumerate(groups), key=lambda item: not item[1].names)
    for at, group in named_first:
        found = _of(group, left)
        for name in found:
            has = left.pop(name)
            if group.dedicated or group.labels:
                marks[name] = NodeMark(group.dedicated, group.labels)
            if group.names and (has.gpus != group.gpus_per_node or group.gpu_type not in (_ANY_TYPE, has.gpu_type)):
                says = f"{group.gpus_per_node} GPUs of type '{group.gpu_type}'"
                wrong.append(f"groups[{at}]: node {name} has {has.gpus} of type '{has.gpu_type}', not {says}")
        if len(found) < group.count:
            what = f"named {', '.join(group.names)}" if group.names else _shape(group)
            wrong.append(f"groups[{at}]: {len(found)} of {group.count} nodes {what} are there")
    return marks, wrong


def _of(group: NodeGroup, left: Mapping[str, NodeInfo]) -> list[str]:
    if group.names:
        return [name for name in left if any(fnmatchcase(name, pattern) for pattern in group.names)]
    alike = [
        node.name
        for node in left.values()
        if node.gpus == group.gpus_per_node and group.gpu_type in (_ANY_TYPE, node.gpu_type)
    ]
    return alike[: group.count]


def _shape(group: NodeGroup) -> str:
    kind = "" if group.gpu_type == _ANY_TYPE else f" of type '{group.gpu_type}'"
    return f"with {group.gpus_per_node} GPUs{kind}"
