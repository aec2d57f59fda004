"""What is believed of live jobs: how long they take, how fast they go, what stopping them costs and how.

Durations come from a job's own progress, else from what its owner says, else from a default; costs from what was
measured of jobs of its name. The planner writes all of it into the engine's tables.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles
from cotenant.beliefs.pairing import Pairing
from cotenant.beliefs.watched import Watched, learned_kind
from cotenant.engine.live_rows import NewJob
from cotenant.service.observer.outcomes import UNKNOWN_DURATION_S, left_s
from cotenant.service.observer.reports import Report, Reports
from cotenant.service.store.book import Book
from cotenant.service.store.job import ASK, SUSPEND, Attempt, LiveJob

_PROGRAMS = 64  # that are told apart: what is believed of pairs is looked up for all of them
RESTORE_S = 10.0  # believed cost of stopping a live job, until measured ones are known


@dataclass(frozen=True, slots=True)
class Belief:
    """How long a job takes in all: the most of what is done + `more_s`, `least_s`, and `times` what it has attained."""

    more_s: float = -np.inf
    least_s: float = 0.0
    times: float = 0.0


class LiveBeliefs:
    """Beliefs from reports, measured costs and a profile."""

    def __init__(
        self, book: Book, reports: Reports, profiles: LiveProfiles, shares_hosts: bool, pairing: Pairing | None = None
    ) -> None:
        self.book, self.reports, self.profiles, self._shares_hosts = book, reports, profiles, shares_hosts
        self._pairing = pairing or Pairing()
        self._programs = {kind.program for kind in profiles.kinds}

    def new_job(self, job: LiveJob) -> NewJob:
        """A job as the engine takes it in."""
        spec, kind = job.spec, self.kind(job)
        cpus, mem_gib = (0.0, 0.0) if self._shares_hosts else (spec.cpus, spec.mem_gib)
        return NewJob(
            gpus=spec.gpus, submit_s=job.submitted_s, tenant=job.tenant, kind=self.profiles.kind_of(kind), cpus=cpus,
            mem_gib=mem_gib, nodes=spec.nodes, barred=self._barred(kind), gpu_gib=spec.gpu_mem_gib,
            priority=float(spec.priority), deadline_s=self.deadline_s(job),
            draw=zlib.crc32(job.id.encode()) / 2**32, steps_per_s=self.profiles.steps_per_s(kind),
        )  # fmt: skip

    def kind(self, job: Watched) -> LiveKind:
        """What jobs have in common that run alike; without a model, those of one program, while these are few."""
        spec, program = job.spec, "" if job.spec.model else learned_kind(job)[0]
        if program not in self._programs:
            if len(self._programs) < _PROGRAMS:
                self._programs.add(program)
            else:
                program = ""
        alone = spec.exclusive or not spec.preemptible
        return LiveKind((spec.model, spec.gpus), spec.gpu_type, spec.gpu_mem_gib, alone, spec.batch_size, program)

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

    def in_company(self, job: LiveJob) -> float:
        """Speed of its steps beside its present company against alone, as measured, else as believed.

        What a job says is left is in seconds in this company: times this it is in seconds alone, as work is counted.
        """
        others = self._pairing.company.get(job.id, ())
        pace = self._pairing.paces.get(job.id, np.nan)
        if not others or np.isfinite(pace):
            return min(pace, 1.0) if others else 1.0
        numbers = [self.profiles.kind_of(self.kind(one)) for one in (job, *others)]
        together, types = self.profiles.together(self._pairing.seen), self.profiles.types
        at = types.index(self._pairing.gpu_type[job.id]) if self._pairing.gpu_type[job.id] in types else 0
        ratios = together.ratio[numbers[0], numbers[1:], at]
        believed = 1.0 / (1.0 + float((1.0 / np.where(ratios > 0, ratios, 0.5) - 1.0).sum()))
        return believed * (float(together.pace[numbers[0], job.last.level]) or 1.0)

    def lost_s(self, job: LiveJob, types: dict[str, str]) -> float:
        """Work of its last attempt that is in no checkpoint, at speed 1."""
        return job.last.lost_s * self.pace(job, job.last, types)

    def duration(self, job: LiveJob, types: dict[str, str]) -> Belief:
        """How long it takes in all at speed 1. What a job says is left is in seconds on the GPUs where it said so."""
        left = left_s(self.reports.of(job.id)) if job.attempts else None
        if left is not None:
            return Belief(left * self.pace(job, job.last, types) * self.in_company(job))
        if job.left_s is not None:
            ended = next((one for one in reversed(job.attempts) if one.ended_s is not None), job.last)
            return Belief(job.left_s * self.pace(job, ended, types))
        if job.spec.expected_s:
            return Belief(more_s=1.0, least_s=job.spec.expected_s)
        return Belief(least_s=UNKNOWN_DURATION_S, times=2.0)

    def restore_s(self, job: LiveJob) -> float:
        """What stopping it costs: as measured of its name and likely rung, else of all, else a guess."""
        cost_s = self.book.costs.measured_s(job.spec.name, self._likely_rung(job, self.reports.of(job.id)))
        return self.book.preemption_cost_s(RESTORE_S) if cost_s is None else cost_s

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
