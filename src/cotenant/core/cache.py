"""Where compiled code is kept between runs: a folder of the user's cache, or what `COTENANT_CACHE` names."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path


def cache_folder(kind: str, sources: Iterable[bytes]) -> Path:
    """A writable folder of its own for every change of `sources` and of Python; a temporary one if need be."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source)
    digest.update(sys.version.encode())
    home = os.environ.get("COTENANT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "cotenant"
    )
    folder = Path(home) / f"{kind}-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix=f"cotenant-{kind}-"))
