"""Errands to the world: one at a time per job, in order; others need not wait for a slow one.

The backend is called without the lock, and what came of it is journaled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from cotenant.backends.base import Backend, BackendError, NodeGone, Unreachable
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.executor.host_limits import HostLimits
from cotenant.service.executor.terms import AgreedTerms, launch_spec
from cotenant.service.observer import outcomes
from cotenant.service.observer.cleanup import Cleanup
from cotenant.service.observer.reports import Reports
from cotenant.service.options import Options
from cotenant.service.store.job import CONTINUE, KILL, STOP, SUSPEND, LiveJob
from cotenant.service.store.store import Store

LAUNCH, AHEAD, LIMITS = "launch", "ahead", "limits"  # the other verbs are the rungs of the ladder, and `continue`
_WORKERS = 8
_GONE_S = 1.0  # until a job may be started again whose node was gone: that is seen in time
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Errand:
    """Something to be done to an attempt of a job: launch, ahead, stop, kill, suspend, continue or limits."""

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
            _log.log(logging.WARNING if isinstance(error, CotenantError) else logging.ERROR, "job %s: %s", job, error)
        self._done()
        self.run()  # whatever else is to be done for it

    def close(self) -> None:
        """Let what is under way come to its end; the rest is found in the book after the next start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


class Acts:
    """Does one errand after the other, by one thread or by many; each may be repeated.

    `told` are the attempts that have had SIGTERM.
    """

    def __init__(
        self, store: Store, backend: Backend, reports: Reports, options: Options, limits: HostLimits,
        terms: AgreedTerms, counters: dict[str, float],
    ) -> None:  # fmt: skip
        self._store, self._backend, self._reports = store, backend, reports
        self._cleanup = Cleanup(backend, options.hook)
        self._options, self._clock, self._hook = options, options.clock, options.hook
        self._limits, self._terms, self._counters = limits, terms, counters
        self.told: set[str] = set()

    def do(self, errand: Errand) -> bool:
        """One errand, without the lock; whether the book has changed by it."""
        if errand.verb in (LAUNCH, AHEAD):
            return self._launch(errand)
        if errand.verb in (SUSPEND, CONTINUE):
            return self._switch(errand)
        if errand.verb == KILL:
            self._cleanup.kill(errand.key)
        elif errand.verb == STOP:
            self._terminate(errand)
        elif self._backend.set_limits(errand.key, None, errand.what.cpus, errand.what.mem_gib or None):
            with self._store.lock:
                self._limits.applied(errand.key, errand.what)
        return False

    def _terminate(self, errand: Errand) -> None:
        self._hook("before:terminate")
        told = self._backend.terminate(errand.key)
        self._hook("after:terminate")
        with self._store.lock:
            job = self._present(errand)
            if told and job is not None and job.last.started_s is not None:  # a process that just begins may not hear
                self.told.add(errand.key)

    def _present(self, errand: Errand) -> LiveJob | None:
        """The job of an errand, if it is still about its present attempt; the lock is held."""
        book = self._store.book
        job = book.on_gpus.get(errand.job) or book.ahead.get(errand.job)
        return job if job is not None and job.key == errand.key else None

    def _launch(self, errand: Errand) -> bool:
        """The launch is journaled: do it, unless the job was stopped before. One that fails leaves nothing."""
        with self._store.lock:
            job = self._present(errand)
            if job is None or job.stop_why or not (job.holds or job.state == JobState.STARTING):
                return True  # the observer finds no trace of it
            given = self._limits.to_launch(job)
        failed, to, done = "", "failed", "prefetched" if errand.verb == AHEAD else "launched"
        try:
            self._terms.cut_batch(job)
            folder, grace_s = self._backend.checkpoint_dir(job.id, job.spec.checkpoint_dir), self._options.grace_s
            need_gib = 0.0 if errand.verb == AHEAD else errand.what
            spec = launch_spec(job, folder, self._reports, grace_s, need_gib, given, self._limits.quota())
            if errand.verb == AHEAD:  # the time that it waits is not time that it runs: only the service can tell
                spec = replace(spec, env={**spec.env, "COTENANT_HOLD": errand.what}, max_runtime_s=0.0)
            self._hook(f"before:{done}")
            self._backend.launch(spec)
        except Unreachable:  # it may yet start: whoever reaches the world again finds it, or that there is nothing
            raise
        except NodeGone as error:
            failed, to = f"launch undone: {error}", "pending"
            self._cleanup.forget(errand.key)
            if not self._options.inline:
                time.sleep(_GONE_S)
        except (InputError, BackendError, OSError) as error:
            failed = f"it could not be started: {error}"
            self._cleanup.forget(errand.key)
        with self._store.lock:
            job = self._present(errand)
            if failed and job is not None and job.state == JobState.STARTING:
                self._store.write([Entry("exit", job.id, {"to": to, "why": failed, "failure": to == "failed"})])
            elif failed and job is not None and job.holds:
                self._store.write([Entry("exit", job.id, {"to": "pending", "why": f"started ahead: {failed}"})])
        self._hook(f"after:{done}")
        return bool(failed)

    def go(self, job: str) -> None:
        """It is journaled that the GPUs are its own: whoever waits for them in its start goes on."""
        self._hook("before:go")
        self._reports.holding.go(job)
        self._backend.wake()
        self._hook("after:go")

    def _switch(self, errand: Errand) -> bool:
        """Suspend a job, or have it go on. A backend that answers None is not done with it: it is asked again."""
        suspends = errand.verb == SUSPEND
        with self._store.lock:
            job = self._present(errand)
            if job is None or job.rung != errand.verb:
                return False
        verb, act = ("suspend", self._backend.suspend) if suspends else ("wake", self._backend.resume)
        self._hook(f"before:{verb}")
        done: bool | None = act(errand.key)
        self._hook(f"after:{verb}")
        with self._store.lock:
            job = self._present(errand)
            if done is None or job is None:
                return False
            entries = self._suspended(job, done) if suspends else self._continued(job, done)
            if entries:
                self._store.write(entries)
            if entries and suspends and done:
                self._reports.withdraw(job.id)
                self._counters["suspensions"] += 1
            elif entries:
                self._reports.paused(job.id)
            return True

    def _suspended(self, job: LiveJob, done: bool) -> list[Entry]:
        """What came of suspending. Whoever was cancelled meanwhile goes on up the ladder from where he is."""
        if job.rung != SUSPEND:
            return []
        if not done:
            return [Entry("rung", job.id, {"rung": STOP})]
        now_s = self._clock()
        unsaved_s = outcomes.lost_s(job, self._reports.of(job.id), now_s)
        return [Entry("suspended", job.id, {"unsaved_s": unsaved_s, "seconds": now_s - job.rung_s})]

    def _continued(self, job: LiveJob, done: bool) -> list[Entry]:
        """What came of going on."""
        if done:
            return [Entry("continued", job.id, {"seconds": self._clock() - job.rung_s})]
        if job.rung == CONTINUE:
            return [Entry("stop", job.id, {"why": "move"}), Entry("rung", job.id, {"rung": KILL})]
        return []
