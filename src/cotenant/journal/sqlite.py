"""SQLite: one file and no server, the default.

In WAL mode with `synchronous=FULL` a commit appends the changed pages to the `-wal` file and fsyncs it before
it returns; with `NORMAL`, the usual companion of WAL, a power cut could take acknowledged commits. Readers
never wait for the writer, nor the writer for them.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from cotenant.journal.dialect import Dialect, FailureCause
from cotenant.journal.errors import JournalCorrupt, JournalUnavailable
from cotenant.journal.fence import FileFence
from cotenant.journal.mark import HighMark

BUSY_TIMEOUT_MS = 5_000
WAL_LIMIT_BYTES = 64 << 20
LEAST_FREE_BYTES = 128 << 10  # below this much space not even a small append can be counted on
_CHECK_STEPS = 100_000  # instructions of SQLite between two looks at the clock

_CAUSES = {
    sqlite3.SQLITE_FULL: FailureCause.FULL,
    sqlite3.SQLITE_IOERR_WRITE: FailureCause.FULL,  # quota or file size limit; nothing was committed
    sqlite3.SQLITE_IOERR_SHMSIZE: FailureCause.FULL,
    sqlite3.SQLITE_READONLY: FailureCause.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: FailureCause.READ_ONLY,
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
        self._mark = HighMark(path.with_name(path.name + ".mark"))
        self._file: tuple[int, int] | None = None

    def hold(self) -> None:
        """Take the lock file beside the journal, and create the journal with mode 0600."""
        try:
            self._fence.acquire(f"journal {self.name}")
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._file = _identity(self.path)
        except OSError as error:
            self._fence.release()
            raise JournalUnavailable(
                f"cannot open journal {self.name}: {error.strerror}: choose a file in a folder you can write to"
            ) from None

    def release(self) -> None:
        """Give the lock file back."""
        self._mark.close()
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
        cause = _CAUSES.get(code) or _CAUSES.get(code & 0xFF, FailureCause.ENTRY)
        return FailureCause.READ_ONLY if cause is FailureCause.FULL and self._read_only() else cause

    def _read_only(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        return False

    def short_of(self) -> str:
        """Space, where there is next to none, or leave to write."""
        try:
            found = os.statvfs(self.path.parent)
        except OSError as error:
            return f"the folder of journal {self.name} cannot be read: {error.strerror}"
        if found.f_flag & os.ST_RDONLY:
            return f"the file system of journal {self.name} is read-only"
        if found.f_bavail * found.f_frsize < LEAST_FREE_BYTES:
            return f"no space left for journal {self.name}: free some; nothing was lost"
        return ""

    def check(self, connection: Connection, until_s: float) -> None:
        """SQLite's own quick check, which reads every page but those of long texts."""
        driver: Any = connection.connection.dbapi_connection
        driver.set_progress_handler(lambda: time.monotonic() > until_s, _CHECK_STEPS)
        try:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        except DBAPIError as error:
            if getattr(error.orig, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
                raise
            found = "ok"
        finally:
            driver.set_progress_handler(None, 0)
        if found != "ok":
            detail = " ".join(str(found).split())
            raise JournalCorrupt(f"journal {self.name} is damaged: `cotenant restore` a backup ({detail:.120})")

    def passed(self) -> int:
        """From the file beside the journal: even what a lost WAL took with it is known to have been there."""
        return self._mark.read()

    def note(self, seq: int) -> None:
        """To the file beside the journal."""
        self._mark.write(seq)

    def displaced(self) -> str:
        """The file under this name must be the one that was opened."""
        if self._file is None or _identity(self.path) == self._file:
            return ""
        return f"the file of journal {self.name} was moved, deleted or replaced: stop the service and put it back"


def _identity(path: Path) -> tuple[int, int]:
    """Which file this is; none where there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _prepare(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
