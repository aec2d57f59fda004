"""Errands to the world: one at a time per job, in order; others need not wait for a slow one."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

LAUNCH, LIMITS = "launch", "limits"  # the other verbs are the rungs of the ladder, and `continue`
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class Errand:
    """Something to be done to an attempt of a job: launch, stop, kill, suspend, continue or limits."""

    job: str
    key: str
    verb: str
    what: Any = None


class Errands:
    """A queue per job. `do` returns whether it changed the book, so that it is worth while to look again at once.

    `inline`: `run` does everything itself before it returns. Else worker threads do, and `done` is called after each.
    """

    def __init__(self, do: Callable[[Errand], bool], done: Callable[[], None], inline: bool) -> None:
        self._do, self._done = do, done
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Errand]] = {}  # the first one of each may be under way
        self._busy: set[str] = set()
        self._pool = None if inline else ThreadPoolExecutor(_WORKERS, thread_name_prefix="executor")

    def put(self, errand: Errand) -> None:
        """Queue it, unless the same is under way or to be done."""
        with self._lock:
            queue = self._queues.setdefault(errand.job, deque())
            if not any((one.key, one.verb) == (errand.key, errand.verb) for one in queue):
                queue.append(errand)

    @property
    def keys(self) -> frozenset[str]:
        """Attempts to which something is being done, or is to be done."""
        with self._lock:
            return frozenset(errand.key for queue in self._queues.values() for errand in queue)

    def run(self) -> bool:
        """Have everything done; whether the book has changed by it already."""
        changed = False
        while (job := self._next()) is not None:
            if self._pool is None:
                changed |= self._first_of(job)
            else:
                self._pool.submit(self._work, job)
        return changed

    def _next(self) -> str | None:
        with self._lock:
            job = next((job for job in self._queues if job not in self._busy), None)
            if job is not None:
                self._busy.add(job)
            return job

    def _first_of(self, job: str) -> bool:
        """Do the first errand of a job; it leaves the queue however that ends: the book says what is still to do."""
        with self._lock:
            errand = self._queues[job][0]
        try:
            return self._do(errand)
        finally:
            with self._lock:
                self._busy.discard(job)
                self._queues[job].popleft()
                if not self._queues[job]:
                    del self._queues[job]

    def _work(self, job: str) -> None:
        try:
            self._first_of(job)
        except Exception as error:  # the next look starts from the journal's truth
            sys.stderr.write(f"cotenant: executor: {type(error).__name__}: {error}\n")
        self._done()
        self.run()  # whatever else is to be done for it

    def close(self) -> None:
        """Let what is under way come to its end; the rest is found in the book after the next start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
