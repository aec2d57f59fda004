"""Compiled kernels for a process that must not wait for them, as the service's.

Kernels stay plain until `want` was called and numba is there. Then every `@entry` is replaced by a function that takes
the compiled form, if there is one for the types of its arguments, and else the plain one, and says what is missing. A
thread loads that from the cache. What is not there is compiled by a child process (`python -m cotenant.core.jit_later`)
and then loaded. In this process nothing is ever compiled; both forms give the same numbers.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotenant.core import jit

Types = tuple[Any, ...]
Wish = tuple[str, str, Types]  # module and name of a kernel, the types of its arguments
_WISHES = "wanted.pickle"  # in the cache: what processes before this one have asked for


class _Missing(Exception):
    """There is no compiled form for these arguments."""


def _never(*_: Any) -> None:
    """In place of numba's compiler, which is asked for what the cache does not hold."""
    raise _Missing


class _Entry:
    """One kernel that Python calls."""

    def __init__(self, plain: Callable[..., Any], compiled: Any, ask: Callable[[_Entry, Types], None]) -> None:
        self.plain, self.compiled, self._ask = plain, compiled, ask
        self.name = (plain.__module__, plain.__name__)
        self.asleep = False  # while what is missing is on its way
        self._refused: set[Types] = set()
        compiled._compile_for_args = self._miss
        compiled._compiler.compile = _never

    def _miss(self, *args: Any) -> None:
        """Called by numba where there is no compiled form yet."""
        import numba
        from numba.core.dispatcher import OmittedArg

        kinds: Any = numba.types
        types = tuple(
            kinds.Omitted(arg.value) if isinstance(arg, OmittedArg) else self.compiled.typeof_pyval(arg) for arg in args
        )
        if types not in self._refused:
            self.asleep = True
            self._ask(self, types)
        raise _Missing

    def load(self, types: Types) -> bool:
        """Take the compiled form from the cache, if it is there."""
        try:
            self.compiled.compile(types)
        except _Missing:
            return False
        return True

    def refuse(self, types: Types) -> None:
        """It cannot be had: do not ask again."""
        self._refused.add(types)

    def stand_in(self) -> Callable[..., Any]:
        """What is called in place of the kernel."""
        plain, compiled = self.plain, self.compiled

        def call(*args: Any, **named: Any) -> Any:
            if not self.asleep:
                try:
                    return compiled(*args, **named)
                except _Missing:
                    pass
            return plain(*args, **named)

        return call


class Later:
    """One per process: `LATER`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._asked: queue.SimpleQueue[tuple[_Entry, Types]] = queue.SimpleQueue()
        self._entries: list[_Entry] = []
        self._prepared = threading.Event()
        self._switched = False
        self.loaded = 0  # compiled forms that are in use

    def want(self) -> None:
        """Begin to get compiled kernels, in the background."""
        if self._thread is None and not jit.enabled():
            self._thread = threading.Thread(target=self._work, name="kernels", daemon=True)
            self._thread.start()

    def switch(self) -> None:
        """Take them if they are there. To be called between two decisions."""
        if not self._switched and self._prepared.is_set():
            self._switched = True
            jit.replace({id(entry.plain): entry.stand_in() for entry in self._entries})

    @property
    def ready(self) -> bool:
        """Whether all that was called since the switch is compiled."""
        return self._switched and self.loaded > 0 and not any(entry.asleep for entry in self._entries)

    def _work(self) -> None:
        try:
            folder = jit.cache_folder_of_kernels()
            compiled = jit.compiled_kernels(folder)
            self._entries = [_Entry(one, compiled[id(one)], self._ask) for one in jit.entries()]
            self._recall(folder)
            self._prepared.set()
            while True:
                self._get(folder)
        except Exception as error:  # plain kernels do the same, only slower
            sys.stderr.write(f"cotenant: kernels stay plain: {type(error).__name__}: {error}\n")

    def _ask(self, entry: _Entry, types: Types) -> None:
        self._asked.put((entry, types))

    def _recall(self, folder: Path) -> None:
        by_name = {entry.name: entry for entry in self._entries}
        for module, name, types in _read_wishes(folder):
            if (module, name) in by_name:
                self.loaded += by_name[module, name].load(types)

    def _get(self, folder: Path) -> None:
        """Wait until something is missing, then load it, compiled by a child process if need be."""
        asked = [self._asked.get()]
        while not self._asked.empty():
            asked.append(self._asked.get())
        lacking = [one for one in asked if not one[0].load(one[1])]
        if lacking:
            wishes = [(*entry.name, types) for entry, types in lacking]
            modules = sorted({plain.__module__ for plain in jit.kernels()})
            done = subprocess.run(
                [sys.executable, "-m", "cotenant.core.jit_later"], input=pickle.dumps((str(folder), modules, wishes)),
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.stderr.write(f"cotenant: some kernels stay plain: {_last_line(done.stderr)}\n")
        had: list[Wish] = []
        for entry, types in asked:
            if (entry, types) in lacking and not entry.load(types):
                entry.refuse(types)
            else:
                had.append((*entry.name, types))
            entry.asleep = False
        self.loaded += len(had)
        _remember(folder, had)


LATER = Later()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the compiler gave no reason"


def _read_wishes(folder: Path) -> list[Wish]:
    try:
        found: list[Wish] = pickle.loads((folder / _WISHES).read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError):
        return []
    return found


def _remember(folder: Path, wishes: Sequence[Wish]) -> None:
    """For the next process, which then need not ask one by one."""
    known = dict.fromkeys([*_read_wishes(folder), *wishes])
    new = folder / f"{_WISHES}.{os.getpid()}"
    new.write_bytes(pickle.dumps(list(known)))
    new.replace(folder / _WISHES)


def compile_wishes() -> None:
    """The child: compile what standard input asks for into the cache."""
    os.nice(10)
    parent = os.getppid()
    folder, modules, asked = pickle.load(sys.stdin.buffer)
    for module in modules:
        importlib.import_module(module)
    jit.enable(Path(folder))
    failed = ""
    for module, name, types in asked:
        try:
            getattr(importlib.import_module(module), name).compile(types)
        except Exception as error:  # the others can do without it
            failed = f"{name}: {type(error).__name__}: {' '.join(str(error).split())}"
        if os.getppid() != parent:
            return  # nobody waits for the rest
    if failed:
        sys.exit(failed)


if __name__ == "__main__":
    compile_wishes()
