"""Compiled kernels for a process that must not wait for them, as the service's.

Kernels stay plain until `want` was called and machine code is there: a thread takes it from the cache, or has it made
by a child process (`python -m cotenant.core.jit_later`). In this process nothing is ever compiled; both forms give the
same numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from cotenant.core import jit


class Later:
    """One per process: `LATER`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._code: bytes | None = None

    def want(self) -> None:
        """Begin to get compiled kernels, in the background."""
        if self._thread is None and not jit.enabled():
            self._thread = threading.Thread(target=self._get, name="kernels", daemon=True)
            self._thread.start()

    def switch(self) -> None:
        """Take them if they are there. To be called between two decisions."""
        if self._code is not None and not jit.enabled():
            jit.take(self._code)

    @property
    def ready(self) -> bool:
        """Whether kernels are compiled by now."""
        return jit.enabled()

    def _get(self) -> None:
        try:
            folder = jit.cache_folder_of_kernels()
            self._code = jit.code_in(folder) or _have_made(folder)
        except Exception as error:  # plain kernels do the same, only slower
            sys.stderr.write(f"cotenant: kernels stay plain: {type(error).__name__}: {error}\n")


LATER = Later()


def _have_made(folder: Path) -> bytes | None:
    """By a child process, which does not hold this one up."""
    done = subprocess.run(
        [sys.executable, "-m", "cotenant.core.jit_later", str(folder)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["the compiler gave no reason"]
        raise RuntimeError(lines[-1])
    return jit.code_in(folder)


if __name__ == "__main__":
    os.nice(10)
    jit.make(Path(sys.argv[1]))
