"""The typed client: `from cotenant.client import Client`."""

from __future__ import annotations

from cotenant.client.client import Client
from cotenant.client.errors import Denied, Unreachable
from cotenant.service.facade import (
    AttemptInfo,
    Conflict,
    EventInfo,
    JobInfo,
    JobOutcome,
    NodeStatus,
    NotFound,
    Role,
    TokenInfo,
    Unavailable,
    Which,
)
from cotenant.service.node_windows import NodeWindow

__all__ = [
    "AttemptInfo",
    "Client",
    "Conflict",
    "Denied",
    "EventInfo",
    "JobInfo",
    "JobOutcome",
    "NodeStatus",
    "NodeWindow",
    "NotFound",
    "Role",
    "TokenInfo",
    "Unavailable",
    "Unreachable",
    "Which",
]
