"""The folder of a service: state, token, logs, checkpoints. It is ours alone, and one service has it at a time.

A folder that was there before keeps its mode, for it may be somebody else's business (as root, `--home /tmp` must not
close /tmp to everybody); one in which others could put or replace files is refused instead.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cotenant.core.errors import InputError
from cotenant.journal.fence import FileFence

_OURS = ("journal.db", "runtime.key", "token", "jobs")  # what a service leaves in its home


def prepare(home: Path) -> Path:
    """Make the folder, or check the one that is there; its absolute path."""
    home = home.absolute()
    try:
        if not home.exists():
            home.mkdir(parents=True, mode=0o700)
        if not home.is_dir():
            raise InputError(f"home '{home}' is not a folder: choose another --home")
        found, names = home.stat(), os.listdir(home)
        if found.st_uid != os.geteuid():
            raise InputError(f"home '{home}' belongs to another user ({found.st_uid}): choose another --home")
        if not names:
            home.chmod(0o700)
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            fix = f"chmod go-w {home}" if set(names) & set(_OURS) else "choose another --home, or an empty folder"
            raise InputError(f"home '{home}' can be written by others (mode {found.st_mode & 0o7777:04o}): {fix}")
        elif not os.access(home, os.W_OK | os.X_OK):
            raise InputError(f"home '{home}' cannot be written: choose another --home")
        for name in ("logs", "backups"):
            (home / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(f"home '{home}' cannot be used: {error.strerror}: choose another --home") from None
    return home


def hold(home: Path) -> FileFence:
    """Become the one service of this home, whatever its journal; `InputError` names who is."""
    fence = FileFence(home / "service.lock")
    try:
        fence.acquire(f"home '{home}'")
    except OSError as error:
        raise InputError(f"home '{home}' cannot be used: {error.strerror}: choose another --home") from None
    return fence
