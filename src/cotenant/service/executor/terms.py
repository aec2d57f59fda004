"""On what terms attempts run, as told to their runtime, and what they are launched with.

Smaller sub-batches hold from the start; a pause after every step makes a job use only a part of its GPUs' time, and
follows what the job says of its steps. Jobs of one line take turns at the stages of their steps while they run on the
same GPUs. A job without the runtime runs at full speed: it cannot be held back, only suspended or stopped. Nothing of
this is journaled but the level and the slice: the planner says the rest again after a crash.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

from cotenant.backends.base import LaunchSpec
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import ALONE, Terms
from cotenant.runtime.protocol import Settings, TakeTurns
from cotenant.service.executor.host_limits import Given
from cotenant.service.observer.report import Report
from cotenant.service.observer.reports import Reports
from cotenant.service.store.job import LiveJob

LONGEST_PAUSE_S = 60.0
_SAME = 0.1  # pauses that differ by less than this part are not told anew


class AgreedTerms:
    """Keeps the terms of every attempt and tells them. `paced`: somebody else may tell pauses as well."""

    def __init__(self, reports: Reports, adopted: Iterable[LiveJob], paced: bool) -> None:
        self._reports, self._paced, adopted = reports, paced, tuple(adopted)
        self._terms: dict[str, Terms] = {}  # by key of the attempt
        self._pauses_s: dict[str, float] = {}  # what it was told last
        self._adopted = {job.key for job in adopted}  # whom an earlier service may have told to pause, and this not yet
        self._squeezed = {job.id: job.key for job in adopted if job.spec.gpu_mem_min_gib}  # or granted less memory
        self.lines: tuple[tuple[str, ...], ...] = ()  # groups that take turns, as planned

    def of(self, job: LiveJob) -> Terms:
        """What was agreed with its present attempt."""
        return self._terms.get(job.key, ALONE)

    def agree(self, job: LiveJob, terms: Terms, need_gib: float = 0.0) -> None:
        """From now on these hold; `need_gib` of each GPU's memory is granted to one that can do with less."""
        if need_gib and job.spec.gpu_mem_min_gib:
            self._reports.set_for(job.id, Settings(gpu_mem_gib=round(need_gib, 3)))
            self._squeezed.pop(job.id, None)
        self._terms.pop(job.key, None)
        if terms != ALONE:
            self._terms[job.key] = terms

    def cut_batch(self, job: LiveJob) -> None:
        """Before it starts: its share of a batch in 2**level parts, whose gradients it adds up."""
        level = job.last.level
        if level and job.spec.batch_size:
            self._reports.set_for(job.id, Settings(max(job.spec.batch_size >> level, 1), 2**level))

    def give_back(self, on_gpus: Mapping[str, LiveJob], shares: Callable[[LiveJob], bool]) -> None:
        """Whom an earlier service may have granted less memory, and who is alone by now, may use all it asks for."""
        for name, key in tuple(self._squeezed.items()):
            job = on_gpus.get(name)
            if job is None:  # suspended, say
                continue
            if job.key != key:
                del self._squeezed[name]
            elif job.state == JobState.RUNNING and not shares(job):
                self._reports.set_for(name, Settings(gpu_mem_gib=job.spec.gpu_mem_gib))
                del self._squeezed[name]

    def tell(self, on_gpus: Mapping[str, LiveJob], suspended: Mapping[str, LiveJob]) -> None:
        """Have jobs pause after each step so that they use no more than their share of the time, and take turns."""
        self._reports.lines.tell(_turns(self.lines, on_gpus))
        if not (self._terms or self._pauses_s or self._adopted):
            return
        for job in on_gpus.values():
            report = self._reports.of(job.id)
            if job.state != JobState.RUNNING or report is None or not report.step_time_s:
                continue
            paused_s, before_s = _pause_s(self.of(job), report), self._pauses_s.get(job.key, 0.0)
            unknown = job.key in self._adopted and not self._paced
            if unknown or abs(paused_s - before_s) > _SAME * max(before_s, paused_s):
                self._pauses_s[job.key] = paused_s
                self._adopted.discard(job.key)
                self._reports.set_for(job.id, Settings(throttle_s=paused_s))
        alive = {job.key for jobs in (on_gpus, suspended) for job in jobs.values()}
        for kept in (self._terms, self._pauses_s):
            for key in kept.keys() - alive:
                del kept[key]
        self._adopted &= alive


def _turns(lines: Iterable[Iterable[str]], on_gpus: Mapping[str, LiveJob]) -> dict[str, TakeTurns]:
    """What members are told who run on the same GPUs by now; whoever is alone takes no turns."""
    told: dict[str, TakeTurns] = {}
    for line in lines:
        here: dict[object, list[LiveJob]] = {}
        for job in (on_gpus[name] for name in line if name in on_gpus):
            if job.state == JobState.RUNNING:
                here.setdefault(job.last.gpus, []).append(job)
        for gpus, jobs in here.items():
            where, orders = f"gpus-{zlib.crc32(repr(gpus).encode()):08x}", [job.order for job in jobs]
            if len(jobs) > 1:
                told |= {job.id: TakeTurns(where, job.order, orders) for job in jobs}
    return told


def _pause_s(terms: Terms, report: Report) -> float:
    if terms.turn or terms.share >= 1 or not report.step_time_s:
        return 0.0
    return pause_s(report.step_time_s, terms.share)


def pause_s(step_s: float, share: float) -> float:
    """How long to pause after a step of so long, so that steps are this share of the time (AntMan's released code).

    Of no share at all the longest pause, which is not for ever, lest nobody hear of the job.
    """
    return min(step_s * (1 / max(share, 1e-9) - 1), LONGEST_PAUSE_S)


def _peak(spec: JobSpec) -> dict[str, str]:
    """All that a job needs of a GPU's memory, where it can do with less."""
    return {"COTENANT_GPU_MEM_PEAK_GIB": f"{spec.gpu_mem_gib:g}"} if spec.gpu_mem_min_gib else {}


def _target(spec: JobSpec) -> dict[str, str]:
    """What a service counts its requests by."""
    return {"COTENANT_TARGET_MS": f"{1000 * spec.service['target_s']:g}"} if spec.service else {}


def launch_spec(
    job: LiveJob, checkpoints: str, reports: Reports, grace_s: float, need_gib: float, given: Given | None, quota: bool
) -> LaunchSpec:
    """Everything the present attempt needs. A job with smaller sub-batches may use less of its GPUs' memory."""
    spec = job.spec
    part = job.size / spec.gpus if spec.gpus else 1.0  # cores and memory go with the GPUs of an elastic job
    cpus, mem_gib = part * spec.cpus or None, part * spec.mem_gib or None
    if given is not None:
        cpus, mem_gib = given.cpus if quota else None, given.mem_gib or mem_gib
    return LaunchSpec(
        key=job.key, job=job.id, workdir=spec.workdir, script=spec.run, setup=spec.setup,
        env={**spec.env, **reports.environment(job, checkpoints), **_peak(spec), **_target(spec)}, gpus=job.last.gpus,
        mem_gib=mem_gib,
        gpu_mem_gib=need_gib or spec.gpu_mem_gib or None, cpu_share=cpus, grace_s=grace_s,
        max_runtime_s=spec.max_runtime_s,
        calls_home=reports.calls_home(job), tenant=job.tenant, image=spec.image, tty=spec.tty,
        foreign=spec.foreign, slice=job.last.slice,
    )  # fmt: skip
