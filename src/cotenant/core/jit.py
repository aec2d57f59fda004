"""Hot loops that run as plain Python when the work is small and compiled when it is large.

Loading numba costs every process about 1.7 CPU seconds, more than a small simulation takes. So kernels
are ordinary functions marked with `@kernel`; `enable()` compiles all of them at once, for the rest of
the process, by replacing each one in every module that holds it. Both forms give the same numbers.

numba's own file cache does not notice when a *called* kernel changed, so the cache lives in a folder named
after a digest of every kernel's source and of the files whose constants kernels use; the folder is kept in the user's
cache (or `COTENANT_CACHE`) and serves every installation of the same version.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cotenant.core.cache import cache_folder

_CONSTANTS = re.compile(r"^from cotenant\.([\w.]+) import (?:\(\s*)?[A-Z][A-Z0-9_]+\b", re.MULTILINE)
_F = TypeVar("_F", bound=Callable[..., Any])
_kernels: list[Callable[..., Any]] = []
_entries: set[int] = set()
_in_place: dict[int, Any] = {}  # what stands where a kernel stood, by `id` of the plain one
_enabled = False


def kernel(function: _F) -> _F:
    """Mark a function as part of the hot loops; its callees must be kernels too."""
    _kernels.append(function)
    return function


def entry(function: _F) -> _F:
    """A kernel that Python calls; the others are reached only from kernels once compiled."""
    _entries.add(id(function))
    return kernel(function)


def enabled() -> bool:
    """Whether kernels are compiled in this process."""
    return _enabled


def kernels() -> list[Callable[..., Any]]:
    """All, in their plain form."""
    return list(_kernels)


def entries() -> list[Callable[..., Any]]:
    """Those that Python calls, in their plain form."""
    return [plain for plain in _kernels if id(plain) in _entries]


def enable(folder: Path | None = None) -> None:
    """Compile every kernel (lazily, at its first call; from the cache where there is one)."""
    global _enabled
    if not _enabled:
        replace(compiled_kernels(folder or cache_folder_of_kernels()))
        _enabled = True


def compiled_kernels(folder: Path) -> dict[int, Any]:
    """The compiled form of every kernel, by `id` of the plain one, with its cache in this folder."""
    import numba

    from cotenant.core.kernel_cache import LOCATORS

    # Kernels only touch arrays that Python owns, so they need no reference counting (`_nrt`), which would
    # otherwise cost two thirds of the time; inner kernels need no wrapper for Python either.
    config: Any = numba.config
    njit: Any = numba.njit
    config.CACHE_DIR = str(folder)
    config.CACHE_LOCATOR_CLASSES = LOCATORS
    compiled = {}
    for plain in _kernels:
        inner = id(plain) not in _entries
        options = {"no_cpython_wrapper": inner, "no_cfunc_wrapper": True, "_nrt": False}
        compiled[id(plain)] = njit(cache=True, error_model="numpy", **options)(plain)
    return compiled


def replace(others: Mapping[int, Any]) -> None:
    """Put others in the place of kernels, by `id` of the plain one, in every module that holds them."""
    now = {id(_in_place.get(key, plain)): key for plain in _kernels if (key := id(plain)) in others}
    for name, module in list(sys.modules.items()):
        if not name.startswith("cotenant.") or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in now:
                setattr(module, attribute, others[now[id(value)]])
    _in_place.update(others)


def cache_folder_of_kernels() -> Path:
    """A writable folder that changes whenever any kernel changes."""
    files = {inspect.getsourcefile(plain) or "" for plain in _kernels}
    return cache_folder("kernels", (Path(name).read_bytes() for name in sorted(files | _files_with_kernels())))


@cache
def _files_with_kernels() -> frozenset[str]:
    """All of this package, imported or not: so that a service and a simulation share one cache."""
    package = Path(__file__).parents[1]
    texts = {file: file.read_text() for file in package.rglob("*.py")}
    kernels = {file: text for file, text in texts.items() if "core.jit import" in text}
    imported = {found for text in kernels.values() for found in _CONSTANTS.findall(text)}
    constants = {package.joinpath(*name.split(".")).with_suffix(".py") for name in imported}
    return frozenset(str(file) for file in texts.keys() & (kernels.keys() | constants)) | {__file__}


def is_cached() -> bool:
    """Whether compiled kernels of this very version lie in the cache, so that enabling is quick."""
    return any(cache_folder_of_kernels().rglob("*.nbi"))
