"""The key behind the tokens of jobs."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_SECRET_BYTES = 32


def load_secret(path: Path) -> bytes:
    """The key behind job tokens; it outlives the service, as do the jobs that hold such tokens."""
    if path.exists() and len(secret := path.read_bytes()) == _SECRET_BYTES:
        return secret
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(_SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return path.read_bytes()
