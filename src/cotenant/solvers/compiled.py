"""Compile a solver's hot loop when there is enough work for it.

Importing numba costs 1.7 CPU seconds, so small problems use NumPy; a loop is compiled once the work asked for in this
process would have paid for that. Both forms add in the same order and give the same bits, so the switch cannot
change a result. The engine's kernels (`cotenant.core.jit`) are compiled all together under one digest; these are kept
apart so that a process without solvers finds its cache unchanged.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant.core.cache import cache_folder

COMPILE_AFTER = 60_000_000
"""Cells (jobs x types) evaluated in NumPy after which the rest of the process compiles."""

_work = 0
_compiled: dict[str, Callable[..., Any]] = {}


def worth_compiling(cells: int, rounds: int = 100) -> bool:
    """Count the coming work; whether loops over that many cells should be compiled."""
    global _work
    _work += cells * rounds
    return _work > COMPILE_AFTER or (cells >= 300 and ("numba" in sys.modules or bool(_compiled)))


def compiled(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The machine-code form of a self-contained loop over arrays, from the cache where there is one."""
    name = f"{plain.__module__}.{plain.__qualname__}"
    if name not in _compiled:
        import numba

        config: Any = numba.config
        before = config.CACHE_DIR
        config.CACHE_DIR = str(_folder(plain))
        try:
            options: dict[str, Any] = {"no_cfunc_wrapper": True, "_nrt": False}
            njit: Any = numba.njit
            _compiled[name] = njit(cache=True, error_model="numpy", **options)(plain)
        finally:
            config.CACHE_DIR = before
    return _compiled[name]


def _folder(plain: Callable[..., Any]) -> Path:
    return cache_folder("solvers", [inspect.getsource(sys.modules[plain.__module__]).encode()])
