"""The journal and the book behind one lock: the intent is on disk before anybody acts on it."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cotenant.journal import Entry, Journal, JournalError, Record, recover
from cotenant.service.facade import Unavailable
from cotenant.service.store.book import WRITTEN, Book

SNAPSHOT_EVERY = 5000  # records, or half as many as there are jobs where that is more


class Store:
    """Writes records, takes them into the book, and wakes whoever waits for news."""

    def __init__(
        self, journal: Journal, clock: Callable[[], float], hook: Callable[[str], None] = lambda point: None
    ) -> None:
        self.journal, self.clock, self.hook = journal, clock, hook
        self.lock = threading.RLock()
        self._changed = threading.Condition()
        self._pending: deque[tuple[Future[list[int]], list[Entry]]] = deque()
        self.book, self._since_snapshot = _recovered(journal)

    def write(self, entries: Sequence[Entry]) -> list[int]:
        """Journal first, then the book. Nothing happened when this raises."""
        with self.lock:
            return self.end_write(self.begin_write(entries))

    def begin_write(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """Queue entries for the journal, with the lock held; `end_write` waits, with or without it.

        Those who wait without the lock share one flush to disk. The book takes appends in the order in which
        they were queued, which is the order in which the journal answers them.
        """
        for kind in _kinds(entries):
            self.hook(f"before:{kind}")
        now_s = self.clock()
        stamped = [Entry(entry.kind, entry.job, {**entry.data, WRITTEN: now_s}) for entry in entries]
        try:
            future = self.journal.submit(stamped)
        except JournalError as error:
            raise _refused(error) from error
        self._pending.append((future, stamped))
        return future

    def end_write(self, future: Future[list[int]]) -> list[int]:
        """Wait until it is on disk and in the book."""
        try:
            numbers = future.result()
        except JournalError as error:
            raise _refused(error) from error
        with self.lock:
            self._settle()
        return numbers

    def _settle(self) -> None:
        """Take into the book what the journal has answered."""
        kinds: list[str] = []
        while self._pending and self._pending[0][0].done():
            future, entries = self._pending.popleft()
            if future.exception() is not None:
                continue
            for number, entry in zip(future.result(), entries, strict=True):
                self.book.apply(Record(number, entry.data[WRITTEN], entry.kind, entry.job, entry.data))
            self._since_snapshot += len(entries)
            kinds += _kinds(entries)
        if kinds:
            with self._changed:
                self._changed.notify_all()
        for kind in kinds:
            self.hook(f"after:{kind}")

    def snapshot(self) -> None:
        """Bound the replay of the next start."""
        with self.lock:
            self.hook("before:snapshot")
            self.journal.save_snapshot(self.book.seq, self.book.freeze())
            self._since_snapshot = 0
            self.hook("after:snapshot")

    def snapshot_if_due(self) -> bool:
        """Take a snapshot where the replay of the next start has become long."""
        due = self._since_snapshot >= max(SNAPSHOT_EVERY, len(self.book.jobs) // 2)
        if due:
            self.snapshot()
        return due

    def changes(self) -> set[str]:
        """Ids of jobs that were touched since this was asked last; for the planner only."""
        with self.lock:
            touched, self.book.touched = self.book.touched, set()
            return touched

    def wait_beyond(self, seq: int, timeout_s: float) -> int:
        """Block until the journal is past `seq` or time is up; its last number."""
        with self._changed:
            self._changed.wait_for(lambda: self.book.seq > seq, timeout_s)
        return self.book.seq

    def story(self, job: str) -> list[Record]:
        """All that happened to a job."""
        return list(self.journal.read_job(job))


def _kinds(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry.kind for entry in entries))


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
