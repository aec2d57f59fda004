"""Cotenant: simulate, serve and explain shared GPU clusters with one engine.

For Python: `Trace`, `Cluster`, `simulate`, `compare`, `why`, the `Policy` classes and `InputError` (docs/python.md).
Their types are in `__init__.pyi`; they are loaded at their first use, so that `import cotenant` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cotenant._version import __version__

_WHERE = {
    "Cluster": "core.cluster", "CotenantError": "core.errors", "InputError": "core.errors", "View": "core.view",
    "Results": "lab.results", "Result": "lab.results", "Trace": "lab.trace",
    "compare": "lab.running", "simulate": "lab.running", "why": "lab.running",
    "OrderPolicy": "policies.base", "PlanPolicy": "policies.base", "Policy": "policies.base",
    "PriorityPolicy": "policies.base",
}  # fmt: skip

__all__ = [
    "Cluster",
    "CotenantError",
    "InputError",
    "OrderPolicy",
    "PlanPolicy",
    "Policy",
    "PriorityPolicy",
    "Result",
    "Results",
    "Trace",
    "View",
    "__version__",
    "compare",
    "simulate",
    "why",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'cotenant' has no attribute '{name}'")
    return getattr(import_module(f"cotenant.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
