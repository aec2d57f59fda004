"""The one connection that writes: claims the journal, upgrades it, outlasts a lost server, knows when to stop.

A server may go away for any time: until it is back the session is `away`, and whoever wants to write is refused. A
journal that cannot know what it wrote must not go on guessing: after a failed fsync, or when another process has taken
over, the session is broken for good and a restart replays the truth.
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
    JournalAway,
    JournalBusy,
    JournalCorrupt,
    JournalError,
    JournalFull,
    JournalReadOnly,
    JournalUnavailable,
)
from cotenant.journal.migrations import VERSION
from cotenant.journal.schema import position, read_meta, upgrade, write_meta

RECONNECT_S = 3.0  # a restart of the server is waited for: who writes meanwhile hears nothing of it

T = TypeVar("T")


class DatabaseSession:
    """Not thread-safe: opened by one thread, then used by the writer's thread alone."""

    def __init__(self, dialect: Dialect, engine: Engine) -> None:
        self.broken: JournalError | None = None
        self.deposed = False
        self.away: JournalAway | None = None
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
        self._must_be_there()
        try:
            with self._transaction() as connection:
                return work(connection)
        except DBAPIError as error:
            if self._dialect.cause(error) is not FailureCause.LOST:
                raise
        self._reconnect()
        with self._transaction() as connection:
            return again(connection)

    def _must_be_there(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.away is not None:
            raise self.away

    def come_back(self) -> bool:
        """Try once more to reach a server that is away; whether it is back."""
        with suppress(JournalAway):
            self._reconnect(wait_s=0.0)
        return self.away is None

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
            case FailureCause.READ_ONLY:
                return JournalReadOnly(
                    f"journal {name} cannot be written though its disk is not full: is the file or its file system"
                    f" read-only? ({detail})"
                )
            case FailureCause.BUSY:
                return JournalBusy(f"another program keeps journal {name} locked: close it ({detail})")
            case FailureCause.CORRUPT:
                self.broken = JournalCorrupt(f"journal {name} is damaged: `cotenant restore` a backup ({detail})")
            case FailureCause.LOST:  # twice in a row
                self.away = self._gone(detail)
                return self.away
            case FailureCause.BROKEN:
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

    def _reconnect(self, wait_s: float = RECONNECT_S) -> None:
        """Claim the journal again: `JournalAway` if the server stays away, the end if somebody else has had it."""
        self.close()
        deadline, pause = time.monotonic() + wait_s, threading.Event()
        while True:
            try:
                self._connection = self._engine.connect()
                try:
                    self._dialect.claim(self._connection)
                except JournalBusy:
                    if self._stored_epoch() == self._epoch:
                        raise
                epoch = self._stored_epoch()
                break
            except (
                DBAPIError,
                JournalBusy,
                JournalUnavailable,
            ) as error:  # busy: the server may not yet have noticed our end
                self.close()
                if time.monotonic() >= deadline:
                    self.away = self._gone(_first_line(error) if isinstance(error, DBAPIError) else str(error))
                    raise self.away from None
            pause.wait(0.02)
        if epoch != self._epoch:
            self.close()
            self.deposed = True
            self._stop(f"another process has taken over journal {self._dialect.name}: stop this service")
        self.away = None

    def _stored_epoch(self) -> int:
        with self._transaction() as connection:
            return read_meta(connection, "epoch")

    def _gone(self, reason: str) -> JournalAway:
        return JournalAway(
            f"journal {self._dialect.name} does not answer: running jobs go on, and so does the rest once it is back"
            f" ({reason})"
        )

    def _stop(self, text: str) -> None:
        self.broken, self.away = JournalError(text), None
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
