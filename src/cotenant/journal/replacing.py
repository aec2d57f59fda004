"""Putting a backup in the place of a journal: checked first, the old one kept aside, nothing half done."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import InputError
from cotenant.journal.copying import restore
from cotenant.journal.errors import JournalCorrupt
from cotenant.journal.sql import SqlJournal
from cotenant.journal.sqlite import Sqlite
from cotenant.journal.urls import dialect_of

_PARTS = ("", "-wal", "-shm", ".mark")


@dataclass(frozen=True, slots=True)
class RestoredJournal:
    """Where the journal ends now (record and Unix time), and under which name the old one is kept."""

    last_seq: int
    last_s: float
    aside: str = ""


def replace_journal(backup: Path, url: str, force: bool = False) -> RestoredJournal:
    """Copy `backup` to the journal at `url`, which nobody may be using; `force` moves one that is there aside."""
    if not backup.is_file():
        raise InputError(f"there is no backup '{backup}': give the file that `backup` wrote")
    try:
        return _replace(backup, url, force)
    finally:  # what opening it left beside it
        for ending in (".lock", ".mark"):
            with suppress(OSError):
                backup.with_name(backup.name + ending).unlink()


def _replace(backup: Path, url: str, force: bool) -> RestoredJournal:
    last_s = _checked(backup)
    dialect = dialect_of(url)
    if not isinstance(dialect, Sqlite):
        return RestoredJournal(restore(backup, url), last_s)
    if backup.resolve() == dialect.path.resolve():
        raise InputError(f"'{backup}' is the journal itself: give a backup")
    dialect.hold()
    try:
        aside = _clear(dialect.path, force)
    finally:
        dialect.release()
    return RestoredJournal(restore(backup, url), last_s, aside)


def _checked(backup: Path) -> float:
    """The time of its last record, after all of it was looked through."""
    try:
        with SqlJournal(Sqlite(backup)) as journal:
            journal.verify()
            return journal.last_s
    except JournalCorrupt as error:
        raise JournalCorrupt(f"backup '{backup}' cannot be used: {error}") from None


def _clear(path: Path, force: bool) -> str:
    """Make room for another journal; the new name of the one that was there, if any."""
    if path.stat().st_size == 0 and not path.with_name(path.name + ".mark").exists():
        return ""
    if not force:
        raise InputError(f"there is a journal '{path}' already: --force keeps it aside, under another name")
    aside = f"{path.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"
    for part in _PARTS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + part).rename(path.with_name(aside + part))
    return str(path.with_name(aside))
