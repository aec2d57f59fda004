"""Whether sharing pays, from what jobs say of their own steps: as Gandiva does, a pair that does not is undone.

A job's step time alone is measured while nobody is beside it. In company each of two jobs makes so many steps first,
for what jobs report is a moving average; then their speeds against alone are added up. A sum near 1 is what taking
turns would give without any of the trouble. Such a pair of kinds is vetoed on that GPU type for good: the policy is
told that they cannot share, and parts them at its next round. Speeds of pairs that do pay
replace what the profile believed of them. Jobs that are held back say nothing about their pair.
What was measured is written down and survives a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cotenant.beliefs.live_profiles import Seen, Veto, veto
from cotenant.beliefs.watched import Told, Watched
from cotenant.workload.profiles import Kind

_Job = TypeVar("_Job", bound=Watched)
WINDOW_STEPS = 30  # in one company before its step time counts; the average that jobs send remembers about ten
MARGIN = 0.05  # what a pair has to gain over taking turns
LEARN_BY = 0.02  # of the speed alone: less does not change what is believed of a pair


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
    """What was measured so far."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.paces: dict[str, float] = {}  # by job: its speed against alone, once it has settled in its company
        self.company: dict[str, list[Watched]] = {}  # by job: who else is on its GPUs; only where somebody is
        self.gpu_type: dict[str, str] = {}
        self._stays: dict[str, _Stay] = {}  # by key of the attempt
        self._alone_s: dict[tuple[str | Kind, str], float] = {}  # job or kind, and GPU type -> step time alone

    @property
    def vetoes(self) -> frozenset[Veto]:
        """Pairs that do not pay."""
        return self.seen.vetoes

    def look(
        self, running: Iterable[Watched], report_of: Callable[[str], Told | None], types: dict[str, str],
        paced: Container[str] = (),
    ) -> list[Split]:  # fmt: skip
        """Take in what running jobs say now; pairs that are seen not to pay, each one once.

        Those of `paced` are held back between their steps.
        """
        jobs = list(running)
        settled: dict[str, float] = {}
        company = {job.id: _beside(job, jobs) for job in jobs}
        for job in jobs:
            step_s = self._settled_s(job, report_of(job.id), frozenset(other.key for other in company[job.id]))
            if step_s is not None:
                settled[job.id] = step_s
                if not company[job.id]:
                    kind = _kind(job), _type(job, types)
                    self._alone_s[kind] = self._alone_s[job.id, kind[1]] = step_s
        self.company = {name: others for name, others in company.items() if others}
        self.gpu_type = {job.id: _type(job, types) for job in jobs}
        alive = {job.key for job in jobs}
        self._stays = {key: stay for key, stay in self._stays.items() if key in alive}
        self.paces = {job.id: self._pace(job, settled, _type(job, types)) for job in jobs if job.id in settled}
        splits = []
        for job in jobs:
            for other in company[job.id]:
                pair = len(company[job.id]) == len(company[other.id]) == 1 and not (
                    job.id in paced or other.id in paced
                )
                if pair and job.order < other.order:
                    splits += self._judge(job, other, settled, _type(job, types))
        self.seen.vetoes |= {split.veto for split in splits}
        return splits

    def _pace(self, job: Watched, settled: dict[str, float], gpu_type: str) -> float:
        """Speed against alone; not a number where nobody knows how fast it is alone."""
        alone_s = self._alone_s.get((job.id, gpu_type), self._alone_s.get((_kind(job), gpu_type)))
        return float("nan") if alone_s is None else alone_s / settled[job.id]

    def _settled_s(self, job: Watched, report: Told | None, company: frozenset[str]) -> float | None:
        """Its step time, once it has made enough steps in its present company."""
        stay = self._stays.get(job.key)
        if stay is None or stay.company != company:
            stay = self._stays[job.key] = _Stay(company)
        if report is None or report.step is None or not report.step_time_s:
            return None
        if stay.since_step is None or report.step < stay.since_step:
            stay.since_step = report.step
        return report.step_time_s if report.step - stay.since_step >= WINDOW_STEPS else None

    def _judge(self, one: Watched, two: Watched, settled: dict[str, float], gpu_type: str) -> list[Split]:
        against = veto(_kind(one), _kind(two), gpu_type)
        if against in self.vetoes:
            return []
        paces = [self._pace(job, settled, gpu_type) if job.id in settled else float("nan") for job in (one, two)]
        worth = sum(paces)
        if math.isnan(worth):
            return []
        self._learn((_kind(one), _kind(two), gpu_type), paces[0])
        self._learn((_kind(two), _kind(one), gpu_type), paces[1])
        return [Split(one.id, two.id, worth, against)] if worth < 1.0 + MARGIN else []

    def _learn(self, pair: tuple[Kind, Kind, str], pace: float) -> None:
        """Believe what was measured; small changes are passed over, for policies think anew at each."""
        pace = min(pace, 1.0)
        if abs(self.seen.ratios.get(pair, 0.0) - pace) > LEARN_BY:
            self.seen.ratios[pair] = pace
            self.seen.changes += 1

    def measured(self, row_of: Mapping[str, int]) -> dict[int, tuple[float, frozenset[int]]]:
        """By row: speed against alone, and beside which rows that was measured."""
        found = {}
        for job, pace in self.paces.items():
            others = [one.id for one in self.company.get(job, ())]
            if math.isfinite(pace) and row_of.keys() >= {job, *others}:
                found[row_of[job]] = pace, frozenset(row_of[one] for one in others)
        return found

    def copy(self) -> Pairing:
        """All that is known by now, for somebody else to go on with."""
        made = Pairing()
        made.seen = Seen(self.seen.vetoes, dict(self.seen.ratios), self.seen.changes)
        made.paces, made.company, made.gpu_type = dict(self.paces), dict(self.company), dict(self.gpu_type)
        made._stays = {key: replace(stay) for key, stay in self._stays.items()}
        made._alone_s = dict(self._alone_s)
        return made

    def keeps(self) -> dict[str, list[Any]]:
        """What was measured, as plain data: it must survive a restart."""
        alone = [
            [list(kind), gpu_type, round(step_s, 6)]
            for (kind, gpu_type), step_s in self._alone_s.items()
            if isinstance(kind, tuple)
        ]
        ratios = [[list(a), list(b), t, round(value, 6)] for (a, b, t), value in self.seen.ratios.items()]
        vetoes = [[list(a), list(b), t] for a, b, t in sorted(self.seen.vetoes)]
        found: dict[str, list[Any]] = {"alone": alone, "ratios": ratios, "vetoes": vetoes}
        return {key: rows for key, rows in found.items() if rows}

    def recall(self, kept: dict[str, list[Any]] | None) -> None:
        """The inverse: what an earlier service measured, unless this one has measured it anew."""
        for kind, gpu_type, step_s in (kept or {}).get("alone", ()):
            self._alone_s.setdefault((_read(kind), gpu_type), step_s)
        for one, two, gpu_type, value in (kept or {}).get("ratios", ()):
            self.seen.ratios.setdefault((_read(one), _read(two), gpu_type), value)
        self.seen.vetoes |= {(_read(one), _read(two), t) for one, two, t in (kept or {}).get("vetoes", ())}

    def forget(self, job: str) -> None:
        """A job is retired."""
        for key in [key for key in self._alone_s if key[0] == job]:
            del self._alone_s[key]


def guests_of(jobs: Iterable[_Job]) -> dict[str, _Job]:
    """Whoever came to GPUs that another was already on, and is not about to leave: that host."""
    first: dict[tuple[str, int], _Job] = {}
    found: dict[str, _Job] = {}
    for job in sorted(jobs, key=lambda job: (job.last.launched_s, job.order)):
        hosts = [host for cell in sorted(_cells(job)) if (host := first.setdefault(cell, job)) is not job]
        if hosts and not job.stop_why:
            found[job.id] = hosts[0]
    return found


def _beside(job: Watched, jobs: Iterable[Watched]) -> list[Watched]:
    """The others on its GPUs, oldest first."""
    mine = _cells(job)
    return sorted((one for one in jobs if one is not job and mine & _cells(one)), key=lambda one: one.order)


def _cells(job: Watched) -> set[tuple[str, int]]:
    return {(node, index) for node, indexes in job.last.gpus for index in indexes}


def _read(kind: list[Any]) -> Kind:
    return str(kind[0]), int(kind[1])


def _kind(job: Watched) -> Kind:
    return job.spec.model, job.spec.gpus


def _type(job: Watched, types: dict[str, str]) -> str:
    return types.get(job.last.gpus[0][0], "")
