"""The tree of tenants of a service and what is said of its nodes, as journaled: a value, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.tenants import Tenant, Tree, UserLimits
from cotenant.service.node_marks import UNMARKED, NodeMark


@dataclass(frozen=True, slots=True)
class BookTenants:
    """`tree` is None until there is one: then nobody is limited. `who` changed it last, at `at_s`."""

    tree: Tree | None = None
    nodes: Mapping[str, NodeMark] = field(default_factory=dict)
    who: str = ""
    at_s: float = 0.0

    def of(self, tenant: str) -> Tenant:
        """What a tenant is, also where there is no tree."""
        return self.tree.of(tenant) if self.tree is not None else Tenant(tenant)

    def limits(self, tenant: str) -> UserLimits:
        """Those of each of its users."""
        return self.of(tenant).limits if self.tree is not None else _NO_LIMITS

    def mark(self, node: str) -> NodeMark:
        """What is said of a node."""
        return self.nodes.get(node, UNMARKED)

    def takes(self, node: str, tenant: str) -> bool:
        """Whether a node is for jobs of a tenant."""
        dedicated = self.mark(node).dedicated
        if not dedicated:
            return not self.of(tenant).only_dedicated
        return self.tree is not None and not set(dedicated).isdisjoint(self.tree.path(tenant))

    def entry(self) -> dict[str, Any]:
        """What is journaled; when is in every record."""
        tree = self.tree.as_dict() if self.tree is not None else None
        return {"tree": tree, "nodes": {name: mark.as_dict() for name, mark in self.nodes.items()}, "who": self.who}

    def as_dict(self) -> dict[str, Any]:
        """For a snapshot."""
        return {**self.entry(), "at_s": self.at_s}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> BookTenants:
        """A record, or part of a snapshot; None: of a version that knew no tenants."""
        if not data:
            return cls()
        tree = None if data["tree"] is None else Tree.from_dict(data["tree"], "journal")
        nodes = {name: NodeMark.from_dict(mark) for name, mark in data["nodes"].items()}
        return cls(tree, nodes, data["who"], data["at_s"])


NO_TENANTS = BookTenants()
_NO_LIMITS = UserLimits()
