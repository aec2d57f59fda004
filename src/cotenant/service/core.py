"""The service: journal, book, backend and policy behind one lock.

Order of every change: write the intent to the journal, take it into the book, act. After a crash the book is
rebuilt and compared with what the backend really runs before anything is decided; launches carry a key, so
doing one again is harmless.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant.backends.base import Backend, BackendError, LaunchSpec, NodeInfo, Observed
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Entry, Journal, JournalError, Record, recover
from cotenant.policies import make_policy
from cotenant.service import outcomes
from cotenant.service.book import Book, LiveJob
from cotenant.service.facade import (
    Unavailable,
)
from cotenant.service.live import Tables, Verdict, Waiting
from cotenant.service.logs import Logs
from cotenant.service.reports import Reports
from cotenant.service.tokens import Tokens

UNKNOWN_DURATION_S = 3600.0
SNAPSHOT_EVERY = 5000
MOST_UNDONE = 5  # launches of one job that may leave no trace before it is given up


class Dispatcher:
    """Everything that is not asked for by a person: recovery, reconciliation, and `tick`."""

    def __init__(
        self, journal: Journal, backend: Backend, *, home: Path, policy: str = "", grace_s: float = 30.0,
        clock: Callable[[], float] = time.time, hook: Callable[[str], None] = lambda point: None,
    ) -> None:  # fmt: skip
        self.journal, self.backend, self.home = journal, backend, home
        self.grace_s, self.clock, self.hook = grace_s, clock, hook
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._ready = False
        self._since_snapshot = 0
        self.reports = Reports(home / "runtime.sock")
        self.logs = Logs(home / "logs")
        self._usable: list[NodeInfo] = []
        self.counters: dict[str, float] = {"decisions": 0, "preemptions": 0, "lost_work_s": 0.0, "decision_s": 0.0}
        state, records = recover(journal)
        self.book = Book.thaw(state) if state is not None else Book()
        for record in records:
            self.book.apply(record)
        self.tokens_of = Tokens(self.book)
        if policy and policy != self.book.policy:
            make_policy(policy)
            self.write([Entry("policy", data={"policy": policy})])

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry]) -> list[int]:
        """Journal first, then the book. Nothing happened when this raises."""
        self.hook(f"before:{entries[0].kind}")
        try:
            numbers = self.journal.append(entries)
        except JournalError as error:
            raise Unavailable(f"the journal cannot be written, nothing was accepted: {error}") from error
        now_s = self.clock()
        for number, entry in zip(numbers, entries, strict=True):
            self.book.apply(Record(number, now_s, entry.kind, entry.job, entry.data))
        self.hook(f"after:{entries[0].kind}")
        self._since_snapshot += len(entries)
        with self._changed:
            self._changed.notify_all()
        return numbers

    def snapshot(self) -> None:
        """Bound the replay of the next start."""
        with self._lock:
            self.hook("before:snapshot")
            self.journal.save_snapshot(self.book.seq, self.book.freeze())
            self._since_snapshot = 0
            self.hook("after:snapshot")

    # -- starting --------------------------------------------------------------------------------------------

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
        job = self.book.active.get(item.key.rsplit("-", 1)[0])
        return job if job is not None and job.state in ON_GPUS and job.key == item.key else None

    def _undo_launches(self, seen: Sequence[Observed]) -> None:
        """Launches that were journaled but of which the world knows nothing: they did not happen."""
        keys = {item.key for item in seen}
        for job in list(self.book.active.values()):
            if job.state not in ON_GPUS or job.key in keys:
                continue
            self._forget(job.key)  # a half-written record, before the end is journaled: afterwards nobody would look
            undone = sum(attempt.started_s is None for attempt in job.attempts)
            if job.stop_why == "cancel":
                self._exit(job, JobState.CANCELLED, "cancelled before it started")
            elif self._ready and undone >= MOST_UNDONE:
                self._exit(job, JobState.FAILED, f"it could not be started in {undone} tries")
            else:
                self._exit(job, JobState.PENDING, "launch undone: nothing had been started")

    def _clear_away(self, item: Observed) -> None:
        """Something that no active job owns: end it; once it has ended, forget it."""
        if item.state not in ("exited", "lost") or item.pid is not None:
            self._kill(item.key)
        else:
            self._forget(item.key)

    def _forget(self, key: str) -> None:
        """Keep the logs of an ended attempt, then let the backend remove its traces."""
        self.hook("before:archive")
        self.logs.keep(key, self.backend.log_paths(key))
        self.hook("after:archive")
        with contextlib.suppress(BackendError):  # still dying; the next tick sees it again
            self.backend.forget(key)
        self.hook("after:forget")

    def _terminate(self, key: str) -> None:
        self.hook("before:terminate")
        self.backend.terminate(key)
        self.hook("after:terminate")

    def _kill(self, key: str) -> None:
        self.hook("before:kill")
        self.backend.kill(key)
        self.hook("after:kill")

    # -- the loop --------------------------------------------------------------------------------------------

    def tick(self) -> float:
        """Observe, end, escalate, decide, act; seconds after which to look again at the latest."""
        with self._lock:
            self._observe()
            self._escalate()
            self._give_up_orphans()
            verdict = self._decide()
            for job_id in verdict.stops:
                self._ask_to_stop(self.book.jobs[job_id], "preempt")
            for job_id, slices in verdict.starts:
                self._launch(self.book.jobs[job_id], slices)
            if self._since_snapshot >= SNAPSHOT_EVERY:
                self.snapshot()
            stopping = any(job.state == JobState.STOPPING for job in self.book.active.values())
            return 0.2 if stopping else 1.0

    def _observe(self) -> None:
        seen = self.backend.observe()
        self._undo_launches(seen)
        for item in seen:
            job = self._owner(item)
            if job is None:
                self._clear_away(item)
            elif item.state in ("running", "suspended") and job.state == JobState.STARTING:
                self.write([Entry("started", job.id, {"at_s": item.started_s or self.clock()})])
            elif item.state == "exited" or (item.state == "lost" and item.pid is None):
                self._ended(job, item)
            elif item.state == "lost":
                self._kill(item.key)

    def _ended(self, job: LiveJob, item: Observed) -> None:
        report = self.reports.of(job.id)
        end = outcomes.judge(job, item, report, self.clock())
        if job.last.started_s is None and item.started_s is not None:
            self.write([Entry("started", job.id, {"at_s": item.started_s})])
        self._exit(job, end.to, end.why, end.as_dict())
        self.counters["lost_work_s"] += end.lost_s
        self.reports.drop(job.id)
        self._forget(item.key)

    def _exit(self, job: LiveJob, to: JobState, why: str, more: dict[str, Any] | None = None) -> None:
        self.write([Entry("exit", job.id, {"to": str(to), "why": why, **(more or {})})])

    def _escalate(self) -> None:
        """Up the ladder: asked, then SIGTERM after the grace period, then SIGKILL after another."""
        now_s = self.clock()
        for job in list(self.book.active.values()):
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

    # -- deciding --------------------------------------------------------------------------------------------

    def _startable(self, job: LiveJob) -> bool:
        return job.state == JobState.PENDING and not job.held and not self._waits_for(job)

    def members(self, job: str) -> list[LiveJob]:
        """The job of this id, or all elements of the array of this id."""
        if job in self.book.jobs:
            return [self.book.jobs[job]]
        return [found for name, found in self.book.jobs.items() if name.startswith(job + ".")]

    def _waits_for(self, job: LiveJob) -> str:
        """The first job that must succeed before this one, if any; those long forgotten count as done."""
        for name in job.spec.after:
            for other in self.members(name):
                if other.state != JobState.SUCCEEDED:
                    return other.id
        return ""

    def _give_up_orphans(self) -> None:
        """A job whose predecessor failed will never start: say so now."""
        for job in list(self.book.active.values()):
            if job.spec.after and job.state == JobState.PENDING:
                other = self._waits_for(job)
                if other and self.book.jobs[other].finished:
                    why = f"job {other}, which it comes after, has {self.book.jobs[other].state}"
                    self.write([Entry("reject", job.id, {"why": why})])

    def _tables(self, policy: str = "") -> Tables | None:
        """Tables of what may run. Running jobs that may not be stopped are not offered; their GPUs are taken."""
        now_s = self.clock()
        types: dict[str, int] = {}
        nodes = [node for node in self.backend.nodes() if node.state == "up"]
        nodes.sort(key=lambda node: types.setdefault(node.gpu_type, len(types)))
        at = {node.name: number for number, node in enumerate(nodes)}
        fixed, movable = dict.fromkeys(at, 0), dict.fromkeys(at, 0)
        rows: list[Waiting] = []
        for job in self.book.active.values():
            running = job.state in (JobState.STARTING, JobState.RUNNING) and not job.stop_why
            if running:
                for node, indexes in job.last.gpus:
                    if node in at:
                        (movable if job.spec.preemptible else fixed)[node] += len(indexes)
            if (running and job.spec.preemptible) or self._startable(job):
                rows.append(self._row(job, now_s, at))
        room = {node.name: node.gpus - fixed[node.name] for node in nodes}
        for name in self.book.drained & room.keys():
            room[name] = movable[name]
        usable = [replace(node, gpus=room[node.name]) for node in nodes if room[node.name] > 0]
        if not rows or not usable:
            return None
        moved = {at[node.name]: number for number, node in enumerate(usable)}
        rows = [replace(row, slices=tuple((moved[n], g) for n, g in row.slices)) for row in rows]
        self._usable = usable
        return Tables(rows, usable, policy or self.book.policy, now_s)

    def _row(self, job: LiveJob, now_s: float, at: dict[str, int]) -> Waiting:
        report = self.reports.of(job.id)
        attained = job.attained_s(now_s)
        believed = outcomes.believed_total_s(job, report, attained, UNKNOWN_DURATION_S)
        running = job.state in (JobState.STARTING, JobState.RUNNING)
        slices = tuple((at[node], len(indexes)) for node, indexes in job.last.gpus if node in at) if running else ()
        return Waiting(
            id=job.id, order=job.order, tenant=job.tenant, gpus=job.spec.gpus, cpus=job.spec.cpus,
            mem_gib=job.spec.mem_gib, submitted_s=job.submitted_s, believed_s=believed,
            done_s=min(attained, believed), attained_s=attained,
            first_s=job.started_s if job.started_s is not None else float("nan"),
            since_s=job.last.launched_s if running else 0.0, slices=slices,
        )  # fmt: skip

    def _decide(self) -> Verdict:
        if not any(self._startable(job) for job in self.book.active.values()):
            return Verdict()
        began = time.perf_counter()
        tables = self._tables()
        verdict = tables.decide() if tables is not None else Verdict()
        self.counters["decisions"] += 1
        self.counters["decision_s"] = time.perf_counter() - began
        return verdict

    def _launch(self, job: LiveJob, slices: Sequence[tuple[int, int]]) -> None:
        """Start a job on GPUs that are really free; wait for victims otherwise."""
        gpus = []
        for number, count in slices:
            node = self._usable[number]
            free = self._free_indexes(node.name)
            if len(free) < count:
                return
            gpus.append((node.name, tuple(free[:count])))
        self.write([Entry("launch", job.id, {"gpus": gpus})])
        try:
            spec = self._launch_spec(job)
            self.hook("before:launched")
            self.backend.launch(spec)
        except (InputError, BackendError, OSError) as error:
            self._exit(job, JobState.FAILED, f"it could not be started: {error}", {"failure": True})
            self._forget(job.key)
        self.hook("after:launched")

    def _free_indexes(self, node: str) -> list[int]:
        size = next(item.gpus for item in self.backend.nodes() if item.name == node)
        used = {
            index
            for job in self.book.active.values()
            if job.state in ON_GPUS
            for name, indexes in job.last.gpus
            if name == node
            for index in indexes
        }
        return [index for index in range(size) if index not in used]

    def _launch_spec(self, job: LiveJob) -> LaunchSpec:
        spec = job.spec
        workdir = spec.workdir or str(self.home)
        env = {**spec.env, **self.reports.environment(job, self.home)}
        return LaunchSpec(
            key=job.key, job=job.id, workdir=workdir, script=spec.run, setup=spec.setup, env=env, gpus=job.last.gpus,
            mem_gib=spec.mem_gib or None, cpu_share=spec.cpus or None, grace_s=self.grace_s,
        )  # fmt: skip
