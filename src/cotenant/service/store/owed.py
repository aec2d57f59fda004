"""Cancellations that could not be journaled because the disk is full, but are carried out all the same.

The job that fills the disk must be stoppable. Which jobs are to end is kept in a small file whose space was taken
beforehand: overwriting it needs none. It is journaled as soon as that is possible, before anything else is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

_BYTES = 16 << 10


class OwedStops:
    """When each job was asked to end (Unix seconds). Without a `path`, or where it cannot be made, none is taken."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._jobs = path, dict[str, float]()
        if path is None:
            return
        try:
            self._jobs = _read(path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, _BYTES)
            finally:
                os.close(handle)
        except OSError:
            self._path = None

    @property
    def jobs(self) -> Mapping[str, float]:
        """Those that are to end."""
        return self._jobs

    def add(self, job: str, now_s: float) -> bool:
        """Note a job; False when that cannot be done."""
        return job in self._jobs or self._write({**self._jobs, job: now_s})

    def clear(self) -> None:
        """All of them are in the journal."""
        if self._jobs:
            self._write({})
            self._jobs = {}

    def _write(self, jobs: dict[str, float]) -> bool:
        data = json.dumps(jobs).encode()
        if self._path is None or len(data) > _BYTES:
            return False
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(handle, data.ljust(_BYTES), 0)
                os.fdatasync(handle)
            finally:
                os.close(handle)
        except OSError:
            return False
        self._jobs = jobs
        return True


def _read(path: Path) -> dict[str, float]:
    try:
        found = json.loads(path.read_bytes().strip(b"\0 ") or b"{}")
    except (FileNotFoundError, ValueError):
        return {}
    return {str(job): float(at_s) for job, at_s in found.items()} if isinstance(found, dict) else {}
