"""The twin in memory: same contract, nothing on disk. For tests and for trying things out.

A `MemoryStore` plays the disk: opening it again after `close` gives back what was there, and `room` makes it
full, so that a test can see how a service behaves when nothing can be written.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

from cotenant.journal.base import Entry, Journal, Record, check_snapshot
from cotenant.journal.codec import Row, Stored, to_record, to_rows
from cotenant.journal.errors import JournalAway, JournalBusy, JournalError, JournalFull
from cotenant.journal.migrations import VERSION

_AWAY = "the journal in memory does not answer: running jobs go on, and so does the rest once it is back"


class MemoryStore:
    """What outlives a `MemoryJournal`. `room`: how many more records fit, None for no limit. `away`: out of reach."""

    def __init__(self) -> None:
        self.rows: list[Stored] = []
        self.snapshot: tuple[int, bytes] | None = None
        self.last_seq = 0
        self.last_time_s = 0.0
        self.room: int | None = None
        self.away = False
        self.held = threading.Lock()


class MemoryJournal(Journal):
    """A journal over a `MemoryStore`; every append is complete before `submit` returns."""

    def __init__(self, store: MemoryStore | None = None, clock: Callable[[], float] = time.time) -> None:
        self._store = MemoryStore() if store is None else store
        self._clock = clock
        self._lock = threading.Lock()
        self._open = self._store.held.acquire(blocking=False)
        if not self._open:
            raise JournalBusy("the journal in memory is already open: close it first")

    @property
    def schema_version(self) -> int:
        """Always the newest."""
        return VERSION

    @property
    def last_seq(self) -> int:
        """See `Journal`."""
        return self._store.last_seq

    @property
    def trouble(self) -> str:
        """See `Journal`."""
        if self.away:
            return _AWAY
        return "no space left in the journal in memory" if self._store.room == 0 else ""

    @property
    def away(self) -> bool:
        """See `Journal`."""
        return self._store.away

    def submit(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """See `Journal`."""
        rows = to_rows(entries)
        future: Future[list[int]] = Future()
        with self._lock:
            self._check_open()
            try:
                future.set_result(self._write(rows))
            except (JournalFull, JournalAway) as error:
                future.set_exception(error)
        return future

    def _write(self, rows: list[Row]) -> list[int]:
        self._check_there()
        store = self._store
        if store.room is not None:
            if len(rows) > store.room:
                raise JournalFull("no space left in the journal in memory: raise its `room`")
            store.room -= len(rows)
        first = store.last_seq + 1
        store.last_time_s = max(store.last_time_s, self._clock())
        store.rows += [(first + i, store.last_time_s, *row) for i, row in enumerate(rows)]
        store.last_seq += len(rows)
        return list(range(first, first + len(rows)))

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[Record]:
        """See `Journal`."""
        while limit is None or limit > 0:
            with self._lock:
                self._check_open()
                start = bisect_right(self._store.rows, after, key=lambda row: row[0])
                page = self._store.rows[start : start + (1000 if limit is None else min(limit, 1000))]
            if not page:
                return
            after, limit = page[-1][0], None if limit is None else limit - len(page)
            yield from map(to_record, page)

    def read_job(self, job: str) -> Iterator[Record]:
        """See `Journal`."""
        with self._lock:
            self._check_open()
            rows = [row for row in self._store.rows if row[3] == job]
        yield from map(to_record, rows)

    def save_snapshot(self, seq: int, state: bytes) -> None:
        """See `Journal`."""
        with self._lock:
            self._check_open()
            self._check_there()
            check_snapshot(seq, self._store.snapshot[0] if self._store.snapshot else 0, self.last_seq)
            self._store.snapshot = seq, bytes(state)

    def load_snapshot(self) -> tuple[int, bytes] | None:
        """See `Journal`."""
        with self._lock:
            self._check_open()
            return self._store.snapshot

    def prune(self, before_s: float, keep: Collection[str] = ()) -> int:
        """See `Journal`."""
        with self._lock:
            self._check_open()
            covered = self._store.snapshot[0] if self._store.snapshot else 0
            old = self._store.rows
            self._store.rows = [r for r in old if r[0] > covered or r[1] >= before_s or r[3] in keep]
            return len(old) - len(self._store.rows)

    def backup(self, path: str | Path) -> None:
        """See `Journal`."""
        from cotenant.journal.copying import write_file  # needs SQLAlchemy, which this twin does not

        with self._lock:
            self._check_open()
            rows, snapshot, last_time_s = list(self._store.rows), self._store.snapshot, self._store.last_time_s
        write_file(Path(path), iter(rows), (*snapshot, last_time_s) if snapshot else None)

    def close(self) -> None:
        """See `Journal`."""
        with self._lock:
            if self._open:
                self._open = False
                self._store.held.release()

    def _check_there(self) -> None:
        if self._store.away:
            raise JournalAway(_AWAY)

    def _check_open(self) -> None:
        if not self._open:
            raise JournalError("the journal is closed")
