"""What tests of isolation need of a machine: a folder that tenants can reach, and a Python that they can run."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody can pass through; temporary folders of tests are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-test-", dir="/var/tmp"))
    os.chmod(folder, 0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def reachable_python() -> str:
    """An interpreter that other users can run: perhaps not the one that runs us."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        path = Path(name)
        if path.exists() and all(_passes(one) for one in (*path.parents, *path.resolve().parents)):
            return name
    raise AssertionError("no Python here that other users can run")


def _passes(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXOTH)
