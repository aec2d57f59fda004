"""Where jobs really run: one small protocol (`base`), local processes (`local`), a fake for tests (`fake`)."""

from cotenant.backends.base import (
    Backend,
    BackendError,
    CallHome,
    Capabilities,
    LaunchSpec,
    LogPart,
    LogReader,
    NodeInfo,
    Observed,
    State,
    Stream,
    Unreachable,
    check_key,
    check_spec,
)
from cotenant.backends.gangs import Rank, ranks
from cotenant.backends.registry import known_backends, open_backend

__all__ = [
    "Backend",
    "BackendError",
    "CallHome",
    "Capabilities",
    "LaunchSpec",
    "LogPart",
    "LogReader",
    "NodeInfo",
    "Observed",
    "Rank",
    "State",
    "Stream",
    "Unreachable",
    "check_key",
    "check_spec",
    "known_backends",
    "open_backend",
    "ranks",
]
