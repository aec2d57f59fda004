"""SQLite: one file and no server, the default.

In WAL mode with `synchronous=FULL` a commit appends the changed pages to the `-wal` file and fsyncs it before
it returns; with `NORMAL`, the usual companion of WAL, a power cut could take acknowledged commits. Readers
never wait for the writer, nor the writer for them.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from cotenant.journal.dialect import Dialect, FailureCause
from cotenant.journal.errors import JournalCorrupt, JournalUnavailable
from cotenant.journal.fence import FileFence

BUSY_TIMEOUT_MS = 5_000
WAL_LIMIT_BYTES = 64 << 20

_CAUSES = {
    sqlite3.SQLITE_FULL: FailureCause.FULL,
    sqlite3.SQLITE_IOERR_WRITE: FailureCause.FULL,  # quota or file size limit; nothing was committed
    sqlite3.SQLITE_IOERR_SHMSIZE: FailureCause.FULL,
    sqlite3.SQLITE_BUSY: FailureCause.BUSY,
    sqlite3.SQLITE_LOCKED: FailureCause.BUSY,
    sqlite3.SQLITE_IOERR: FailureCause.BROKEN,  # a failed fsync above all: the kernel may have dropped the pages
    sqlite3.SQLITE_CORRUPT: FailureCause.CORRUPT,
    sqlite3.SQLITE_NOTADB: FailureCause.CORRUPT,
}


class Sqlite(Dialect):
    """A journal in the file `path`, readable by its owner only: job environments may hold secrets."""

    types: ClassVar[dict[str, str]] = {"seq": "INTEGER", "real": "REAL", "blob": "BLOB"}

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = f"'{path}'"
        self._fence = FileFence(path.with_name(path.name + ".lock"))

    def hold(self) -> None:
        """Take the lock file beside the journal, and create the journal with mode 0600."""
        try:
            self._fence.acquire(self.name)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self._fence.release()
            raise JournalUnavailable(
                f"cannot open journal {self.name}: {error.strerror}: choose a file in a folder you can write to"
            ) from None

    def release(self) -> None:
        """Give the lock file back."""
        self._fence.release()

    def engine(self) -> Engine:
        """Connections without the driver's own transactions: `begin` says when one starts."""
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(self.path)), pool_size=4, max_overflow=28)
        event.listen(engine, "connect", _prepare)
        return engine

    def claim(self, connection: Connection) -> None:
        """Switch the file to WAL; refuse a database of another program."""
        tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
        if tables and "cotenant_meta" not in tables:
            raise JournalCorrupt(f"{self.name} is a database of another program: choose another file")
        mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
        connection.commit()
        if mode != "wal":
            raise JournalUnavailable(f"{self.name} lies where SQLite cannot use a WAL: choose a local disk")

    def begin(self, connection: Connection) -> None:
        """Take the write lock at once, so that no later statement can find it taken."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def cause(self, error: DBAPIError) -> FailureCause:
        """Look up the extended result code, then its family (the low byte)."""
        code = getattr(error.orig, "sqlite_errorcode", 0)
        return _CAUSES.get(code) or _CAUSES.get(code & 0xFF, FailureCause.ENTRY)


def _prepare(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
