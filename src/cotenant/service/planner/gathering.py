"""Gathering what may run, as the columns of one decision: rows kept up to date, promises, and what is known of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cotenant.backends.base import Backend, NodeInfo
from cotenant.core.columns import SLOTS
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.plan import Terms
from cotenant.journal import Journal
from cotenant.policies import make_policy
from cotenant.service.executor.ladder import Ladder
from cotenant.service.observer import outcomes
from cotenant.service.observer.reports import Report
from cotenant.service.options import Options
from cotenant.service.planner.live import RESTORE_S, Promise, Setting, Tables
from cotenant.service.planner.memory import Memory, shares
from cotenant.service.planner.pairing import Pairing
from cotenant.service.planner.rows import MOST, Columns, Row, Rows, Slices
from cotenant.service.planner.sharing import can_share, cells, guests_of, masks_of, used_gpus
from cotenant.service.planner.speeds import Speeds
from cotenant.service.planner.training import Trainings
from cotenant.service.store.job import ASK, SUSPEND, Attempt, Gpus, LiveJob, waits_for


class Gatherer(Ladder):
    """Keeps the columns of what may run up to date, and makes tables of them."""

    def __init__(self, journal: Journal, backend: Backend, options: Options) -> None:
        super().__init__(journal, backend, options)
        self._rows = Rows()
        self._offered: tuple[set[str], bool] = set(), False  # running jobs at the last look, and whether it chose
        self.shares_hosts = bool(options.allocator) and options.allocator.split(":")[0] != "fixed"
        self._promised: dict[str, tuple[tuple[str, int], ...]] = {}  # under policies that choose: starts to come
        self._beside: dict[str, str] = {}  # under policies that share: guest -> host, as planned
        self._places: dict[str, Gpus] = {}  # under policies that name GPUs: those of each job that is to run
        self._terms: dict[str, Terms] = {}  # what was agreed with it
        self._need_gib: dict[str, float] = {}  # and the memory per GPU that it needs on these terms
        self._forgiven_s: dict[str, float] = {}  # under policies that promote who has starved: see `Setting`
        self._pairing = Pairing()
        self._paces = self._pairing.paces  # as they are in the rows
        self._trainings = Trainings()
        self._memory: Memory | None = None
        self.round_s = options.round_s
        self._types = {node.name: node.gpu_type for node in backend.nodes()}
        self._speeds = Speeds(options.profile, self._types.values())

    def _comes_back(self, job: LiveJob) -> bool:
        """Whether it gives its GPUs back only to have others, or these again, later."""
        return job.stop_why in ("preempt", "move", "turn", "resize") and job.spec.preemptible and not job.held

    def _startable(self, job: LiveJob) -> bool:
        return job.state in WAITING and not job.held and not job.stop_why and not self._waits_for(job)

    def _waits_for(self, job: LiveJob) -> str:
        return waits_for(job, self.book.members)

    def _retired(self, job: str) -> None:
        self._rows.forget(job)
        self._pairing.forget(job)
        self._trainings.forget(job)
        self._forgiven_s.pop(job, None)

    def _tables(self, policy: str = "") -> Tables | None:
        """Tables of what may run, or None when nothing may."""
        make = self._gathered(policy)
        return make() if make is not None else None

    def _gathered(self, policy: str = "", memory: Memory | None = None) -> Callable[[], Tables] | None:
        """Gather what may run, with the lock held; the tables may then be made of it without.

        Running jobs that may not be stopped are not offered; their GPUs are taken.
        On a drained node nothing may start, so its jobs are not offered either: they run to their end.
        `memory` is for decisions; who only asks gets a fresh policy, for it must not be touched by two.
        """
        now_s = self.clock()
        types: dict[str, int] = {}
        every = sorted(self.backend.nodes(), key=lambda node: types.setdefault(node.gpu_type, len(types)))
        nodes = [node for node in every if node.state == "up" and node.name not in self.book.drained]
        taken: dict[str, set[int]] = {node.name: set() for node in nodes}
        movable: list[LiveJob] = []
        for job in self.book.on_gpus.values():
            going_on = job.state != JobState.STOPPING
            if going_on and job.spec.preemptible and all(name in taken for name, _ in job.last.gpus):
                movable.append(job)
            elif going_on:
                for name, indexes in job.last.gpus:
                    if name in taken:
                        taken[name].update(indexes)
        if any(taken.values()):
            movable = [job for job in movable if not any(taken[name] & {*gpus} for name, gpus in job.last.gpus)]
        open_ = {node.name: [gpu for gpu in range(node.gpus) if gpu not in taken[node.name]] for node in nodes}
        left = {name: len(gpus) for name, gpus in open_.items() if gpus}
        # For a policy that remembers pools they must not change: what gives nothing now stays, with no GPUs.
        keep = memory is not None and memory.chooses
        usable = [_with_gpus(node, left.get(node.name, 0)) for node in every if keep or node.name in left]
        hosts = guests_of(movable) if self.book.shared_gpus else {}
        running = self._refresh_rows(sorted(movable, key=lambda job: job.id in hosts))
        policy, seq = policy or self.book.policy, self.book.seq
        asked = memory.policy if memory is not None else make_policy(policy)
        sharing = shares(asked)
        masks = masks_of(movable, open_) if sharing and can_share(every) else {}
        named = bool(self._places)
        coming = self._coming_to(movable, open_, masks) if named else self._coming(movable, dict(left), hosts)
        if not len(self._rows) or not left:
            return None
        columns = self._rows.columns(
            now_s, _numbered([*running, *coming], usable), {job for job, _ in coming}, masks, hosts
        )  # fmt: skip
        setting = self._setting(every, open_, asked.overcommits)
        if memory is not None and memory.resizes and columns.of(MOST).any():
            setting = self._with_training(setting, columns, sum(left.values()))
        kept = memory if memory is not None and memory.remembers else None
        return lambda: Tables(columns, usable, policy, now_s, setting, memory=kept, seq=seq)

    def _setting(self, nodes: Sequence[NodeInfo], open_: Mapping[str, Sequence[int]], overcommits: bool) -> Setting:
        gpu_gib: dict[str, float] = {}
        for node in nodes:
            gpu_gib[node.gpu_type] = min(node.gpu_mem_gib, gpu_gib.get(node.gpu_type, node.gpu_mem_gib))
        cost_s = self.book.preemption_cost_s(RESTORE_S)
        terms = {job.id: Terms(level=job.last.level) for job in self.book.on_gpus.values() if job.last.level}
        if overcommits:
            terms |= self._without_claim()
        terms |= self._terms
        soft = {
            job.id: tuple((job.submitted_s + after_s, worth) for after_s, worth in job.spec.deadline_steps)
            for job in self.book.active.values()
            if job.spec.deadline_steps
        }
        told = self._pairing.seen, terms, open_, soft
        return Setting(self._speeds, self.round_s, cost_s, gpu_gib, *told, forgiven_s=dict(self._forgiven_s))

    def _without_claim(self) -> dict[str, Terms]:
        """Terms of jobs that use what others leave over, as far as they show without the policy's memory.

        Those of negative priority, and those that came to GPUs of others: the policy makes the latter more if it can.
        """
        guests = guests_of(self.book.on_gpus.values()) if self.book.shared_gpus else {}
        found = (job for job in self.book.on_gpus.values() if job.spec.priority < 0 or job.id in guests)
        return {job.id: Terms(level=job.last.level, opportunistic=True) for job in found}

    def _with_training(self, setting: Setting, columns: Columns, gpus: int) -> Setting:
        """What elastic jobs have told. One that runs but cannot save keeps its size, or it would lose all its work."""
        names = [str(name) for name in columns.ids]
        jobs = {name: job for name in names if (job := self.book.active[name]).elastic}
        reports = {name: report for name in jobs if (report := self.reports.of(name)) is not None}
        for name, job in jobs.items():
            if job.state == JobState.RUNNING:
                self._trainings.look(job, reports.get(name))
        may = [
            name in jobs and (jobs[name].state == JobState.PENDING or (name in reports and reports[name].saves))
            for name in names
        ]  # fmt: skip
        training = self._trainings.table(names, jobs, reports, gpus, setting.restore_s)
        return replace(setting, training=training, resizable=np.array(may, bool))

    def _coming_to(
        self, movable: Sequence[LiveJob], open_: Mapping[str, Sequence[int]], masks: dict[str, tuple[int, ...]]
    ) -> list[Promise]:
        """Jobs that are promised GPUs by name, as long as these can be given away; their masks are entered."""
        users = Counter(cell for job in movable for cell in cells(job.last.gpus))
        there = {job.id for job in movable}
        coming = []
        for job in self._promised:
            gpus = self._places.get(job, ())
            mine = cells(gpus)
            if job not in self._rows or job in there or not mine:
                continue
            if any(index not in open_.get(node, ()) or users[node, index] >= SLOTS for node, index in mine):
                continue
            users.update(mine)
            masks[job] = tuple(sum(1 << open_[node].index(index) for index in indexes) for node, indexes in gpus)
            coming.append((job, tuple((node, len(indexes)) for node, indexes in gpus)))
        return coming

    def _coming(self, movable: Sequence[LiveJob], left: dict[str, int], hosts: dict[str, str]) -> list[Promise]:
        """Jobs that are promised GPUs which are, or will be, free of those that run. Takes them from `left`.

        Guests come after their hosts, need nothing of their own, and are entered in `hosts`.
        """
        if not self._promised:
            return []
        there = {job.id for job in movable}
        for name, count in used_gpus(movable).items():
            left[name] -= count
        coming = []
        for job, slices in sorted(self._promised.items(), key=lambda promise: promise[0] in self._beside):
            if job not in self._rows or job in there:
                continue
            host = self._beside.get(job, "")
            if host in there:
                hosts[job] = hosts.get(host, host)
            elif all(left.get(name, 0) >= count for name, count in slices):
                for name, count in slices:
                    left[name] -= count
            else:
                continue
            there.add(job)
            coming.append((job, slices))
        return coming

    def _refresh_rows(self, movable: Sequence[LiveJob]) -> list[Promise]:
        """Write again the rows of jobs that changed, of those that wait for others, and of those that spoke.

        A policy that chooses goes on to see jobs that it stopped while they are about to leave: to take them for
        gone would be to solve its problem anew at every turn.
        """
        spoke = self.reports.news()  # before anything is read: who speaks from now on is heard the next time
        chooses = self._memory is not None and self._memory.chooses
        runs = {job.id for job in movable}
        changed = {*self.book.touched, *self.book.chained, *(runs ^ self._offered[0])}
        if chooses != self._offered[1]:
            changed.update(self.book.on_gpus)
        self._offered = runs, chooses
        self.book.touched.clear()
        for job_id in changed:
            job = self.book.active.get(job_id)
            offered = job is not None and (job_id in runs or self._startable(job))
            if job is not None and (offered or (chooses and self._comes_back(job))):
                self._rows.put(job.order, self._row(job))
            else:
                self._rows.drop(job_id)
        self._hear(spoke, changed)
        return [(job.id, tuple((node, len(indexes)) for node, indexes in job.last.gpus)) for job in movable]

    def _hear(self, spoke: set[str], written: set[str]) -> None:
        """Take in what is new of jobs on GPUs though nothing happened to them, unless they were just written.

        They said something, jobs of their name were preempted at some cost, or others slow them more or less.
        """
        on_gpus, names, paces = self.book.on_gpus, self.book.costs.news, self._pairing.paces
        self.book.costs.news = set()
        dearer = (job.id for job in on_gpus.values() if job.spec.name in names) if names else ()
        paced, self._paces = self._paces, paces
        slowed = dict(paces.items() ^ paced.items()) if paces is not paced else ()
        new = spoke.union(dearer, slowed) - written
        jobs = [on_gpus[name] for name in new if name in on_gpus and name in self._rows]
        if not jobs:
            return
        known: dict[tuple[str, str], float] = {}
        costs, beliefs = [], []
        for job, report in zip(jobs, self.reports.of_all(job.id for job in jobs), strict=True):
            kind = job.spec.name, self._likely_rung(job, report)
            if kind not in known:
                known[kind] = self._cost_s(*kind)
            costs.append(known[kind])
            beliefs.append(outcomes.belief(job, report, partial(self._pace, job)))
        self._rows.hear([job.id for job in jobs], costs, [paces.get(job.id, np.nan) for job in jobs], beliefs)

    def _pace(self, job: LiveJob, attempt: Attempt) -> float:
        return self._speeds.of(job.spec.model, job.spec.gpus, self._types.get(attempt.gpus[0][0], ""))

    def _cost_s(self, name: str, rung: str) -> float:
        cost_s = self.book.costs.measured_s(name, rung)
        return np.nan if cost_s is None else cost_s

    def _row(self, job: LiveJob) -> Row:
        spec, pace = job.spec, partial(self._pace, job)
        report = self.reports.of(job.id) if job.state != JobState.PENDING else None
        first = job.started_s
        values = (
            job.submitted_s, np.nan if first is None else first, *self._host_demand(job), job.since_s,
            self._cost_s(spec.name, self._likely_rung(job, report)),
            job.submitted_s + spec.deadline_s if spec.deadline_s else np.nan, float(spec.priority),
            spec.gpu_mem_gib, float(not spec.preemptible), float(spec.nodes), float(spec.batch_size),
            self._pairing.paces.get(job.id, np.nan), float(spec.min_gpus), float(spec.max_gpus),
        )  # fmt: skip
        clock, belief = outcomes.clock(job, pace), outcomes.belief(job, report, pace)
        return Row(job.id, job.tenant, spec.gpus, values, spec.model, spec.gpu_type, clock, belief)

    def _host_demand(self, job: LiveJob) -> tuple[float, float]:
        """Cores and memory that must be free for it; none where an allocator deals them out anew."""
        return (0.0, 0.0) if self.shares_hosts else (job.spec.cpus, job.spec.mem_gib)

    @staticmethod
    def _likely_rung(job: LiveJob, report: Report | None) -> str:
        """How it would be preempted: by asking if it can save, else as the last time; empty if nobody knows."""
        if report is not None and report.saves:
            return ASK
        return SUSPEND if job.state == JobState.SUSPENDED else job.last.rung if job.attempts else ""


def _with_gpus(node: NodeInfo, gpus: int) -> NodeInfo:
    return node if node.gpus == gpus else replace(node, gpus=gpus)


def _numbered(placed: Sequence[Promise], nodes: Sequence[NodeInfo]) -> list[tuple[str, Slices]]:
    """The same with numbers of nodes for their names."""
    at = {node.name: number for number, node in enumerate(nodes)}
    return [(job, tuple((at[name], count) for name, count in slices)) for job, slices in placed]
