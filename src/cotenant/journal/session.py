"""The one connection that writes: claims the journal, upgrades it, survives a lost server, knows when to stop.

A journal that cannot know what it wrote must not go on guessing: after a failed fsync, or when the server
stays away or another process has taken over, the session is broken for good and a restart replays the truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from cotenant.journal.dialect import Dialect, FailureCause
from cotenant.journal.errors import (
    BadEntry,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalUnavailable,
)
from cotenant.journal.migrations import VERSION
from cotenant.journal.schema import position, read_meta, upgrade, write_meta

RECONNECT_S = 10.0

T = TypeVar("T")


class DatabaseSession:
    """Not thread-safe: opened by one thread, then used by the writer's thread alone."""

    def __init__(self, dialect: Dialect, engine: Engine) -> None:
        self.broken: JournalError | None = None
        self.version = VERSION
        self._dialect, self._engine = dialect, engine
        try:
            self._connection = engine.connect()
        except DBAPIError as error:
            raise self._refusal(error) from None
        try:
            dialect.claim(self._connection)
            with self._transaction() as connection:
                upgrade(connection, dialect.types, dialect.name)
                # Whoever opens leaves a number, by which it knows after a lost connection that nobody came between.
                self._epoch = read_meta(connection, "epoch") + 1
                write_meta(connection, "epoch", self._epoch)
                self.last_seq, self.last_time_s = position(connection)
        except DBAPIError as error:
            self._connection.close()
            raise self._refusal(error) from None
        except BaseException:
            self._connection.close()
            raise

    def perform(self, work: Callable[[Connection], T], again: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction; when the connection was lost meanwhile, reconnect and run `again`."""
        if self.broken is not None:
            raise self.broken
        try:
            with self._transaction() as connection:
                return work(connection)
        except DBAPIError as error:
            if self._dialect.cause(error) is not FailureCause.LOST:
                raise
        self._reconnect()
        with self._transaction() as connection:
            return again(connection)

    def is_about_entry(self, error: Exception) -> bool:
        """True when other rows might have passed."""
        return isinstance(error, DBAPIError) and self._dialect.cause(error) is FailureCause.ENTRY

    def failure(self, error: Exception) -> Exception:
        """What to tell the caller; stops the session where going on is not safe."""
        if not isinstance(error, DBAPIError):
            return error
        detail, name = _first_line(error), self._dialect.name
        match self._dialect.cause(error):
            case FailureCause.ENTRY:
                return BadEntry(f"journal {name} refused an entry: {detail}")
            case FailureCause.FULL:
                return JournalFull(f"no space left for journal {name}: free some; nothing was lost ({detail})")
            case FailureCause.BUSY:
                return JournalBusy(f"another program keeps journal {name} locked: close it ({detail})")
            case FailureCause.CORRUPT:
                self.broken = JournalCorrupt(f"journal {name} is damaged: restore the newest backup ({detail})")
            case FailureCause.LOST | FailureCause.BROKEN:
                self.broken = JournalError(f"journal {name} failed: restart the service to recover ({detail})")
        return self.broken

    def close(self) -> None:
        """Let go of the connection, and with it of any lock."""
        with suppress(Exception):
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        connection = self._connection
        try:
            with connection.begin():
                self._dialect.begin(connection)
                yield connection
        except BaseException:
            with suppress(Exception):  # a failed COMMIT can leave the driver inside the transaction
                if not connection.invalidated:
                    connection.connection.rollback()
            raise

    def _reconnect(self) -> None:
        """Claim the journal again, unless somebody else had it meanwhile or the server stays away."""
        self.close()
        deadline, pause = time.monotonic() + RECONNECT_S, threading.Event()
        while True:
            try:
                self._connection = self._engine.connect()
                self._dialect.claim(self._connection)
                break
            except (DBAPIError, JournalBusy) as error:  # busy: the server may not yet have noticed our end
                self.close()
                if time.monotonic() > deadline:
                    reason = _first_line(error) if isinstance(error, DBAPIError) else str(error)
                    self._stop(f"lost journal {self._dialect.name}: restart the service to recover ({reason})")
            pause.wait(0.02)
        with self._transaction() as connection:
            epoch = read_meta(connection, "epoch")
        if epoch != self._epoch:
            self.close()
            self._stop(f"another process has taken over journal {self._dialect.name}: restart this service")

    def _stop(self, text: str) -> None:
        self.broken = JournalError(text)
        raise self.broken

    def _refusal(self, error: DBAPIError) -> Exception:
        """Why the journal cannot be opened."""
        if self._dialect.cause(error) not in (FailureCause.ENTRY, FailureCause.LOST):
            return self.failure(error)
        return JournalUnavailable(
            f"cannot open journal {self._dialect.name}: check the address and the server ({_first_line(error)})"
        )


def _first_line(error: DBAPIError) -> str:
    text = str(error.orig).strip()
    return text.splitlines()[0] if text else type(error.orig).__name__
