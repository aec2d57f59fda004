"""The typed client: `from cotenant.client import Client`."""

from __future__ import annotations

from cotenant.client.client import Client
from cotenant.client.errors import Denied, Unreachable
from cotenant.service.facade import (
    AttemptInfo,
    Conflict,
    EventInfo,
    JobInfo,
    NodeStatus,
    NotFound,
    Role,
    TokenInfo,
    Unavailable,
)

__all__ = [
    "AttemptInfo",
    "Client",
    "Conflict",
    "Denied",
    "EventInfo",
    "JobInfo",
    "NodeStatus",
    "NotFound",
    "Role",
    "TokenInfo",
    "Unavailable",
    "Unreachable",
]
