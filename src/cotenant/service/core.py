"""The service: journal, book, backend and policy behind one lock.

Order of every change: write the intent to the journal, take it into the book, act. After a crash the book is
rebuilt and compared with what the backend really runs before anything is decided; launches carry a key, so
doing one again is harmless.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant.backends.base import Backend, BackendError, LaunchSpec, Observed
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Entry, Journal, JournalError, Record, recover
from cotenant.policies import make_policy
from cotenant.service import outcomes
from cotenant.service.book import WRITTEN, Book, LiveJob
from cotenant.service.budget import Budget
from cotenant.service.facade import Unavailable
from cotenant.service.live import RESTORE_S, Tables, Verdict
from cotenant.service.logs import Logs
from cotenant.service.reports import Reports
from cotenant.service.rows import Row, Rows, Slices
from cotenant.service.tokens import Tokens

SNAPSHOT_EVERY = 5000
KEEP_S = 30 * 86400.0  # how long finished jobs and their logs are kept
RETIRE_EVERY_S = 3600.0
DECISION_BUDGET_S = 2.0
_FORGET_AT_ONCE = 1000

Gpus = tuple[tuple[str, tuple[int, ...]], ...]
MOST_UNDONE = 5  # launches of one job that may leave no trace before it is given up


class Dispatcher:
    """Everything that is not asked for by a person: recovery, reconciliation, and `tick`."""

    def __init__(
        self, journal: Journal, backend: Backend, *, home: Path, policy: str = "", grace_s: float = 30.0,
        clock: Callable[[], float] = time.time, hook: Callable[[str], None] = lambda point: None,
        keep_s: float = KEEP_S, budget_s: float = DECISION_BUDGET_S,
    ) -> None:  # fmt: skip
        self.journal, self.backend, self.home = journal, backend, home
        self.grace_s, self.clock, self.hook, self.keep_s = grace_s, clock, hook, keep_s
        self._lock = threading.RLock()
        self._changed = threading.Condition()
        self._ready = False
        self._retired_s = clock()
        self._pending: deque[tuple[Future[list[int]], list[Entry]]] = deque()
        self._rows = Rows()
        self._budget = Budget(budget_s)
        self._plan = Verdict()
        self.reports = Reports(home / "runtime.sock")
        self.logs = Logs(home / "logs")
        names = ("decisions", "decision_timeouts", "preemptions", "lost_work_s", "decision_s")
        self.counters: dict[str, float] = dict.fromkeys(names, 0.0)
        self.book, self._since_snapshot = _recovered(journal)
        self.tokens_of = Tokens(self.book)
        if policy and policy != self.book.policy:
            make_policy(policy)
            self.write([Entry("policy", data={"policy": policy})])

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry]) -> list[int]:
        """Journal first, then the book. Nothing happened when this raises."""
        with self._lock:
            return self._end_write(self._begin_write(entries))

    def _begin_write(self, entries: Sequence[Entry]) -> Future[list[int]]:
        """Queue entries for the journal, with the lock held; `_end_write` waits, with or without it.

        Those who wait without the lock share one flush to disk. The book takes appends in the order in which
        they were queued, which is the order in which the journal answers them.
        """
        self.hook(f"before:{entries[0].kind}")
        now_s = self.clock()
        stamped = [Entry(entry.kind, entry.job, {**entry.data, WRITTEN: now_s}) for entry in entries]
        try:
            future = self.journal.submit(stamped)
        except JournalError as error:
            raise _refused(error) from error
        self._pending.append((future, stamped))
        return future

    def _end_write(self, future: Future[list[int]]) -> list[int]:
        try:
            numbers = future.result()
        except JournalError as error:
            raise _refused(error) from error
        with self._lock:
            self._settle()
        return numbers

    def _settle(self) -> None:
        """Take into the book what the journal has answered."""
        kinds = []
        while self._pending and self._pending[0][0].done():
            future, entries = self._pending.popleft()
            if future.exception() is not None:
                continue
            for number, entry in zip(future.result(), entries, strict=True):
                self.book.apply(Record(number, entry.data[WRITTEN], entry.kind, entry.job, entry.data))
            self._since_snapshot += len(entries)
            kinds.append(entries[0].kind)
        if kinds:
            with self._changed:
                self._changed.notify_all()
        for kind in kinds:
            self.hook(f"after:{kind}")

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
        job = self.book.on_gpus.get(item.key.rsplit("-", 1)[0])
        return job if job is not None and job.key == item.key else None

    def _undo_launches(self, seen: Sequence[Observed]) -> None:
        """Launches that were journaled but of which the world knows nothing: they did not happen."""
        keys = {item.key for item in seen}
        for job in list(self.book.on_gpus.values()):
            if job.key in keys:
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
        """Observe, end, escalate, decide, act; seconds after which to look again at the latest.

        The decision itself is made without the lock, on tables of its own; whatever changed meanwhile is
        checked again before acting.
        """
        with self._lock:
            self._observe()
            self._escalate()
            self._give_up_orphans()
            began = time.perf_counter()
            make = self._gathered() if self._anything_to_decide() else None
        verdict = self._decide(make(), began) if make is not None else Verdict()
        self._renew_explanations()
        with self._lock:
            for job_id in verdict.stops:
                job = self.book.on_gpus.get(job_id)
                if job is not None and job.spec.preemptible:
                    self._ask_to_stop(job, "preempt")
            self._launch_all(verdict.starts)
            if self._since_snapshot >= max(SNAPSHOT_EVERY, len(self.book.jobs) // 2):
                self.snapshot()
            if self.clock() - self._retired_s >= RETIRE_EVERY_S:
                self.retire()
            stopping = any(job.state == JobState.STOPPING for job in self.book.on_gpus.values())
            return 0.2 if stopping else 1.0

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
                    self.logs.retire(f"{job.id}-{attempt.number}")
                shutil.rmtree(self.home / "checkpoints" / job.id, ignore_errors=True)
                self.reports.forget(job.id)
            ids = [job.id for job in old]
            for at in range(0, len(ids), _FORGET_AT_ONCE):
                self.write([Entry("forget", data={"jobs": ids[at : at + _FORGET_AT_ONCE]})])
            self.snapshot()
            self.journal.prune(before_s, keep=self.book.jobs.keys())
            return len(ids)

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
            if item.state in ("running", "suspended") and job.state == JobState.STARTING:
                started.append(Entry("started", job.id, {"at_s": item.started_s or self.clock()}))
            elif item.state == "exited" or (item.state == "lost" and item.pid is None):
                ended.append((job, item))
                if job.last.started_s is None and item.started_s is not None:
                    started.append(Entry("started", job.id, {"at_s": item.started_s}))
            elif item.state == "lost":
                self._kill(item.key)
        if started:
            self.write(started)
        if ended:
            self._end_all(ended)

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

    # -- deciding --------------------------------------------------------------------------------------------

    def _startable(self, job: LiveJob) -> bool:
        return job.state == JobState.PENDING and not job.held and not self._waits_for(job)

    def _waits_for(self, job: LiveJob) -> str:
        """The first job that must succeed before this one, if any; those long forgotten count as done."""
        for name in job.spec.after:
            for other in self.book.members(name):
                if other.state != JobState.SUCCEEDED:
                    return other.id
        return ""

    def _give_up_orphans(self) -> None:
        """A job whose predecessor failed will never start: say so now."""
        entries = []
        for job in self.book.chained.values():
            before = (other for name in job.spec.after for other in self.book.members(name))
            failed = next((other for other in before if other.state in _PAST), None)
            if failed is not None:
                why = f"job {failed.id}, which it comes after, has {_PAST[failed.state]}"
                entries.append(Entry("reject", job.id, {"why": why}))
        if entries:
            self.write(entries)
            self._give_up_orphans()  # whoever comes after those

    def _anything_to_decide(self) -> bool:
        """Whether somebody waits who may start."""
        not_free = self.book.held.keys() | self.book.chained.keys() | self.book.on_gpus.keys()
        if len(self.book.active) > len(not_free):
            return True
        return any(self._startable(job) for job in self.book.chained.values())

    def _renew_explanations(self) -> None:
        """For whoever answers questions: a moment to prepare for the next ones, without the lock."""

    def _tables(self, policy: str = "") -> Tables | None:
        """Tables of what may run, or None when nothing may."""
        make = self._gathered(policy)
        return make() if make is not None else None

    def _gathered(self, policy: str = "") -> Callable[[], Tables] | None:
        """Gather what may run, with the lock held; the tables may then be made of it without.

        Running jobs that may not be stopped are not offered; their GPUs are taken.
        On a drained node nothing may start, so its jobs are not offered either: they run to their end.
        """
        now_s = self.clock()
        types: dict[str, int] = {}
        nodes = [node for node in self.backend.nodes() if node.state == "up" and node.name not in self.book.drained]
        nodes.sort(key=lambda node: types.setdefault(node.gpu_type, len(types)))
        taken = dict.fromkeys((node.name for node in nodes), 0)
        movable: list[LiveJob] = []
        for job in self.book.on_gpus.values():
            going_on = job.state != JobState.STOPPING
            if going_on and job.spec.preemptible and all(name in taken for name, _ in job.last.gpus):
                movable.append(job)
            elif going_on:
                for name, indexes in job.last.gpus:
                    if name in taken:
                        taken[name] += len(indexes)
        usable = []
        for node in nodes:
            used = taken[node.name]
            if used < node.gpus:
                usable.append(replace(node, gpus=node.gpus - used) if used else node)
        at = {node.name: number for number, node in enumerate(usable)}
        running = self._refresh_rows(movable, now_s, at)
        if not len(self._rows) or not usable:
            return None
        cost_s = self.book.preemption_cost_s(RESTORE_S)
        columns, policy = self._rows.columns(running), policy or self.book.policy
        return lambda: Tables(columns, usable, policy, now_s, cost_s)

    def _refresh_rows(self, movable: Sequence[LiveJob], now_s: float, at: dict[str, int]) -> list[tuple[str, Slices]]:
        """Write again the rows of jobs that changed, of those that run and of those that wait for others."""
        changed = {*self.book.touched, *self.book.on_gpus, *self.book.chained}
        self.book.touched.clear()
        runs = {job.id for job in movable}
        for job_id in changed:
            job = self.book.active.get(job_id)
            if job is not None and (job_id in runs or self._startable(job)):
                self._rows.put(job.order, self._row(job, now_s))
            else:
                self._rows.drop(job_id)
        slices = ((job.id, job.last.gpus) for job in movable)
        return [(job, tuple((at[node], len(indexes)) for node, indexes in gpus)) for job, gpus in slices]

    def _row(self, job: LiveJob, now_s: float) -> Row:
        running = job.state != JobState.PENDING
        attained = lost = 0.0
        first = None
        for attempt in job.attempts:
            if attempt.started_s is not None:
                attained += (now_s if attempt.ended_s is None else attempt.ended_s) - attempt.started_s
                lost += attempt.lost_s
                first = attempt.started_s if first is None else first
        done = max(attained - lost, 0.0)
        believed = outcomes.believed_total_s(job, self.reports.of(job.id) if running else None, done, attained)
        return Row(job.id, job.tenant, job.spec.gpus, (
            job.submitted_s, believed, min(done, believed), attained, float("nan") if first is None else first,
            job.spec.cpus, job.spec.mem_gib, job.last.launched_s if running else 0.0,
        ))  # fmt: skip

    def _decide(self, tables: Tables, began: float) -> Verdict:
        """A verdict in time, or the starts of the last one that were not possible yet."""
        verdict = tables.decide() if tables.quick else self._budget.decide(tables.decide)
        self.counters["decisions"] += 1
        self.counters["decision_s"] = time.perf_counter() - began
        if verdict is None:
            self.counters["decision_timeouts"] += 1
            return Verdict(self._plan.starts)
        self._plan = verdict
        return verdict

    def _launch_all(self, starts: Sequence[tuple[str, tuple[tuple[str, int], ...]]]) -> None:
        """Start jobs on GPUs that are really free; others wait for their victims to end."""
        if not starts:
            return
        free = self._free_gpus()
        chosen: list[tuple[LiveJob, Gpus]] = []
        for job_id, slices in starts:
            job = self.book.active.get(job_id)
            if job is None or not self._startable(job):
                continue
            if all(len(free.get(node, ())) >= count for node, count in slices):
                chosen.append((job, tuple((node, tuple(free[node][:count])) for node, count in slices)))
                for node, count in slices:
                    free[node] = free[node][count:]
        if not chosen:
            return
        self.write([Entry("launch", job.id, {"gpus": gpus}) for job, gpus in chosen])
        for job, _ in chosen:
            self._launch(job)

    def _launch(self, job: LiveJob) -> None:
        """The launch is journaled: do it."""
        try:
            spec = self._launch_spec(job)
            self.hook("before:launched")
            self.backend.launch(spec)
        except (InputError, BackendError, OSError) as error:
            self._exit(job, JobState.FAILED, f"it could not be started: {error}", {"failure": True})
            self._forget(job.key)
        self.hook("after:launched")

    def _free_gpus(self) -> dict[str, list[int]]:
        """Indexes of free GPUs per node that takes jobs."""
        used: dict[str, set[int]] = {}
        for job in self.book.on_gpus.values():
            for name, indexes in job.last.gpus:
                used.setdefault(name, set()).update(indexes)
        return {
            node.name: [index for index in range(node.gpus) if index not in used.get(node.name, ())]
            for node in self.backend.nodes()
            if node.state == "up" and node.name not in self.book.drained
        }

    def _launch_spec(self, job: LiveJob) -> LaunchSpec:
        spec = job.spec
        workdir = spec.workdir or str(self.home)
        env = {**spec.env, **self.reports.environment(job, self.home)}
        return LaunchSpec(
            key=job.key, job=job.id, workdir=workdir, script=spec.run, setup=spec.setup, env=env, gpus=job.last.gpus,
            mem_gib=spec.mem_gib or None, cpu_share=spec.cpus or None, grace_s=self.grace_s,
        )  # fmt: skip


def _recovered(journal: Journal) -> tuple[Book, int]:
    """The book of a journal, and how many records were replayed for it: those count towards the next snapshot.

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
    return book, book.seq - covered


_PAST = {JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


def _refused(error: JournalError) -> Unavailable:
    return Unavailable(f"the journal cannot be written, nothing was accepted: {error}")
