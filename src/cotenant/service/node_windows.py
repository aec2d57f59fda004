"""A time for which some nodes are shut: to everybody (maintenance), or to all but those for whom they are reserved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MAINTENANCE, RESERVATION = "maintenance", "reservation"


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """From `from_s` to `to_s`, Unix seconds. No `nodes`: all of them. A reservation is for a tenant, a user or both."""

    id: str
    kind: str
    nodes: tuple[str, ...]
    from_s: float
    to_s: float
    tenant: str = ""
    user: str = ""
    note: str = ""

    def covers(self, node: str) -> bool:
        """Whether a node is in it."""
        return not self.nodes or node in self.nodes

    def on(self, now_s: float) -> bool:
        """Whether it has begun and is not over."""
        return self.from_s <= now_s < self.to_s

    def is_for(self, tenant: str, user: str) -> bool:
        """Whether its nodes are reserved for the jobs of somebody."""
        return self.kind == RESERVATION and self.tenant in ("", tenant) and self.user in ("", user)

    def lets(self, tenant: str, user: str, ends_s: float) -> bool:
        """Whether somebody's job may start on its nodes that is believed to end then."""
        return ends_s <= self.from_s or self.is_for(tenant, user)

    def as_dict(self) -> dict[str, Any]:
        """For the journal, and for people."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NodeWindow:
        """The inverse."""
        return cls(**{**data, "nodes": tuple(data["nodes"])})
