"""Who asks, and what he may. Known to others by `cotenant.service.facade`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cotenant.core.errors import CotenantError


class Role(StrEnum):
    """What a token may do: viewer reads, user also submits and touches his tenant's jobs, admin everything."""

    ADMIN = "admin"
    USER = "user"
    VIEWER = "viewer"


SCOPES = ("read", "submit", "manage", "admin", "metrics")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. An empty tenant (admins, and viewers made without one) sees every tenant.

    `scopes` narrow what the role may: read (look), submit (new jobs), manage (cancel, hold, change, ...), admin
    (nodes, policy, tokens, ...), metrics (numbers only); none given: all that the role may. `token`: the id of his
    token. `administers`: tenants whose jobs he looks after beside his own, by the tree of tenants.
    """

    name: str
    role: Role
    tenant: str = ""
    scopes: tuple[str, ...] = ()
    token: str = field(default="", compare=False)
    administers: frozenset[str] = frozenset()

    def sees(self, tenant: str) -> bool:
        """Whether the jobs of a tenant exist for him."""
        return self.is_of(tenant) or tenant in self.administers

    def is_of(self, tenant: str) -> bool:
        """Whether he may run code as this tenant."""
        return self.tenant in ("", tenant)

    def must_be(self, role: Role) -> None:
        """Raise unless he may do what this role may."""
        ranks = {Role.VIEWER: 0, Role.USER: 1, Role.ADMIN: 2}
        if ranks[self.role] < ranks[role]:
            raise CotenantError(f"this needs the role {role}")
