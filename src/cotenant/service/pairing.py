"""Whether sharing pays, from what jobs say of their own steps: as Gandiva does, a pair that does not is undone.

A job's step time alone is measured while nobody is beside it. In company each of two jobs makes so many steps first,
for what jobs report is a moving average; then their speeds against alone are added up. A sum near 1 is what taking
turns would give without any of the trouble. Such a pair of kinds is vetoed on that GPU type, for as long as this
service lives: the policy is told that they cannot share, and parts them at its next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cotenant.service.livejob import LiveJob
from cotenant.service.reports import Report
from cotenant.service.sharing import beside
from cotenant.service.speeds import Veto, veto
from cotenant.workload.profiles import Kind

WINDOW_STEPS = 30  # in one company before its step time counts; the average that jobs send remembers about ten
MARGIN = 0.05  # what a pair has to gain over taking turns


@dataclass(frozen=True, slots=True)
class Split:
    """Two jobs whose sharing does not pay: the sum of their speeds against alone."""

    one: str
    two: str
    worth: float
    veto: Veto


@dataclass(slots=True)
class _Stay:
    """Since which step an attempt has had this company."""

    company: frozenset[str]
    since_step: int | None = None


class Pairing:
    """What was measured so far. In memory only: a restarted service measures again."""

    def __init__(self) -> None:
        self.vetoes: frozenset[Veto] = frozenset()
        self._stays: dict[str, _Stay] = {}  # by key of the attempt
        self._alone_s: dict[tuple[str | Kind, str], float] = {}  # job or kind, and GPU type -> step time alone

    def look(
        self, running: Iterable[LiveJob], report_of: Callable[[str], Report | None], types: dict[str, str]
    ) -> list[Split]:
        """Take in what running jobs say now; pairs that are seen not to pay, each one once."""
        jobs = list(running)
        settled: dict[str, float] = {}
        company = {job.id: beside(job, jobs) for job in jobs}
        for job in jobs:
            step_s = self._settled_s(job, report_of(job.id), frozenset(other.key for other in company[job.id]))
            if step_s is not None:
                settled[job.id] = step_s
                if not company[job.id]:
                    kind = _kind(job), _type(job, types)
                    self._alone_s[kind] = self._alone_s[job.id, kind[1]] = step_s
        alive = {job.key for job in jobs}
        self._stays = {key: stay for key, stay in self._stays.items() if key in alive}
        splits = []
        for job in jobs:
            for other in company[job.id]:
                if len(company[job.id]) == 1 and job.order < other.order:
                    splits += self._judge(job, other, settled, _type(job, types))
        self.vetoes |= {split.veto for split in splits}
        return splits

    def _settled_s(self, job: LiveJob, report: Report | None, company: frozenset[str]) -> float | None:
        """Its step time, once it has made enough steps in its present company."""
        stay = self._stays.get(job.key)
        if stay is None or stay.company != company:
            stay = self._stays[job.key] = _Stay(company)
        if report is None or report.step is None or not report.step_time_s:
            return None
        if stay.since_step is None or report.step < stay.since_step:
            stay.since_step = report.step
        return report.step_time_s if report.step - stay.since_step >= WINDOW_STEPS else None

    def _judge(self, one: LiveJob, two: LiveJob, settled: dict[str, float], gpu_type: str) -> list[Split]:
        against = veto(_kind(one), _kind(two), gpu_type)
        if against in self.vetoes:
            return []
        worth = 0.0
        for job in (one, two):
            alone_s = self._alone_s.get((job.id, gpu_type), self._alone_s.get((_kind(job), gpu_type)))
            if alone_s is None or job.id not in settled:
                return []
            worth += alone_s / settled[job.id]
        return [Split(one.id, two.id, worth, against)] if worth < 1.0 + MARGIN else []

    def forget(self, job: str) -> None:
        """A job is retired."""
        for key in [key for key in self._alone_s if key[0] == job]:
            del self._alone_s[key]


def _kind(job: LiveJob) -> Kind:
    return job.spec.model, job.spec.gpus


def _type(job: LiveJob, types: dict[str, str]) -> str:
    return types.get(job.last.gpus[0][0], "")
