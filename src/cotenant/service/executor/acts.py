"""Errands done: the backend is called without the lock, and what came of it is journaled."""

from __future__ import annotations

from cotenant.backends.base import Backend, BackendError
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.executor.errands import LAUNCH, Errand
from cotenant.service.executor.host_limits import HostLimits
from cotenant.service.executor.terms import AgreedTerms, launch_spec
from cotenant.service.observer import outcomes
from cotenant.service.observer.reports import Reports
from cotenant.service.observer.traces import Traces
from cotenant.service.options import Options
from cotenant.service.store.job import CONTINUE, KILL, STOP, SUSPEND, LiveJob
from cotenant.service.store.store import Store


class Acts:
    """Does one errand after the other, by one thread or by many; each may be repeated.

    `told` are the attempts that have had SIGTERM.
    """

    def __init__(
        self, store: Store, backend: Backend, reports: Reports, options: Options, limits: HostLimits,
        terms: AgreedTerms, counters: dict[str, float],
    ) -> None:  # fmt: skip
        self._store, self._backend, self._reports = store, backend, reports
        self._traces = Traces(backend, options.hook)
        self._options, self._clock, self._hook = options, options.clock, options.hook
        self._limits, self._terms, self._counters = limits, terms, counters
        self.told: set[str] = set()

    def do(self, errand: Errand) -> bool:
        """One errand, without the lock; whether the book has changed by it."""
        if errand.verb == LAUNCH:
            return self._launch(errand)
        if errand.verb in (SUSPEND, CONTINUE):
            return self._switch(errand)
        if errand.verb == KILL:
            self._traces.kill(errand.key)
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
        job = self._store.book.on_gpus.get(errand.job)
        return job if job is not None and job.key == errand.key else None

    def _launch(self, errand: Errand) -> bool:
        """The launch is journaled: do it, unless the job was stopped before. One that fails leaves nothing."""
        with self._store.lock:
            job = self._present(errand)
            if job is None or job.state != JobState.STARTING:
                return True  # the observer finds no trace of it
            given = self._limits.to_launch(job)
        failed = ""
        try:
            self._terms.cut_batch(job)
            folder, grace_s = self._backend.checkpoint_dir(job.id, job.spec.checkpoint_dir), self._options.grace_s
            spec = launch_spec(job, folder, self._reports, grace_s, errand.what, given, self._limits.quota)
            self._hook("before:launched")
            self._backend.launch(spec)
        except (InputError, BackendError, OSError) as error:
            failed = f"it could not be started: {error}"
            self._traces.forget(errand.key)
        with self._store.lock:
            job = self._present(errand)
            if failed and job is not None and job.state == JobState.STARTING:
                self._store.write([Entry("exit", job.id, {"to": "failed", "why": failed, "failure": True})])
        self._hook("after:launched")
        return bool(failed)

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
