"""The preemption ladder: how a job is brought to give its GPUs back, from the mildest way to the harshest.

1. Ask. A job that can save is told to (`should_stop`), and has the grace period to save and leave.
2. Suspend. One that cannot, or did not in time, is stopped where it stands and its GPU memory taken out, without
   its help; its process stays and goes on later, on the same GPUs. Only to make room for others, only where the
   backend can, and only so many at a time, for every one of them keeps its host memory.
3. Stop. SIGTERM, and SIGKILL after another grace period: it starts again from its last checkpoint.

Cancelled, held and overdue jobs are not suspended. What each rung really cost goes to the journal.
"""

from __future__ import annotations

import time

from cotenant.backends.base import Backend, Capabilities
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Entry, Journal
from cotenant.service.observer import outcomes
from cotenant.service.observer.observer import Watcher
from cotenant.service.options import Options
from cotenant.service.store.job import CONTINUE, KILL, STOP, SUSPEND, LiveJob

MEMORY_SHARE = 0.5  # of a node's memory, which suspended jobs that say how much they need may hold together
_SWITCHING_S = 1.0  # per tick; what is not done by then is done in the next


class Ladder(Watcher):
    """Asks, and takes the next rung where asking does not help."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self.grace_s, self.max_suspended = options.grace_s, options.max_suspended
        self._can_suspend = can_suspend(backend.capabilities())

    def _escalate(self) -> None:
        """Time limits and holds, then up the ladder with whoever is to stop."""
        now_s = self.clock()
        for job in list(self.book.on_gpus.values()):
            limit = job.spec.max_runtime_s
            if limit and job.state == JobState.RUNNING and job.last.active_s(now_s) > limit:
                self._ask_to_stop(job, "timeout")
            if job.held:
                self._ask_to_stop(job, "hold")
            if job.resize_to and job.state == JobState.RUNNING:
                self._ask_to_stop(job, "resize")
            if job.state == JobState.STOPPING:
                self._press(job)
        for job in self.book.suspended.values():
            if job.stop_why:  # it cannot hear SIGTERM, and may not run to hear it: its GPUs belong to others
                self._kill(job.key)

    def _ask_to_stop(self, job: LiveJob, why: str) -> None:
        if job.state not in ON_GPUS or job.stop_why:
            return
        self.write([Entry("stop", job.id, {"why": why})])
        self.counters["preemptions"] += why == "preempt"
        if why != "turn" or not self._may_suspend(job):  # whoever only makes room for a while need not save
            self.reports.ask_to_stop(job.id, self.grace_s)
        self._press(job)

    def _press(self, job: LiveJob) -> None:
        """Wait while there is hope that it leaves by itself; else the next rung."""
        waited_s = self.clock() - job.stop_asked_s
        hope = waited_s <= self.grace_s
        if job.rung == SUSPEND or (hope and self.reports.listens(job.id)):
            return
        if not job.rung and self._may_suspend(job):
            if job.last.started_s is not None:
                self.write([Entry("rung", job.id, {"rung": SUSPEND})])
                return
            if hope:
                return  # not seen yet: there is no process to suspend
        last_s = job.rung_s + self.grace_s if job.rung == STOP else job.stop_asked_s + 2 * self.grace_s
        if job.rung == KILL or self.clock() > last_s:
            self._kill(job.key)
        else:
            self._terminate(job.key)

    def _may_suspend(self, job: LiveJob) -> bool:
        """Whether to suspend rather than stop: for others, where the backend can, while there is room."""
        return job.stop_why in ("preempt", "turn") and self._can_stand_still(job)

    def _can_stand_still(self, job: LiveJob) -> bool:
        """Whether it could be suspended now."""
        if not self._can_suspend or not job.spec.preemptible:
            return False
        going = [other for other in self.book.on_gpus.values() if other.rung == SUSPEND]
        there = [*self.book.suspended.values(), *going]
        if len(there) >= self.max_suspended:
            return False
        sizes = {node.name: node.mem_gib for node in self.backend.nodes()}
        for name, _ in job.last.gpus:
            neighbours = (other for other in there if any(node == name for node, _ in other.last.gpus))
            held_gib = sum(other.spec.mem_gib for other in neighbours)
            if job.spec.mem_gib and held_gib + job.spec.mem_gib > MEMORY_SHARE * sizes.get(name, 0.0):
                return False
        return True

    def _terminate(self, key: str) -> None:
        self.hook("before:terminate")
        self.backend.terminate(key)
        self.hook("after:terminate")

    # -- suspending and going on -----------------------------------------------------------------------------

    def _switch(self) -> bool:
        """Suspend and continue the jobs of which the journal says so; whether there was any.

        Without the lock: taking GPU memory out takes a driver seconds. Both may be repeated, so a crash in between
        is made up for by doing it again.
        """
        with self._lock:
            todo = [(job.id, job.key, job.rung) for job in self.book.on_gpus.values() if job.rung in _SWITCHES]
        until = time.perf_counter() + _SWITCHING_S
        for job_id, key, rung in todo:
            began_s = self.clock()
            verb, act = ("suspend", self.backend.suspend) if rung == SUSPEND else ("wake", self.backend.resume)
            self.hook(f"before:{verb}")
            done = act(key)
            self.hook(f"after:{verb}")
            with self._lock:
                job = self.book.on_gpus.get(job_id)
                if job is not None and job.key == key:
                    self._switched(job, rung, done, self.clock() - began_s)
            if time.perf_counter() > until:
                break
        return bool(todo)

    def _switched(self, job: LiveJob, rung: str, done: bool, seconds: float) -> None:
        """Journal what came of it. Whoever was cancelled meanwhile goes on up the ladder from where he is."""
        if rung == SUSPEND and job.rung == SUSPEND:
            if done:
                unsaved_s = outcomes.lost_s(job, self.reports.of(job.id), self.clock())
                self.write([Entry("suspended", job.id, {"unsaved_s": unsaved_s, "seconds": seconds})])
                self.reports.withdraw(job.id)
                self.counters["suspensions"] += 1
            else:
                self.write([Entry("rung", job.id, {"rung": STOP})])
        elif rung == CONTINUE and done:
            self.write([Entry("continued", job.id, {"seconds": seconds})])
        elif rung == CONTINUE and job.rung == CONTINUE:
            self.write([Entry("stop", job.id, {"why": "move"}), Entry("rung", job.id, {"rung": KILL})])


_SWITCHES = (SUSPEND, CONTINUE)


def can_suspend(found: Capabilities) -> bool:
    """Whether a suspended job gives its GPUs back: virtual ones at once, real ones only by the driver's help."""
    return found.suspend != "none" and (found.gpu != "nvml" or found.gpu_suspend != "none")
