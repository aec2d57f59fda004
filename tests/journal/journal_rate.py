"""How fast the journal is here, every append fsynced: `python tests/journal/journal_rate.py [--postgresql]`."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from journal_postgres import PostgresServer, find_binaries

from cotenant.journal import Entry, Journal, open_journal

JOB = {"name": "train", "run": "python train.py --lr 0.1", "gpus": 1, "tenant": "vision", "state": "pending"}


@contextmanager
def addresses() -> Iterator[Callable[[], str]]:
    if "--postgresql" in sys.argv:
        with PostgresServer(find_binaries(), fsync="on") as server:
            yield server.new_schema
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield lambda: f"{folder}/{time.monotonic_ns()}.db"


def append(journal: Journal, callers: int, calls: int, size: int) -> float:
    def caller(me: int) -> None:
        for call in range(calls):
            journal.append([Entry("submitted", f"job-{me}-{call}", JOB)] * size)

    threads = [threading.Thread(target=caller, args=(me,)) for me in range(callers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return callers * calls * size / (time.perf_counter() - start)


def main() -> None:
    with addresses() as new:
        for callers, calls, size in ((1, 500, 1), (64, 200, 1), (64, 20, 100)):
            with open_journal(new()) as journal:
                rate = append(journal, callers, calls, size)
                print(f"{callers:3} callers, {size:3} entries a call: {rate:10,.0f} entries/s", flush=True)
        with open_journal(new()) as journal:
            append(journal, 1, 100, 1000)
            start = time.perf_counter()
            count = sum(1 for _ in journal.read())
            print(f"read {count:,} records: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
