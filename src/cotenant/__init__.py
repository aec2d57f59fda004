"""Cotenant: simulate, serve and explain shared GPU clusters with one engine.

For Python: `Trace`, `Cluster`, `simulate`, `compare`, `why`, the `Policy` classes and `InputError` (docs/python.md).
They are loaded when they are first used, so that `import cotenant` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cotenant._version import __version__

if TYPE_CHECKING:
    from cotenant.core.cluster import Cluster
    from cotenant.core.errors import CotenantError, InputError
    from cotenant.core.view import View
    from cotenant.lab.results import Comparison, Result
    from cotenant.lab.running import compare, simulate, why
    from cotenant.lab.trace import Trace
    from cotenant.policies.base import OrderPolicy, PlanPolicy, Policy, PriorityPolicy

_WHERE = {
    "Cluster": "core.cluster", "CotenantError": "core.errors", "InputError": "core.errors", "View": "core.view",
    "Comparison": "lab.results", "Result": "lab.results", "Trace": "lab.trace",
    "compare": "lab.running", "simulate": "lab.running", "why": "lab.running",
    "OrderPolicy": "policies.base", "PlanPolicy": "policies.base", "Policy": "policies.base",
    "PriorityPolicy": "policies.base",
}  # fmt: skip

__all__ = [
    "Cluster", "Comparison", "CotenantError", "InputError", "OrderPolicy", "PlanPolicy", "Policy", "PriorityPolicy",
    "Result", "Trace", "View", "__version__", "compare", "simulate", "why",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'cotenant' has no attribute '{name}'")
    return getattr(import_module(f"cotenant.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
