"""From the address of a journal to the journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cotenant.core.errors import InputError
from cotenant.journal.base import Journal
from cotenant.journal.memory import MemoryJournal

if TYPE_CHECKING:
    from cotenant.journal.dialect import Dialect

KNOWN = "give a file, sqlite:///file, postgresql://user@host/database or memory:"


def open_journal(url: str, clock: Callable[[], float] = time.time) -> Journal:
    """Open the journal at `url` for writing, creating or upgrading it as needed.

    `url` is a file (`run/journal.db`), `sqlite:///file`, `postgresql://user:password@host/database`, or
    `memory:`. `clock` gives the times of records.
    """
    if url == "memory:":
        return MemoryJournal(clock=clock)
    dialect = dialect_of(url)
    from cotenant.journal.sql import SqlJournal

    return SqlJournal(dialect, clock)


def dialect_of(url: str) -> Dialect:
    """The database that `url` names; `InputError` when it names none."""
    try:
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        from cotenant.journal.sqlite import Sqlite
    except ImportError:
        raise InputError("the journal needs SQLAlchemy, which is not installed: pip install sqlalchemy") from None
    if "://" not in url:
        return Sqlite(_file(url, url))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        scheme = url.partition("://")[0]
        raise InputError(f"bad journal address '{scheme}://...': {KNOWN}") from None
    family = parsed.drivername.partition("+")[0]
    if family == "sqlite":
        return Sqlite(_file(parsed.database or "", url))
    if family in ("postgresql", "postgres"):
        from cotenant.journal.postgresql import Postgresql

        return Postgresql(parsed.set(drivername="postgresql"))
    raise InputError(f"unknown kind of journal '{parsed.drivername}': {KNOWN}")


def _file(path: str, url: str) -> Path:
    if not path or path == ":memory:" or "\0" in path:
        raise InputError(f"journal address '{url!r:.80}' names no file: {KNOWN}")
    if Path(path).is_dir():
        raise InputError(f"journal '{path}' is a folder: give the name of a file in it")
    return Path(path)
