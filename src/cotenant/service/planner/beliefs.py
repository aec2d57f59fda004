"""What is believed of live jobs: how long they take, how fast they go, what stopping them costs and how.

Durations come from a job's own progress, else from what its owner says, else from a default; costs from what was
measured of jobs of its name. The planner writes all of it into the engine's tables.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles
from cotenant.core.jobspec import JobSpec
from cotenant.engine.live_rows import NewJob
from cotenant.service.observer.outcomes import UNKNOWN_DURATION_S, left_s
from cotenant.service.observer.reports import Report, Reports
from cotenant.service.store.book import Book
from cotenant.service.store.job import ASK, SUSPEND, Attempt, LiveJob

SAID_SPREAD, STEADY_SPREAD, UNKNOWN_SPREAD = 0.5, 0.05, 1.0  # of what an owner says, of progress, of neither
RESTORE_S = 10.0  # believed cost of stopping a live job, until measured ones are known


@dataclass(frozen=True, slots=True)
class Belief:
    """How long a job takes in all: the most of what is done + `more_s`, `least_s`, and `times` what it has attained.

    `spread`: the doubt about what is left, as the standard deviation of its logarithm.
    """

    more_s: float = -np.inf
    least_s: float = 0.0
    times: float = 0.0
    spread: float = SAID_SPREAD


class LiveBeliefs:
    """Beliefs from reports, measured costs and a profile."""

    def __init__(self, book: Book, reports: Reports, profiles: LiveProfiles, shares_hosts: bool) -> None:
        self.book, self.reports, self.profiles, self._shares_hosts = book, reports, profiles, shares_hosts

    def new_job(self, job: LiveJob) -> NewJob:
        """A job as the engine takes it in."""
        spec, kind = job.spec, self.kind(job.spec)
        cpus, mem_gib = (0.0, 0.0) if self._shares_hosts else (spec.cpus, spec.mem_gib)
        return NewJob(
            gpus=spec.gpus, submit_s=job.submitted_s, tenant=job.tenant, kind=self.profiles.kind_of(kind), cpus=cpus,
            mem_gib=mem_gib, nodes=spec.nodes, barred=self._barred(kind), gpu_gib=spec.gpu_mem_gib,
            priority=float(spec.priority), deadline_s=self.deadline_s(job),
            draw=zlib.crc32(job.id.encode()) / 2**32, steps_per_s=self.profiles.steps_per_s(kind),
        )  # fmt: skip

    @staticmethod
    def kind(spec: JobSpec) -> LiveKind:
        """What jobs have in common that run alike."""
        return LiveKind((spec.model, spec.gpus), spec.gpu_type, spec.gpu_mem_gib, not spec.preemptible, spec.batch_size)

    def _barred(self, kind: LiveKind) -> int:
        number = self.profiles.kind_of(kind)
        return sum(1 << at for at, speed in enumerate(self.profiles.speed[number, :, 0].tolist()) if speed <= 0)

    @staticmethod
    def deadline_s(job: LiveJob) -> float:
        """Its first deadline, NaN without one."""
        return job.submitted_s + job.spec.deadline_s if job.spec.deadline_s else np.nan

    def pace(self, job: LiveJob, attempt: Attempt, types: dict[str, str]) -> float:
        """Seconds of work per second of an attempt on its GPUs."""
        return self.profiles.of(job.spec.model, job.spec.gpus, types.get(attempt.gpus[0][0], ""))

    def lost_s(self, job: LiveJob, types: dict[str, str]) -> float:
        """Work of its last attempt that is in no checkpoint, at speed 1."""
        return job.last.lost_s * self.pace(job, job.last, types)

    def duration(self, job: LiveJob, types: dict[str, str]) -> Belief:
        """How long it takes in all at speed 1. What a job says is left is in seconds on the GPUs where it said so."""
        left = left_s(self.reports.of(job.id)) if job.attempts else None
        if left is not None:
            return Belief(left * self.pace(job, job.last, types), spread=STEADY_SPREAD)
        if job.left_s is not None:
            ended = next((one for one in reversed(job.attempts) if one.ended_s is not None), job.last)
            return Belief(job.left_s * self.pace(job, ended, types), spread=STEADY_SPREAD)
        if job.spec.expected_s:
            return Belief(more_s=1.0, least_s=job.spec.expected_s)
        return Belief(least_s=UNKNOWN_DURATION_S, times=2.0, spread=UNKNOWN_SPREAD)

    def restore_s(self, job: LiveJob) -> float:
        """What stopping it costs: as measured of its name and likely rung, else of all, else a guess."""
        cost_s = self.book.costs.measured_s(job.spec.name, self._likely_rung(job, self.reports.of(job.id)))
        return self.book.preemption_cost_s(RESTORE_S) if cost_s is None else cost_s

    def save_s(self, job: LiveJob) -> float:
        """From the order to leave until its GPUs are free."""
        rung = self._likely_rung(job, self.reports.of(job.id))
        cost = next((cost for name in (job.spec.name, "") if (cost := self.book.costs.of(name, rung)).taken), None)
        return cost.free_s / cost.taken if cost is not None else 0.0

    def exit_s(self, job: LiveJob) -> float:
        """From its last step until its process has ended."""
        return 0.0

    @staticmethod
    def _likely_rung(job: LiveJob, report: Report | None) -> str:
        """How it would be preempted: by asking if it can save, else as the last time; empty if nobody knows."""
        if report is not None and report.saves:
            return ASK
        return SUSPEND if job.state == "suspended" else job.last.rung if job.attempts else ""

    def saves(self, job: LiveJob) -> bool:
        """Whether it can be asked to save and leave."""
        report = self.reports.of(job.id)
        return report is not None and report.saves

    def ways(self, job: LiveJob, stands: bool) -> tuple[int, int]:
        """How it leaves GPUs (1: it stands still) and how it could, as in `YIELDS`; `stands`: it can be suspended."""
        saves = self.saves(job)
        return int(stands and not saves), stands + 2 * saves if job.spec.preemptible else 0
