"""Hot loops that run as plain Python when the work is small and as machine code when it is large.

Kernels are ordinary, fully annotated functions over numbers, arrays and named tuples of them, marked with `@kernel`;
those that Python calls are marked with `@entry`. `enable()` replaces every entry, for the rest of the process, in every
module that holds it. Both forms give the same numbers. The machine code (`cotenant.core.native`) is made once for a
version and a processor, all kernels together, and kept in the user's cache (or `COTENANT_CACHE`), in a folder named
after a digest of their sources and of the files whose constants they use.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cotenant.core.cache import cache_folder

_CONSTANTS = re.compile(r"^from cotenant\.([\w.]+) import (?:\(\s*)?[A-Z][A-Z0-9_]+\b", re.MULTILINE)
_F = TypeVar("_F", bound=Callable[..., Any])
_kernels: list[Callable[..., Any]] = []
_entries: set[int] = set()
_in_place: dict[int, Any] = {}  # what stands where a kernel stood, by `id` of the plain one
_library: Any = None


def kernel(function: _F) -> _F:
    """Mark a function as part of the hot loops; its callees must be kernels too."""
    _kernels.append(function)
    return function


def entry(function: _F) -> _F:
    """A kernel that Python calls; the others are reached only from kernels once compiled."""
    _entries.add(id(function))
    kernel(function)
    return _library.function(function) if enabled() and function in _library else function


def enabled() -> bool:
    """Whether kernels are compiled in this process."""
    return _library is not None


def kernels() -> list[Callable[..., Any]]:
    """All, in their plain form."""
    return list(_kernels)


def entries() -> list[Callable[..., Any]]:
    """Those that Python calls, in their plain form."""
    return [plain for plain in _kernels if id(plain) in _entries]


def enable(folder: Path | None = None) -> None:
    """Run machine code from now on: from the cache, or made now, which takes a while."""
    if not enabled():
        take(code_in(folder or cache_folder_of_kernels()) or make(folder or cache_folder_of_kernels()))


def take(code: bytes) -> None:
    """Put machine code in the place of every kernel that Python calls."""
    global _library
    from cotenant.core.native.load import Library

    _library = Library(code)
    replace({id(plain): _library.function(plain) for plain in entries() if plain in _library})


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


def make(folder: Path) -> bytes:
    """Machine code for all kernels of this package, left in the cache."""
    from cotenant.core.native.build import build

    for name in _modules_with_kernels():
        importlib.import_module(name)
    return _keep(build(entries()), folder)


def alone(plain: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """The compiled form of one function and of those that it calls, with its own place in the cache."""
    from cotenant.core.native.build import build
    from cotenant.core.native.load import Library

    return Library(code_in(folder) or _keep(build([plain]), folder)).function(plain)


def _keep(code: bytes, folder: Path) -> bytes:
    new = folder / f"{os.getpid()}.new"
    new.write_bytes(code)
    new.replace(_file(folder))
    return code


def code_in(folder: Path) -> bytes | None:
    """What the cache holds for this processor."""
    try:
        return _file(folder).read_bytes()
    except FileNotFoundError:
        return None


def _file(folder: Path) -> Path:
    import llvmlite.binding as llvm

    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()} {llvm.llvm_version_info}"
    return folder / f"{hashlib.sha256(processor.encode()).hexdigest()[:16]}.o"


def is_cached() -> bool:
    """Whether machine code of this very version lies in the cache, so that enabling is quick."""
    return any(cache_folder_of_kernels().glob("*.o"))


def cache_folder_of_kernels() -> Path:
    """A writable folder that changes whenever any kernel changes."""
    return cache_folder("kernels", (file.read_bytes() for file in sorted(_sources())))


def _package() -> Path:
    return Path(__file__).parents[1]


@cache
def _texts() -> dict[Path, str]:
    return {file: file.read_text() for file in _package().rglob("*.py")}


def _with_kernels() -> Iterable[Path]:
    return (file for file, text in _texts().items() if "core.jit import" in text)


@cache
def _sources() -> frozenset[Path]:
    """All of this package that machine code depends on, imported or not."""
    texts, kernels = _texts(), set(_with_kernels())
    imported = {found for file in kernels for found in _CONSTANTS.findall(texts[file])}
    constants = {_package().joinpath(*name.split(".")).with_suffix(".py") for name in imported}
    compiler = {file for file in (Path(__file__).parent / "native").glob("*.py") if file.name != "load.py"}
    return frozenset(texts.keys() & (kernels | constants | compiler))


def _modules_with_kernels() -> list[str]:
    above = _package().parent
    return sorted(".".join(file.relative_to(above).with_suffix("").parts) for file in _with_kernels())
