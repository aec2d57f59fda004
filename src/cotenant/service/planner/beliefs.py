"""What is believed of live jobs: how long they take, how fast they go, what coming and going costs, and how they leave.

Durations are blended of what a job's owner says, how long its like took, what a profile knows and, once it is warm, of
its own steps. What coming and going takes was measured of its kind, else of wider circles, else it is a guess. The
planner writes all of it into the engine's tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.beliefs.duration import (
    CLEAR,
    PROFILE_SPREAD,
    UNKNOWN_SPREAD,
    WORD_SPREAD,
    DurationGuess,
    LogTally,
    blend,
    with_own_progress,
)
from cotenant.beliefs.host_pace import HostPace
from cotenant.beliefs.live_profiles import LiveKind, LiveProfiles
from cotenant.beliefs.pairing import Pairing
from cotenant.beliefs.watched import Watched, learned_kind
from cotenant.engine.live_rows import NewJob
from cotenant.service.observer.outcomes import UNKNOWN_DURATION_S
from cotenant.service.observer.report import Report
from cotenant.service.observer.reports import Reports
from cotenant.service.planner.durations import LiveDurations
from cotenant.service.planner.phases import Phases
from cotenant.service.store.book import Book
from cotenant.service.store.job import Attempt, LiveJob
from cotenant.service.store.learned import STEP, WORD, Key, length_keys, user_key
from cotenant.workload.model_facts import skew
from cotenant.workload.profiles.lifecycle import LifecycleRow

_PROGRAMS = 64  # that are told apart: what is believed of pairs is looked up for all of them
_BEFORE_SPREAD = 0.15  # of what an earlier attempt of the job has shown
_STEP_SPREAD = 0.3  # of the steps of jobs of one kind, before their scatter is known
_MOST_WORDS = 20  # of a user's running jobs that are looked at: more would tell little more
_CLEARLY, _BOUND_S = 1.25, 1.0  # what a suspension must be better by than saving and starting again
_VAGUE, _DOUBTS = 1.25, 2.0  # a guess of a larger spread is at least so many times what the job has attained
_LATE = 0.2  # a start that takes longer than believed is believed to take so much of its age longer


@dataclass(frozen=True, slots=True)
class Belief:
    """How long a job takes in all: the most of what is done + `more_s`, `least_s`, and `times` what it has attained.

    `spread` is the standard deviation of the logarithm of the seconds that are left: 0.1 is about 10 percent.
    """

    more_s: float = -np.inf
    least_s: float = 0.0
    times: float = 0.0
    spread: float = UNKNOWN_SPREAD


class LiveBeliefs:
    """Beliefs from reports, measured costs and a profile."""

    def __init__(
        self, book: Book, reports: Reports, profiles: LiveProfiles, shares_hosts: bool, pairing: Pairing | None = None,
        durations: LiveDurations | None = None,
    ) -> None:  # fmt: skip
        self.book, self.reports, self.profiles, self._shares_hosts = book, reports, profiles, shares_hosts
        self.pairing, self._durations = pairing or Pairing(), durations or LiveDurations(book)
        self._programs = {kind.program for kind in profiles.kinds}
        self._phases = Phases(book, profiles)

    def new_job(self, job: LiveJob) -> NewJob:
        """A job as the engine takes it in."""
        spec, kind = job.spec, self.kind(job)
        cpus, mem_gib = (0.0, 0.0) if self._shares_hosts else (spec.cpus, spec.mem_gib)
        return NewJob(
            gpus=spec.gpus, submit_s=job.submitted_s, tenant=job.tenant, kind=self.profiles.kind_of(kind), cpus=cpus,
            mem_gib=mem_gib, nodes=spec.nodes, barred=self._barred(kind), gpu_gib=kind.least_gib or spec.gpu_mem_gib,
            priority=self.priority(job), deadline_s=self.deadline_s(job),
            draw=zlib.crc32(job.id.encode()) / 2**32, steps_per_s=self.profiles.steps_per_s(kind), weight=spec.weight,
            skew=float(skew([spec.model])[0]),
        )  # fmt: skip

    @staticmethod
    def priority(job: LiveJob) -> float:
        """Of jobs with the same priority, replicas of services come before training."""
        return job.spec.priority + (0.5 if job.spec.service else 0.0)

    def kind(self, job: Watched) -> LiveKind:
        """What jobs have in common that run alike; without a model, those of one program, while these are few."""
        spec, program = job.spec, "" if job.spec.model else learned_kind(job)[0]
        if program not in self._programs:
            if len(self._programs) < _PROGRAMS:
                self._programs.add(program)
            else:
                program = ""
        alone = spec.exclusive or not spec.preemptible
        known = (spec.model, spec.gpus), spec.gpu_type, spec.gpu_mem_gib, alone, spec.batch_size, program
        return LiveKind(*known, *self.profiles.squeezes(spec))

    def _barred(self, kind: LiveKind) -> int:
        number = self.profiles.kind_of(kind)
        return sum(1 << at for at, speed in enumerate(self.profiles.speed[number, :, 0].tolist()) if speed <= 0)

    @staticmethod
    def deadline_s(job: LiveJob) -> float:
        """Its first deadline, NaN without one."""
        return job.submitted_s + job.spec.deadline_s if job.spec.deadline_s else np.nan

    def pace(self, job: LiveJob, attempt: Attempt, types: dict[str, str]) -> float:
        """Seconds of work per second of an attempt on its GPUs."""
        known = not self.profiles.knows_nothing
        return self.profiles.of(self.kind(job), types.get(attempt.gpus[0][0], "")) if known else 1.0

    def lost_s(self, job: LiveJob, types: dict[str, str]) -> float:
        """Work of its last attempt that is in no checkpoint, at speed 1."""
        return job.last.lost_s * self.pace(job, job.last, types)

    # -- how long ------------------------------------------------------------------------------------------------

    def duration(
        self, job: LiveJob, types: dict[str, str], speed: float | None = None, each: DurationGuess | None = None,
        words: Mapping[Key, Sequence[float]] | None = None,
    ) -> Belief:  # fmt: skip
        """How long it takes in all at speed 1; `speed`: at which it runs now, `each`: as `step_before`, where known.

        What a job says is left is in seconds on the GPUs, and in the company, where it said so. `words`: see there.
        """
        report = self.reports.of(job.id) if job.attempts else None
        if report is not None and report.total and report.step is not None:
            each = each or self.step_before(job, report.total, types)
            if report.speed.step_s is not None and report.speed.mean_s:
                rate = self.pace(job, job.last, types) * in_company(self, job) if speed is None else speed
                measured = float(np.log(report.speed.mean_s * rate)), report.speed.spread
                log, spread = with_own_progress(float(np.log(each.seconds)), each.spread**-2, *measured)
                each = DurationGuess(float(np.exp(log)), spread)
            left_s = max(report.total - report.step, 0) * each.seconds
            return Belief(left_s + self.phases(job).exit_s, spread=each.spread)
        if job.left_s is not None:
            return Belief(self._left_s(job, types) + self.phases(job).exit_s, spread=_BEFORE_SPREAD)
        known = self._length(job, length_keys(job), (words or {}).get(user_key(job), ()))
        if known is None:
            return Belief(least_s=UNKNOWN_DURATION_S, times=_DOUBTS)
        times = _DOUBTS if known.spread > _VAGUE else 0.0
        return Belief(more_s=1.0, least_s=self._work_s(job, known.seconds), times=times, spread=known.spread)

    def step_before(self, job: LiveJob, total: int, types: dict[str, str]) -> DurationGuess:
        """What a step of it was thought to take at speed 1, all told, before its present process showed it."""
        steps_per_s = self.profiles.steps_per_s(self.kind(job)) if self.profiles.profile != "none" else 0.0
        profiled = DurationGuess(1 / steps_per_s, PROFILE_SPREAD) if steps_per_s > 0 else None
        keys = length_keys(job)
        like, length = self.book.learned.of(STEP, keys), self._length(job, keys)
        whole = DurationGuess(self._work_s(job, length.seconds) / total, length.spread) if length is not None else None
        shown = self._shown(job, total, types)
        found = blend((whole, profiled, like.guess(_STEP_SPREAD) if like is not None else None, shown))
        return found or DurationGuess(UNKNOWN_DURATION_S / total, UNKNOWN_SPREAD)

    def words(self, jobs: Iterable[LiveJob], types: dict[str, str]) -> dict[Key, list[float]]:
        """By user how right he was about jobs that run: the logarithm of what each will take over what he said.

        A job counts once it has said how many steps it makes, and it is known what one takes alone: long before its
        end, and for those who wait behind it.
        """
        found: dict[Key, list[float]] = {}
        for job in jobs:
            known = found.get(user_key(job), ())
            asked = job.attempts and job.spec.expected_s and len(known) < _MOST_WORDS
            report = self.reports.of(job.id) if asked else None
            step_s = self._step_alone_s(job, report, types) if report is not None and report.total else 0.0
            if report is not None and step_s > 0:
                lasts_s = self.come_s(job, job.last) + (report.total or 0) * step_s + self.phases(job).exit_s
                found.setdefault(user_key(job), []).append(float(np.log(lasts_s / job.spec.expected_s)))
        return found

    def _step_alone_s(self, job: LiveJob, report: Report, types: dict[str, str]) -> float:
        """What a step takes without company: as measured while nobody is there, else by the profile, else 0."""
        speed = report.speed
        if speed.mean_s and speed.spread <= CLEAR and not self.pairing.company.get(job.id):
            return speed.mean_s * self.pace(job, job.last, types)
        steps_per_s = self.profiles.steps_per_s(self.kind(job)) if self.profiles.profile != "none" else 0.0
        return 1 / steps_per_s if steps_per_s > 0 else 0.0

    def _length(self, job: LiveJob, keys: tuple[Key, ...], seen: Sequence[float] = ()) -> DurationGuess | None:
        """How long such a job lasts in all, its start included: its owner's word, and how long its like took."""
        learned, word, user = self.book.learned, None, (user_key(job),)
        if job.spec.expected_s:
            before = learned.of(WORD, keys, least=2) or learned.of(WORD, user) or LogTally()
            word = before.correct(job.spec.expected_s, WORD_SPREAD, seen)
        return blend((word, self._durations.history(job, keys)))

    def _work_s(self, job: LiveJob, lasts_s: float) -> float:
        """The work in a job that lasts so long from its launch to its end."""
        return max(lasts_s - self.phases(job).start_s, lasts_s / 2)

    def _left_s(self, job: LiveJob, types: dict[str, str]) -> float:
        """Work that was left when it saved and stopped, at speed 1."""
        ended = next((one for one in reversed(job.attempts) if one.ended_s is not None), job.last)
        return (job.left_s or 0.0) * self.pace(job, ended, types)

    def _shown(self, job: LiveJob, total: int, types: dict[str, str]) -> DurationGuess | None:
        """What a step took in an earlier attempt."""
        last = job.progress or {}
        steps = total - int(last.get("step") or 0)
        if job.left_s is not None and steps > 0:
            return DurationGuess(self._left_s(job, types) / steps, _BEFORE_SPREAD)
        step_s = last.get("step_time_s")
        return DurationGuess(float(step_s), 2 * _BEFORE_SPREAD) if step_s else None

    # -- coming and going ------------------------------------------------------------------------------------------

    def phases(self, job: LiveJob) -> LifecycleRow:
        """What coming and going takes for such a job.

        A start is from the launch of its process to its first finished step, without loading a checkpoint; leaving,
        from the request until its GPUs are free; an exit, from its last step until its process has ended.
        """
        return self._phases.of(job)

    def host_pace(self) -> HostPace:
        """How fast hosts are now, against when the profile was made."""
        return self._phases.host_pace()

    def start_doubt(self, job: LiveJob, pace: HostPace) -> tuple[float, float]:
        """By how much its start-up is off as believed, at this pace, and the doubt about it; logarithms."""
        return self._phases.start_doubt(job, pace)

    def come_s(self, job: LiveJob, attempt: Attempt) -> float:
        """What an attempt took, or is believed to take, until its steps began."""
        if attempt.start_s:
            return attempt.start_s
        phases = self.phases(job)
        come_s = phases.start_s + (phases.restore_s if attempt.number > 1 and job.progress else 0.0)
        return max(come_s - (attempt.launched_s - attempt.ahead_s), 0.0) if attempt.ahead_s else come_s

    def warm_s(self, job: LiveJob, now_s: float) -> float:
        """When its present process begins, or began, to make steps; while none is made it is pushed on. NaN: unknown.

        Of a process that has never spoken nobody knows when that is: it is believed to begin as its like do.
        """
        report, attempt = self.reports.of(job.id), job.last
        if report is not None and report.has_begun:
            return np.nan if report.ready_s is None else report.ready_s - (report.speed.step_s or 0.0)
        warm_s = attempt.launched_s + self.come_s(job, attempt)
        if report is None or attempt.start_s or now_s < warm_s:
            return warm_s
        return now_s + max(_LATE * (now_s - attempt.launched_s), 1.0)

    def is_ready(self, job: LiveJob, now_s: float) -> bool:
        """Whether its start is over, as far as anybody will ever know."""
        report = self.reports.of(job.id)
        return self.warm_s(job, now_s) <= now_s if report is None else report.has_begun

    # -- leaving ---------------------------------------------------------------------------------------------------

    def ways(self, job: LiveJob, stands: bool) -> tuple[int, int]:
        """How it leaves GPUs (1: it stands still) and how it could, as in `YIELDS`; `stands`: it can be suspended.

        Whoever can do both does what is believed to cost less until it is back at work; standing still has to cost
        clearly less, for it keeps memory and binds the job to its GPUs.
        """
        saves, phases = self.reports.can_save(job.id), self.phases(job)
        still_s, anew_s = phases.suspend_s + phases.resume_s, phases.save_s + phases.start_s + phases.restore_s
        still = _CLEARLY * still_s + _BOUND_S < anew_s
        return int(stands and (still or not saves)), stands + 2 * saves if job.spec.preemptible else 0


def in_company(beliefs: LiveBeliefs, job: LiveJob) -> float:
    """Speed of a job's steps beside its present company against alone, as measured, else as believed.

    What a job says is left is in seconds in this company: times this it is in seconds alone, as work is counted.
    """
    pairing, profiles = beliefs.pairing, beliefs.profiles
    others, pace = pairing.company.get(job.id, ()), pairing.paces.get(job.id, np.nan)
    if not others or np.isfinite(pace):
        return min(pace, 1.0) if others else 1.0
    numbers = [profiles.kind_of(beliefs.kind(one)) for one in (job, *others)]
    together, types, gpu_type = profiles.together(pairing.seen), profiles.types, pairing.gpu_type[job.id]
    ratios = together.ratio[numbers[0], numbers[1:], types.index(gpu_type) if gpu_type in types else 0]
    eased = together.easing()[numbers, [one.last.level for one in (job, *others)]]
    lost = (1.0 / np.where(ratios > 0, ratios, 0.5) - 1.0) * eased[0] * eased[1:]
    believed = 1.0 / (1.0 + float(lost.sum()))
    return believed * (float(together.pace[numbers[0], job.last.level]) or 1.0)
