"""Compile a solver's hot loop when there is enough work for it.

Small problems use NumPy; a loop is compiled once the work asked for in this process would have paid for that. Both
forms add in the same order and give the same bits, so the switch cannot change a result. The engine's kernels
(`cotenant.core.jit`) are compiled all together; these stand alone, so that solving does not wait for those.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from cotenant.core import jit
from cotenant.core.cache import cache_folder

COMPILE_AFTER = 10_000_000
"""Cells (jobs x types) evaluated in NumPy after which the rest of the process compiles."""

_work = 0


def worth_compiling(cells: int, rounds: int = 100) -> bool:
    """Count the coming work; whether loops over that many cells should be compiled."""
    global _work
    _work += cells * rounds
    return _work > COMPILE_AFTER or (cells >= 300 and (jit.enabled() or compiled.cache_info().currsize > 0))


@cache
def compiled(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The machine-code form of a self-contained loop over arrays, from the cache where there is one."""
    source = inspect.getsource(sys.modules[plain.__module__]).encode()
    return jit.alone(plain, cache_folder("solvers", [source]))
