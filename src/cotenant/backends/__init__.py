"""Where jobs really run: one small protocol (`base`), local processes (`local`), a fake for tests (`fake`)."""

from cotenant.backends.base import (
    Backend,
    BackendError,
    Capabilities,
    LaunchSpec,
    NodeInfo,
    Observed,
    State,
    check_spec,
)

__all__ = [
    "Backend",
    "BackendError",
    "Capabilities",
    "LaunchSpec",
    "NodeInfo",
    "Observed",
    "State",
    "check_spec",
]
