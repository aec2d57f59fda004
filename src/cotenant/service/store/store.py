"""The journal and the book behind one lock: the intent is on disk before anybody acts on it."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from cotenant.journal import Entry, Journal, JournalError, JournalFull, JournalReadOnly, Record, recover
from cotenant.service.facade import Unavailable
from cotenant.service.store.book import Book, packed
from cotenant.service.store.clock import ClockWatch
from cotenant.service.store.job import LiveJob
from cotenant.service.store.owed import OwedStops
from cotenant.service.store.records import WRITTEN
from cotenant.service.store.view import BookView, Pictures

SNAPSHOT_EVERY = 5000  # records, or half as many as there are jobs where that is more
_PICTURES_AT_ONCE = 1000


class Store:
    """Writes records, takes them into the book, and wakes whoever waits for news.

    `book` is read with `lock` held, `view` and `around` by anybody. Only `write` and its two halves append to
    `journal`. `heard` is told of every record once the book has it, and must not take long. `hook` is called with a
    name before and after every write.
    """

    def __init__(
        self, journal: Journal, clock: Callable[[], float] = time.time,
        hook: Callable[[str], None] = lambda point: None, owed: Path | None = None,
        steady: Callable[[], float] | None = None,
    ) -> None:  # fmt: skip
        self.journal, self.clock, self.hook = journal, clock, hook
        self._owed = OwedStops(owed)
        self.lock = threading.RLock()
        self._changed = threading.Condition()
        self._pending: deque[tuple[Future[list[int]], list[Entry]]] = deque()
        self.book, self._saved_seq = _recovered(journal)
        self._watch = ClockWatch(clock, steady) if steady is not None else None
        self._stepped_s = 0.0
        self._see_offset()
        self._pictures = Pictures(self.book)
        self.heard: Callable[[Record, LiveJob | None], None] = lambda record, job: None

    def write(self, entries: Sequence[Entry]) -> list[int]:
        """Journal first, then the book. Nothing happened when this raises."""
        with self.lock:
            return self.end_write(self.begin_write(entries))

    def begin_write(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """Queue entries for the journal, with the lock held; `end_write` waits, with or without it.

        Those who wait without the lock share one flush to disk. The book takes appends in the order in which
        they were queued, which is the order in which the journal answers them.
        """
        if self._watch is not None and (step := self._watch.step()) is not None:
            self._submit([step])
        return self._submit(entries)

    def _submit(self, entries: Sequence[Entry]) -> Future[list[int]]:
        for kind in dict.fromkeys(entry.kind for entry in entries):
            self.hook(f"before:{kind}")
        now_s = self.clock()
        stamped = [Entry(entry.kind, entry.job, {**entry.data, WRITTEN: now_s}) for entry in entries]
        try:
            future = self.journal.submit(stamped)
        except JournalError as error:
            self._see_offset()
            raise _refused(error) from error
        self._pending.append((future, stamped))
        return future

    def end_write(self, future: Future[list[int]]) -> list[int]:
        """Wait until the entries are on disk, and take them into the book; their numbers."""
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
                self._see_offset()
                continue
            for number, entry in zip(future.result(), entries, strict=True):
                record = Record(number, entry.data[WRITTEN], entry.kind, entry.job, entry.data)
                self.book.apply(record)
                self.heard(record, self.book.jobs.get(record.job))
                self._stepped_s += entry.data["by_s"] if entry.kind == "clock" else 0.0
            kinds += dict.fromkeys(entry.kind for entry in entries)
        if kinds:
            with self._changed:
                self._changed.notify_all()
        for kind in kinds:
            self.hook(f"after:{kind}")

    def _see_offset(self) -> None:
        if self._watch is not None:
            self._watch.known = self.book.offset

    def watch_clock(self) -> float:
        """By how much the clock was set since this was asked last; what is under way has been moved in the book."""
        with self.lock:
            if self._watch is not None and (step := self._watch.step()) is not None:
                self.end_write(self._submit([step]))
            by_s, self._stepped_s = self._stepped_s, 0.0
            return by_s

    # -- when nothing can be written ---------------------------------------------------------------------------

    def check_writable(self) -> None:
        """`Unavailable` while the journal is known to be in trouble."""
        if trouble := self.journal.trouble:
            raise Unavailable(f"the journal cannot be written: {trouble}")

    @property
    def owed(self) -> Mapping[str, float]:
        """Jobs that are to end though it could not be journaled, and since when."""
        return self._owed.jobs

    def cancel(self, entries: Sequence[Entry]) -> None:
        """Journal that jobs are to end; on a full disk this is owed, and they are ended all the same."""
        try:
            self.write(entries)
        except Unavailable as error:
            with self.lock:
                local = isinstance(error.__cause__, JournalFull | JournalReadOnly)
                if not local or not all(self._owed.add(entry.job, self.clock()) for entry in entries):
                    raise

    def pay(self) -> None:
        """Journal what is owed. Raises, and owes it still, where that is not possible yet."""
        with self.lock:
            if not self._owed.jobs:
                return
            active = (self.book.active.get(job) for job in self._owed.jobs)
            stops = [Entry("stop", job.id, {"why": "cancel"}) for job in active if job and job.stop_why != "cancel"]
            if stops:
                self.write(stops)
            self._owed.clear()

    # -- looking at it -----------------------------------------------------------------------------------------

    def view(self) -> BookView:
        """A frozen picture of the book. The lock is held for a few milliseconds at a time, however much is new."""
        while True:
            with self.lock:
                if self._pictures.catch_up(_PICTURES_AT_ONCE):
                    return self._pictures.view()

    def around(self, job: str) -> BookView:
        """The same of one job and those that matter to it only: who shares its GPUs, and which it has to wait for."""
        with self.lock:
            return self._pictures.around(job)

    def changes(self) -> set[str]:
        """Jobs to which something has happened since this was asked last: for the planner, and nobody else."""
        with self.lock:
            touched, self.book.touched = self.book.touched, set()
            return touched

    def story(self, job: str) -> list[Record]:
        """All that was written of one job, oldest first."""
        return list(self.journal.read_job(job))

    def wait_beyond(self, seq: int, timeout_s: float) -> int:
        """Block until the book is past record `seq` or time is up; its last record."""
        with self._changed:
            self._changed.wait_for(lambda: self.book.seq > seq, timeout_s)
        return self.book.seq

    def snapshot(self) -> None:
        """Bound the replay of the next start. It is made of a view, so that it takes long without the lock."""
        self.hook("before:snapshot")
        self.view()
        with self.lock:  # little is new since just now
            view, rest = self.view(), self.book.rest()
        state = packed(view.jobs.values(), rest)
        with self.lock:
            if view.seq > self._saved_seq:
                self.journal.save_snapshot(view.seq, state)
                self._saved_seq = view.seq
        self.hook("after:snapshot")

    def snapshot_if_due(self) -> bool:
        """Take a snapshot where the replay of the next start has become long."""
        due = self.book.seq - self._saved_seq >= max(SNAPSHOT_EVERY, len(self.book.jobs) // 2)
        if due:
            self.snapshot()
        return due


def _recovered(journal: Journal) -> tuple[Book, int]:
    """The book of a journal, and the record up to which its snapshot reaches: those after it had to be replayed.

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
    return book, covered


def read_book(journal: Journal) -> Book:
    """The book of a journal that nobody writes just now."""
    return _recovered(journal)[0]


def _refused(error: JournalError) -> Unavailable:
    return Unavailable(f"the journal cannot be written, nothing was accepted: {error}")
