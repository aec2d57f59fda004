"""The journal over a SQL database (SQLAlchemy Core): what is stored, and how it is read.

Writing goes through one thread (`writer`), which flushes every commit to disk before it answers; see `sqlite`
and `postgresql` for how each database is made to do that. Readers use connections of their own and short
queries, page by page, so that neither a slow reader nor a long history holds the writer up.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from cotenant.journal.base import Entry, Journal, Record, check_snapshot
from cotenant.journal.codec import sound, to_record, to_rows
from cotenant.journal.copying import copy_database
from cotenant.journal.dialect import Dialect, FailureCause
from cotenant.journal.errors import JournalCorrupt, JournalError
from cotenant.journal.schema import LEADER, RECORD, SNAPSHOT, write_meta
from cotenant.journal.session import DatabaseSession
from cotenant.journal.writer import Writer

PAGE_ROWS = 1000
PRUNE_ROWS = 5000


class SqlJournal(Journal):
    """See `Journal`. The state of a snapshot is kept compressed, and checked when it is loaded."""

    def __init__(self, dialect: Dialect, clock: Callable[[], float] = time.time) -> None:
        self._dialect = dialect
        dialect.hold()
        try:
            self._engine = dialect.engine()
            try:
                self._session = DatabaseSession(dialect, self._engine)
                _check_mark(dialect, self._session.last_seq)
            except BaseException:
                self._engine.dispose()
                raise
        except BaseException:
            dialect.release()
            raise
        dialect.note(self._session.last_seq)
        self._writer = Writer(self._session, clock, dialect.note, dialect.far)

    @property
    def schema_version(self) -> int:
        """See `Journal`."""
        return self._session.version

    @property
    def last_seq(self) -> int:
        """See `Journal`."""
        return self._writer.last_seq

    @property
    def last_s(self) -> float:
        """When the last durable record was written, Unix seconds."""
        return self._writer.last_time_s

    @property
    def trouble(self) -> str:
        """See `Journal`."""
        broken = str(self._session.broken or "")
        return broken or self._dialect.displaced() or self._writer.trouble or self._dialect.short_of()

    @property
    def away(self) -> bool:
        """See `Journal`."""
        return self._session.away is not None

    @property
    def deposed(self) -> bool:
        """See `Journal`."""
        return self._session.deposed

    def introduce(self, url: str) -> None:
        """See `Journal`."""
        self._writer.call(partial(write_meta, name=LEADER, value=url))

    def verify(self, budget_s: float = math.inf) -> bool:
        """See `Journal`. The database's own check first, then the checksum of every record."""
        until_s = time.monotonic() + budget_s
        with self._reading() as connection:
            self._dialect.check(connection, until_s)
        before = self._writer.last_seq + 1
        query = sa.select(RECORD).order_by(RECORD.c.seq.desc()).limit(PAGE_ROWS)
        while time.monotonic() < until_s:
            with self._reading() as connection:
                page = connection.execute(query.where(RECORD.c.seq < before)).all()
            for row in page:
                sound(row)
            if len(page) < PAGE_ROWS:
                return True
            before = page[-1].seq
        return False

    def submit(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """See `Journal`."""
        rows = to_rows(entries)
        if displaced := self._dialect.displaced():
            raise JournalError(displaced)
        return self._writer.append(rows)

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """See `Journal`."""
        return self._pages(sa.select(RECORD), after, limit)

    def read_job(self, job: str) -> Iterator[Record]:
        """See `Journal`."""
        return self._pages(sa.select(RECORD).where(RECORD.c.job == job), 0, None)

    def _pages(self, query: sa.Select[Any], after: int, limit: int | None) -> Iterator[Record]:
        inside = RECORD.c.seq > sa.bindparam("after"), RECORD.c.seq <= self._writer.last_seq
        query = query.where(*inside).order_by(RECORD.c.seq)
        query = query.limit(sa.bindparam("count", type_=sa.Integer))
        while limit is None or limit > 0:
            count = PAGE_ROWS if limit is None else min(limit, PAGE_ROWS)
            with self._reading() as connection:
                rows = connection.execute(query, {"after": after, "count": count}).all()
            yield from map(to_record, map(sound, rows))
            if len(rows) < count:
                return
            after, limit = rows[-1].seq, None if limit is None else limit - count

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._writer.check_usable()
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            damaged = self._dialect.cause(error) is FailureCause.CORRUPT
            kind, fix = (JournalCorrupt, "restore a backup") if damaged else (JournalError, "try again")
            raise kind(f"cannot read journal {self._dialect.name}: {error.orig}: {fix}") from None

    def save_snapshot(self, seq: int, state: bytes) -> None:
        """See `Journal`."""
        packed = zlib.compress(state, level=1)

        def replace(connection: Connection) -> None:
            newest = connection.execute(sa.select(sa.func.max(SNAPSHOT.c.seq))).scalar() or 0
            check_snapshot(seq, newest, self._writer.last_seq)
            connection.execute(sa.delete(SNAPSHOT))
            row = {"seq": seq, "time_s": self._writer.last_time_s, "state": packed}
            connection.execute(sa.insert(SNAPSHOT), row)

        self._writer.call(replace)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """See `Journal`."""
        with self._reading() as connection:
            row = connection.execute(sa.select(SNAPSHOT.c.seq, SNAPSHOT.c.state)).first()
        try:
            return None if row is None else (row.seq, zlib.decompress(row.state))
        except zlib.error as error:
            raise JournalCorrupt(
                f"the snapshot in journal {self._dialect.name} is damaged: `cotenant restore` a backup ({error})"
            ) from None

    def prune(self, before_s: float, keep: Collection[str] = ()) -> int:
        """See `Journal`. Goes page by page between batches; the space is used again, not given back."""
        with self._reading() as connection:
            covered = connection.execute(sa.select(sa.func.max(SNAPSHOT.c.seq))).scalar() or 0
        after = deleted = 0
        while after < covered:
            after, count = self._prune_page(after, covered, before_s, frozenset(keep))
            deleted += count
        return deleted

    def _prune_page(self, after: int, covered: int, before_s: float, keep: frozenset[str]) -> tuple[int, int]:
        """Prune the next page; returns where the one after it starts (`covered` when done) and the count."""
        columns = RECORD.c.seq, RECORD.c.time_s, RECORD.c.job
        inside = RECORD.c.seq.between(after + 1, covered)
        query = sa.select(*columns).where(inside).order_by(RECORD.c.seq).limit(PRUNE_ROWS)
        with self._reading() as connection:
            page = connection.execute(query).all()
        old = [row for row in page if row.time_s < before_s]  # times never go back: these come first
        last = old[-1].seq if len(old) == PRUNE_ROWS else covered
        if not old:
            return last, 0
        spared = sorted({row.job for row in old} & keep)
        doomed = sa.delete(RECORD).where(RECORD.c.seq.between(after + 1, old[-1].seq), RECORD.c.job.not_in(spared))
        self._writer.call(lambda connection: connection.execute(doomed))
        return last, sum(row.job not in keep for row in old)

    def backup(self, path: str | Path) -> None:
        """See `Journal`."""
        self._writer.check_usable()
        copy_database(self._engine, Path(path))

    def close(self) -> None:
        """See `Journal`."""
        if self._writer.close():
            self._engine.dispose()
            self._dialect.release()


def _check_mark(dialect: Dialect, last_seq: int) -> None:
    if (passed := dialect.passed()) > last_seq:
        raise JournalCorrupt(
            f"journal {dialect.name} ends at record {last_seq}, but it has held {passed}: an older copy, emptied, or"
            " without its -wal file; put the right files back or `cotenant restore` a backup"
            " (to go on with what is left, delete the file of the same name that ends in .mark)"
        )
