"""The journal and the book behind one lock: the intent is on disk before anybody acts on it."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

from cotenant.journal import Entry, Journal, JournalError, Record, recover
from cotenant.service.facade import Unavailable
from cotenant.service.options import Options
from cotenant.service.store.book import WRITTEN, Book


class Bookkeeper:
    """Writes records, takes them into the book, and wakes whoever waits for news."""

    def __init__(self, journal: Journal, options: Options) -> None:
        self.journal, self.clock, self.hook = journal, options.clock, options.hook
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._pending: deque[tuple[Future[list[int]], list[Entry]]] = deque()
        self.book, self._since_snapshot = _recovered(journal)

    def write(self, entries: Sequence[Entry]) -> list[int]:
        """Journal first, then the book. Nothing happened when this raises."""
        with self._lock:
            return self._end_write(self._begin_write(entries))

    def _begin_write(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """Queue entries for the journal, with the lock held; `_end_write` waits, with or without it.

        Those who wait without the lock share one flush to disk. The book takes appends in the order in which
        they were queued, which is the order in which the journal answers them.
        """
        self.hook(f"before:{entries[0].kind}")
        now_s = self.clock()
        stamped = [Entry(entry.kind, entry.job, {**entry.data, WRITTEN: now_s}) for entry in entries]
        try:
            future = self.journal.submit(stamped)
        except JournalError as error:
            raise _refused(error) from error
        self._pending.append((future, stamped))
        return future

    def _end_write(self, future: Future[list[int]]) -> list[int]:
        try:
            numbers = future.result()
        except JournalError as error:
            raise _refused(error) from error
        with self._lock:
            self._settle()
        return numbers

    def _settle(self) -> None:
        """Take into the book what the journal has answered."""
        kinds = []
        while self._pending and self._pending[0][0].done():
            future, entries = self._pending.popleft()
            if future.exception() is not None:
                continue
            for number, entry in zip(future.result(), entries, strict=True):
                self.book.apply(Record(number, entry.data[WRITTEN], entry.kind, entry.job, entry.data))
            self._since_snapshot += len(entries)
            kinds.append(entries[0].kind)
        if kinds:
            with self._changed:
                self._changed.notify_all()
        for kind in kinds:
            self.hook(f"after:{kind}")

    def snapshot(self) -> None:
        """Bound the replay of the next start."""
        with self._lock:
            self.hook("before:snapshot")
            self.journal.save_snapshot(self.book.seq, self.book.freeze())
            self._since_snapshot = 0
            self.hook("after:snapshot")


def _recovered(journal: Journal) -> tuple[Book, int]:
    """The book of a journal, and how many records were replayed for it: those count towards the next snapshot.

    The collector would look through a growing heap again and again, and find nothing.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        state, records = recover(journal)
        book = Book.thaw(state) if state is not None else Book()
        covered = book.seq
        for record in records:
            book.apply(record)
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return book, book.seq - covered


def _refused(error: JournalError) -> Unavailable:
    return Unavailable(f"the journal cannot be written, nothing was accepted: {error}")
