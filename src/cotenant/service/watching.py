"""What really runs against what the book says: reconciliation at start, ends and traces ever after."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from cotenant.backends.base import Backend, BackendError, Observed
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry, Journal
from cotenant.service import outcomes
from cotenant.service.bookkeeping import Bookkeeper
from cotenant.service.livejob import LiveJob
from cotenant.service.options import Options
from cotenant.service.reports import Reports

MOST_UNDONE = 5  # launches of one job that may leave no trace before it is given up
_FORGET_AT_ONCE = 1000


class Watcher(Bookkeeper):
    """Sees how processes begin and end, journals it, and clears away what nobody owns."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, options)
        self.backend, self.home, self.keep_s = backend, options.home, options.keep_s
        self._ready = False
        self._retired_s = self.clock()
        self.reports = Reports(self.home, backend.listen_at())
        names = ("decisions", "decision_timeouts", "preemptions", "lost_work_s", "decision_s", "suspensions")
        self.counters: dict[str, float] = dict.fromkeys(names, 0.0)

    def reconcile(self) -> None:
        """Compare the book with what really runs, before deciding anything."""
        with self._lock:
            seen = self.backend.observe()
            self._undo_launches(seen)
            for item in seen:
                if self._owner(item) is None:
                    self._clear_away(item)
            self.hook("after:reconcile")
            self._ready = True

    def _owner(self, item: Observed) -> LiveJob | None:
        """The job whose present attempt this is. One whose end is journaled has no owner: it is only to be cleared."""
        job_id = item.key.rsplit("-", 1)[0]
        job = self.book.on_gpus.get(job_id) or self.book.suspended.get(job_id)
        return job if job is not None and job.key == item.key else None

    def _undo_launches(self, seen: Sequence[Observed]) -> None:
        """Launches that were journaled but of which the world knows nothing: they did not happen."""
        keys = {item.key for item in seen}
        for job in [*self.book.on_gpus.values(), *self.book.suspended.values()]:
            if job.key in keys:
                continue
            self._forget(job.key)  # a half-written record, before the end is journaled: afterwards nobody would look
            undone = sum(attempt.started_s is None for attempt in job.attempts)
            if job.stop_why == "cancel":
                self._exit(job, JobState.CANCELLED, "cancelled before it started")
            elif job.last.started_s is not None:
                now_s = self.clock()
                lost = outcomes.lost_s(job, self.reports.of(job.id), now_s)
                end = outcomes.gone(job, "its process left no trace", now_s, lost)
                self._exit(job, end.to, end.why, end.as_dict())
            elif self._ready and undone >= MOST_UNDONE:
                self._exit(job, JobState.FAILED, f"it could not be started in {undone} tries")
            else:
                self._exit(job, JobState.PENDING, "launch undone: nothing had been started")

    def _observe(self) -> None:
        started: list[Entry] = []
        ended: list[tuple[LiveJob, Observed]] = []
        seen = self.backend.observe()
        self._undo_launches(seen)
        for item in seen:
            job = self._owner(item)
            if job is None:
                self._clear_away(item)
                continue
            if item.state in ("running", "suspended"):
                if job.last.started_s is None:
                    started.append(Entry("started", job.id, {"at_s": item.started_s or self.clock()}))
                elif job.state == JobState.SUSPENDED and item.state == "running":
                    self._suspend_again(item.key)
            elif item.state == "exited" or (item.state == "lost" and not item.alive):
                ended.append((job, item))
                if job.last.started_s is None and item.started_s is not None:
                    started.append(Entry("started", job.id, {"at_s": item.started_s}))
            elif item.state == "lost":
                self._kill(item.key)
        if started:
            self.write(started)
        if ended:
            self._end_all(ended)

    def _suspend_again(self, key: str) -> None:
        """Somebody woke a suspended job: its GPUs belong to others now."""
        self.hook("before:suspend")
        if not self.backend.suspend(key):
            self._kill(key)
        self.hook("after:suspend")

    def _end_all(self, ended: Sequence[tuple[LiveJob, Observed]]) -> None:
        """Journal the ends seen together in one go, then let the backend forget them."""
        entries = []
        for job, item in ended:
            report = self.reports.of(job.id)
            end = outcomes.judge(job, item, report, self.clock())
            costs = outcomes.costs(job, end, report)
            entries.append(Entry("exit", job.id, {"to": str(end.to), "why": end.why, **end.as_dict(), **costs}))
            self.counters["lost_work_s"] += end.lost_s
        self.write(entries)
        for job, item in ended:
            self._forget(item.key)
            self.reports.drop(job.id, job.last.number)

    def _exit(self, job: LiveJob, to: JobState, why: str, more: dict[str, Any] | None = None) -> None:
        self.write([Entry("exit", job.id, {"to": str(to), "why": why, **(more or {})})])

    def _clear_away(self, item: Observed) -> None:
        """Something that no active job owns: end it; once it has ended, forget it."""
        if item.state not in ("exited", "lost") or item.alive:
            self._kill(item.key)
        else:
            self._forget(item.key)

    def _forget(self, key: str) -> None:
        """Let the backend remove the traces of an ended attempt, but its output."""
        self.hook("before:forget")
        with contextlib.suppress(BackendError):  # still dying; the next tick sees it again
            self.backend.forget(key, keep_log=True)
        self.hook("after:forget")

    def _kill(self, key: str) -> None:
        self.hook("before:kill")
        self.backend.kill(key)
        self.hook("after:kill")

    def _retired(self, job: str) -> None:
        """For layers above: nobody will hear of this job again."""

    def retire(self) -> int:
        """Forget jobs that ended longer than `keep_s` ago: logs, checkpoints of ours, records. How many."""
        with self._lock:
            self._retired_s = self.clock()
            before_s = self._retired_s - self.keep_s
            old = [job for job in self.book.jobs.values() if job.finished and (job.ended_s or 0.0) < before_s]
            if not old:
                return 0
            for job in old:
                for attempt in job.attempts:
                    self.backend.drop_log(f"{job.id}-{attempt.number}")
                self.backend.drop_checkpoints(job.id)
                self.reports.forget(job.id)
                self._retired(job.id)
            ids = [job.id for job in old]
            for at in range(0, len(ids), _FORGET_AT_ONCE):
                self.write([Entry("forget", data={"jobs": ids[at : at + _FORGET_AT_ONCE]})])
            self.snapshot()
            self.journal.prune(before_s, keep=self.book.jobs.keys())
            return len(ids)
