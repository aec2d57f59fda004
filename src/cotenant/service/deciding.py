"""Which jobs should run: gather those that may, let the policy decide within its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cotenant.backends.base import Backend
from cotenant.core.lifecycle import ON_GPUS, WAITING, JobState
from cotenant.journal import Entry, Journal
from cotenant.service import outcomes
from cotenant.service.budget import Budget
from cotenant.service.ladder import Ladder
from cotenant.service.live import RESTORE_S, Tables, Verdict
from cotenant.service.livejob import ASK, CONTINUE, SUSPEND, LiveJob
from cotenant.service.options import Options
from cotenant.service.reports import Report
from cotenant.service.rows import Row, Rows, Slices

_PAST = {JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


class Decider(Ladder):
    """Keeps the columns of what may run up to date, and makes decisions of them."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self._rows = Rows()
        self._budget = Budget(options.budget_s)
        self._plan = Verdict()

    def _startable(self, job: LiveJob) -> bool:
        return job.state in WAITING and not job.held and not job.stop_why and not self._waits_for(job)

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
        attained = job.attained_s(now_s)
        done = max(attained - sum(attempt.lost_s for attempt in job.attempts), 0.0)
        report = self.reports.of(job.id) if job.state != JobState.PENDING else None
        believed = outcomes.believed_total_s(job, report, done, attained)
        first, since = job.started_s, 0.0
        if job.state in ON_GPUS:
            since = job.last.since_s or (job.rung_s if job.rung == CONTINUE else job.last.launched_s)
        cost_s = self.book.costs.measured_s(job.spec.name, self._likely_rung(job, report))
        return Row(job.id, job.tenant, job.spec.gpus, (
            job.submitted_s, believed, min(done, believed), attained, float("nan") if first is None else first,
            job.spec.cpus, job.spec.mem_gib, since, float("nan") if cost_s is None else cost_s,
        ))  # fmt: skip

    @staticmethod
    def _likely_rung(job: LiveJob, report: Report | None) -> str:
        """How it would be preempted: by asking if it can save, else as the last time; empty if nobody knows."""
        if report is not None and report.saves:
            return ASK
        return SUSPEND if job.state == JobState.SUSPENDED else job.last.rung if job.attempts else ""

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
