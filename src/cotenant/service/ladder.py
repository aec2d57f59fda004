"""The preemption ladder: how a job is brought to give its GPUs back, from the mildest way to the harshest."""

from __future__ import annotations

from cotenant.backends.base import Backend
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Entry, Journal
from cotenant.service.book import LiveJob
from cotenant.service.options import Options
from cotenant.service.watching import Watcher


class Ladder(Watcher):
    """Asks, and takes the next rung where asking does not help."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self.grace_s = options.grace_s

    def _escalate(self) -> None:
        """Up the ladder: asked, then SIGTERM after the grace period, then SIGKILL after another."""
        now_s = self.clock()
        for job in list(self.book.on_gpus.values()):
            limit = job.spec.max_runtime_s
            if limit and job.state == JobState.RUNNING and now_s - (job.last.started_s or now_s) > limit:
                self._ask_to_stop(job, "timeout")
            if job.held:
                self._ask_to_stop(job, "hold")
            if job.state == JobState.STOPPING:
                waited = now_s - job.stop_asked_s
                if waited > 2 * self.grace_s:
                    self._kill(job.key)
                elif waited > self.grace_s or not self.reports.listens(job.id):
                    self._terminate(job.key)

    def _ask_to_stop(self, job: LiveJob, why: str) -> None:
        if job.state not in ON_GPUS or job.stop_why:
            return
        self.write([Entry("stop", job.id, {"why": why})])
        self.counters["preemptions"] += why == "preempt"
        if not self.reports.ask_to_stop(job.id, self.grace_s):
            self._terminate(job.key)

    def _terminate(self, key: str) -> None:
        self.hook("before:terminate")
        self.backend.terminate(key)
        self.hook("after:terminate")
