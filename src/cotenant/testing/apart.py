"""What it takes to try jobs of other users: a folder that they can reach, and a Python that they can run."""

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
    """A folder that everybody can pass through: temporary ones are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-apart-", dir="/var/tmp"))
    os.chmod(folder, 0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def reachable_python() -> str:
    """An interpreter that other users can run: perhaps not the one that runs us."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        path = Path(name)
        around = (*path.parents, *path.resolve().parents) if path.exists() else ()
        if around and all(one.stat().st_mode & stat.S_IXOTH for one in around):
            return name
    raise RuntimeError("there is no Python here that other users can run: install one in /usr/bin")
