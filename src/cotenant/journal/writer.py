"""Group commit: one thread writes for all callers, and those that wait together share one flush to disk.

While a commit is under way new appends queue up; the next transaction takes them all (within bounds), so the
more callers there are the fewer flushes each costs, and a lone caller never waits for company. When a batch is
refused because of something in it, its appends are tried one by one and only the culprit's caller hears of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from cotenant.journal.codec import Row, Stored
from cotenant.journal.errors import BadEntry, JournalAway, JournalError
from cotenant.journal.schema import forget_after, insert_rows, position, write_meta
from cotenant.journal.session import DatabaseSession

MAX_BATCH_ROWS = 4096
MAX_BATCH_BYTES = 8 << 20
CHECK_S = 1.0  # between two looks for the server, or for space, while nobody writes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Append:
    rows: list[Row]
    future: Future[list[int]] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    work: Callable[[Connection], Any]
    future: Future[Any] = field(default_factory=Future)


class Writer:
    """The thread that writes, and the queue in front of it.

    `trouble` is why the last append failed, if it did; while there is some, or where the server is far, the thread
    looks by itself whether all is well. `noted` is called with the number of every record that has become durable.
    """

    def __init__(
        self, session: DatabaseSession, clock: Callable[[], float], noted: Callable[[int], None], far: bool
    ) -> None:
        self.last_seq, self.last_time_s = session.last_seq, session.last_time_s
        self.trouble = ""
        self._session, self._clock, self._noted, self._far = session, clock, noted, far
        self._doubtful = False  # an append failed of which the server may have stored something
        self._closed = False
        self._pid = os.getpid()
        self._gate = threading.Lock()
        self._queue: SimpleQueue[_Append | _Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
        self._thread.start()

    def append(self, rows: list[Row]) -> Future[list[int]]:
        """Queue the rows of one atomic append."""
        item = _Append(rows)
        if (away := self._session.away) is not None and not self._closed:
            item.future.set_exception(_own(away))
        else:
            self._put(item)
        return item.future

    def call(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction of its own, between batches. It may run twice: let it be idempotent."""
        item = _Call(work)
        self._put(item)
        result: T = item.future.result()
        return result

    def close(self) -> bool:
        """Write what is queued, then let go of the connection; False when there was nothing to close."""
        if os.getpid() != self._pid:
            return False
        with self._gate:
            first, self._closed = not self._closed, True
            if first:
                self._queue.put(None)
        self._thread.join()
        return first

    def check_usable(self) -> None:
        """Raise when the journal was closed, or opened by a process that this one was forked from."""
        if os.getpid() != self._pid:
            raise JournalError("the journal was opened before a fork: open it in the process that uses it")
        if self._closed:
            raise JournalError("the journal is closed")

    def _put(self, item: _Append | _Call) -> None:
        if os.getpid() == self._pid:
            with self._gate:
                if not self._closed:
                    self._queue.put(item)
                    return
        self.check_usable()

    def _run(self) -> None:
        while True:
            try:
                batch, item = self._gather()
            except Empty:
                self._look()
                continue
            self._serve([append for append in batch if append.future.set_running_or_notify_cancel()])
            if isinstance(item, _Call):
                self._answer(item)
            elif item is None:
                self._session.close()
                return

    def _gather(self) -> tuple[list[_Append], _Append | _Call | None]:
        """The appends that wait, up to the bounds of a batch, and the item at which they end."""
        batch: list[_Append] = []
        rows = size = 0
        item = self._queue.get(timeout=CHECK_S if self._far or self.trouble else None)
        while isinstance(item, _Append):
            batch.append(item)
            rows += len(item.rows)
            size += sum(len(row[2]) for row in item.rows)
            if rows >= MAX_BATCH_ROWS or size >= MAX_BATCH_BYTES:
                break
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
        return batch, item

    def _serve(self, batch: Sequence[_Append]) -> None:
        """Make a batch durable and tell its callers, or tell them why not."""
        if not batch:
            return
        try:
            seq = self._store(batch)
        except Exception as error:
            if self._session.is_about_entry(error) and len(batch) > 1:
                for append in batch:
                    self._serve([append])
                return
            failure = self._failed(error)
            for append in batch:
                append.future.set_exception(_own(failure))
            return
        for append in batch:
            append.future.set_result(list(range(seq, seq + len(append.rows))))
            seq += len(append.rows)

    def _store(self, batch: Sequence[_Append]) -> int:
        """One transaction for the whole batch; returns the number of its first record."""
        first, now_s = self.last_seq + 1, max(self.last_time_s, self._clock())
        rows: list[Stored] = []
        for append in batch:
            rows += [(seq, now_s, *row) for seq, row in enumerate(append.rows, first + len(rows))]
        last = first + len(rows) - 1

        self._settle_doubt()

        def insert(connection: Connection) -> None:
            insert_rows(connection, rows)

        def insert_unless_stored(connection: Connection) -> None:
            if position(connection)[0] != last:
                insert(connection)

        self._session.perform(insert, again=insert_unless_stored)
        self.last_seq, self.last_time_s, self.trouble = last, now_s, ""
        self._noted(last)
        return first

    def _settle_doubt(self) -> None:
        """Take back what the server may have stored of an append whose callers were told that it failed."""
        if self._doubtful:
            forget = partial(forget_after, seq=self.last_seq)
            self._session.perform(forget, again=forget)
            self._doubtful = False

    def _look(self) -> None:
        """Nobody writes: find out whether somebody could."""
        try:
            if self._session.away is not None and not self._session.come_back():
                return
            self._settle_doubt()
            work = _probe if self.trouble else _ask
            self._session.perform(work, again=work)
            self.trouble = ""
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> Exception:
        """What to tell whoever wanted to write; everybody else is told that there is trouble."""
        failure = self._session.failure(error)
        if isinstance(failure, JournalAway):
            self._doubtful = True
        if not isinstance(failure, BadEntry):
            self.trouble = str(failure)
        return failure

    def _answer(self, call: _Call) -> None:
        if not call.future.set_running_or_notify_cancel():
            return
        try:
            call.future.set_result(self._session.perform(call.work, again=call.work))
        except Exception as error:
            call.future.set_exception(self._failed(error))


def _ask(connection: Connection) -> None:
    """Whether the server still answers."""
    connection.exec_driver_sql("SELECT 1")


def _probe(connection: Connection) -> None:
    """Whether something can be written."""
    write_meta(connection, "probe", 1)


def _own(failure: Exception) -> Exception:
    """A copy for each caller: raising one exception in many threads would mix up their tracebacks."""
    if isinstance(failure, JournalError):
        return type(failure)(str(failure))
    return JournalError(f"the journal's writer failed: {failure!r}")
