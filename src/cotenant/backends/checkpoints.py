"""Checkpoints of jobs on a disk that all nodes of a backend see: a folder per job, or the one asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

from cotenant.backends.base import BackendError, check_key


def checkpoint_folder(home: Path, job: str, asked: str = "") -> str:
    """The folder of a job, made if it is not there."""
    folder = Path(asked) if asked else usual_folder(home, job)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(f"job {job}: no folder for checkpoints: {error}") from error
    return str(folder)


def usual_folder(home: Path, job: str) -> Path:
    """Of a job that asked for none."""
    return home / "checkpoints" / check_key(job)


def drop_checkpoint_folder(home: Path, job: str) -> None:
    """Delete the one that was chosen here."""
    shutil.rmtree(usual_folder(home, job), ignore_errors=True)
