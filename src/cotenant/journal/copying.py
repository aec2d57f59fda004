"""Copies of a journal: a backup is always a SQLite file, whichever database it was taken from.

It opens like any journal, and `restore` moves it to another one; that is also how a journal changes databases.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cotenant.core.errors import InputError
from cotenant.journal.codec import Stored, sound
from cotenant.journal.dialect import Dialect
from cotenant.journal.errors import JournalError, JournalUnavailable
from cotenant.journal.schema import RECORD, SNAPSHOT, insert_rows, position
from cotenant.journal.session import DatabaseSession
from cotenant.journal.sqlite import Sqlite

PAGE_ROWS = 4096

Snapshot = tuple[int, float, bytes]
"""seq, time of that record, state as stored (compressed)."""


def copy_database(engine: Engine, path: Path) -> None:
    """Write what a SQL journal holds at this moment to a new file, while it is in use."""
    with _new_file(path) as target:
        if engine.dialect.name == "sqlite":
            with engine.connect() as source:  # reads one consistent state, keeps nobody waiting
                source.exec_driver_sql("VACUUM INTO ?", (str(target),))
        else:
            with engine.connect().execution_options(isolation_level="REPEATABLE READ") as source:
                _fill(target, *_contents(source))


def write_file(path: Path, rows: Iterable[Stored], snapshot: tuple[int, bytes, float] | None) -> None:
    """Write records and snapshot to a new file."""
    packed = None if snapshot is None else (snapshot[0], snapshot[2], zlib.compress(snapshot[1], level=1))
    with _new_file(path) as target:
        _fill(target, rows, packed)


def restore(path: str | Path, url: str) -> int:
    """Copy the backup at `path` into the empty journal at `url`; returns the number of its last record."""
    from cotenant.journal.urls import dialect_of

    if not Path(path).is_file():
        raise InputError(f"there is no backup '{path}': give the file that `backup` wrote")
    with _session(Sqlite(Path(path))) as (_, source), _session(dialect_of(url)) as (dialect, target):

        def copy(connection: Connection) -> int:
            if position(connection)[0]:
                raise InputError(f"journal {dialect.name} is not empty: restore into a new one")
            source.perform(lambda held: _write(connection, *_contents(held)), again=_never)
            return position(connection)[0]

        return target.perform(copy, again=_never)


@contextmanager
def _session(dialect: Dialect) -> Iterator[tuple[Dialect, DatabaseSession]]:
    dialect.hold()
    try:
        engine = dialect.engine()
        session = DatabaseSession(dialect, engine)
        try:
            yield dialect, session
        except DBAPIError as error:
            raise session.failure(error) from None
        finally:
            session.close()
            engine.dispose()
    finally:
        dialect.release()


def _never(_connection: Connection) -> NoReturn:
    raise JournalUnavailable("the connection was lost during the copy: try again")


def _fill(path: Path, rows: Iterable[Stored], snapshot: Snapshot | None) -> None:
    with _session(Sqlite(path)) as (_, session):
        session.perform(lambda connection: _write(connection, rows, snapshot), again=_never)


def _contents(source: Connection) -> tuple[Iterator[Stored], Snapshot | None]:
    row = source.execute(sa.select(SNAPSHOT.c.seq, SNAPSHOT.c.time_s, SNAPSHOT.c.state)).first()
    return _rows(source), None if row is None else (row.seq, row.time_s, bytes(row.state))


def _rows(source: Connection) -> Iterator[Stored]:
    after = -1
    query = sa.select(RECORD).order_by(RECORD.c.seq).limit(PAGE_ROWS)
    while page := source.execute(query.where(RECORD.c.seq > after)).all():
        after = page[-1].seq
        yield from map(sound, page)


def _write(target: Connection, rows: Iterable[Stored], snapshot: Snapshot | None) -> None:
    stream = iter(rows)
    while page := list(itertools.islice(stream, PAGE_ROWS)):
        insert_rows(target, page)
    if snapshot is not None:
        seq, time_s, state = snapshot
        target.execute(sa.insert(SNAPSHOT), {"seq": seq, "time_s": time_s, "state": state})


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A private file that gets its name, for good, only when it is complete and on disk."""
    if path.exists():
        raise InputError(f"'{path}' exists already: give the backup a new name")
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield part
        _flush(part)
        part.rename(path)
        _flush(path.parent)
    except OSError as error:
        raise JournalUnavailable(f"cannot write backup '{path}': {error.strerror}") from None
    except DBAPIError as error:
        raise JournalError(f"cannot write backup '{path}': {error.orig}: check the space and try again") from None
    finally:
        for ending in ("", ".lock", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                part.with_name(part.name + ending).unlink()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
