"""Whether sharing pays, from what jobs say of their own steps: as Gandiva does, a pair that does not is undone.

A job's step time alone is measured while nobody is beside it, or remembered of its model. Where neither is known, one
of a pair stands still for a moment and the other is measured (`standstill`). In company steps count once all have
passed their start-up, and only after so many of them and so much time, for what jobs report is a moving average. Then
the speeds of two against alone are added up. A sum near 1 is what taking turns would give without any of the trouble.
Such a pair of kinds is vetoed on that GPU type for a while: the policy is told that they cannot share, and parts them
at its next round. Speeds of pairs that do pay replace what was believed of them. Jobs that are held back say nothing
about their pair; those beside them are judged by their mean step, for a neighbour that pauses between its steps
disturbs a few of theirs only. What was measured is written down and survives a restart.

A job that is slower than it was before, though nobody shares its GPUs, is disturbed by something else of its server:
others on the same links or cores. That is told too (`measured`), for a policy that moves jobs away from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from cotenant.beliefs.live_profiles import Seen, Veto, veto
from cotenant.beliefs.stage_times import kept_stages, learn_stages, recalled_stages, told_stages
from cotenant.beliefs.standstill import Standstill, Standstills
from cotenant.beliefs.trying import kept_uses, recalled_uses
from cotenant.beliefs.watched import Told, Watched, learned_kind
from cotenant.workload.profiles import Kind

_Job = TypeVar("_Job", bound=Watched)
WINDOW_STEPS, WINDOW_S = 30, 2.0  # in one company before its step time counts; the average remembers about ten steps
RECENT_S = 5.0  # of which the mean step is taken beside one that is held back: its share may change
FEW_STEPS, LONG_S = 5, 10.0  # or so, where steps are long
SILENT_S = 60.0  # after which a start-up is over, of a job that says nothing of its steps
MARGIN = 0.05  # what a pair has to gain over taking turns
LEARN_BY = 0.02  # of the speed alone: less does not change what is believed
DISTURBED = 0.05  # of the best speed alone: less is no disturbance
_MANY = 1000
VETO_S = 24 * 3600.0  # before kinds that did not pay may be put together again


@dataclass(frozen=True, slots=True)
class Split:
    """Two jobs whose sharing does not pay: the sum of their speeds against alone."""

    one: str
    two: str
    worth: float
    veto: Veto


@dataclass(slots=True)
class _Stay:
    """Since which step and moment an attempt of a job has had this company, all of it past its start-up."""

    company: frozenset[str]
    job: str = ""
    since_step: int | None = None
    since_s: float = 0.0


class Pairing:
    """What was measured so far."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.paces: dict[str, float] = {}  # by job: its speed against alone, once it has settled in its company
        self.company: dict[str, list[Watched]] = {}  # by job: who else is on its GPUs; only where somebody is
        self.gpu_type: dict[str, str] = {}
        self.warm: set[str] = set()  # jobs that are past their start-up
        self.moved: set[str] = set()  # those that were just told that their company is another
        self.settling: set[str] = set()  # those whose speed alone is known, but not yet what their company makes of it
        self.tried: frozenset[Veto] = frozenset()  # pairs side by side of which nobody knows yet whether they pay
        self._stays: dict[str, _Stay] = {}  # by key of the attempt
        self._away: dict[str, _Stay] = {}  # the same of those that run no longer, but may come back: they are suspended
        self._alone_s: dict[tuple[str | Kind, str], float] = {}  # job or kind, and GPU type -> step time alone
        self._best_s: dict[tuple[str, str], float] = {}  # job and GPU type -> its shortest step time alone
        self._disturbed: dict[str, float] = {}  # by job without company: its speed now against its best
        self._alone_mean_s: dict[str, float] = {}  # by key of the attempt: its steps while it was alone last
        self._still = Standstills()
        self._live = True  # what jobs are in is for this one to tell their speeds
        self._until_s: dict[Veto, float] = {}  # when a veto is over

    @property
    def vetoes(self) -> frozenset[Veto]:
        """Pairs that do not pay."""
        return self.seen.vetoes

    def look(
        self, running: Iterable[Watched], report_of: Callable[[str], Told | None], types: Mapping[str, str],
        now_s: float, paced: Container[str] = (),
    ) -> list[Split]:  # fmt: skip
        """Take in what running jobs say now; pairs that are seen not to pay, each one once.

        Those of `paced` are held back between their steps.
        """
        jobs, self.moved = list(running), set()
        self._end_vetoes(now_s)
        self._see(jobs, report_of, types, now_s)
        self._end_standstills(report_of, now_s)
        settled = {job.id: step_s for job in jobs if (step_s := self._settled_s(job, report_of, now_s)) is not None}
        alone = {job.id: settled[job.id] for job in jobs if job.id in settled and job.id not in self.company}
        for job in jobs:
            if job.id in alone:
                self._know_alone(job, alone[job.id])
                self._alone_mean_s[job.key] = self._mean_s(job, report_of, -math.inf)
        self._learn_stages([job for job in jobs if job.id in settled], report_of)
        self._compare_with_best(alone)
        self.paces = {job.id: self._pace(job, settled) for job in jobs if job.id in settled}
        for job in jobs:
            held_back = any(one.id in paced for one in self.company.get(job.id, ()))
            if held_back and job.id in settled and job.id not in paced and job.key in self._alone_mean_s:
                pace = self._alone_mean_s[job.key] / self._mean_s(job, report_of, now_s - RECENT_S)
                self.paces[job.id] = pace if math.isfinite(pace) else self.paces[job.id]
        self.settling = {
            job for job in self.company if job not in settled and (job, self.gpu_type[job]) in self._alone_s
        }
        splits: list[Split] = []
        for job in jobs:
            other = self._only_one_beside(job)
            if other is not None and other.id in paced and job.id not in paced:
                self._measure_host(job, other, settled, report_of, now_s)
            elif other is not None and job.order < other.order and job.id not in paced:
                splits += self._judge(job, other, settled, report_of, now_s)
        self.seen.vetoes |= {split.veto for split in splits}
        self._until_s |= {split.veto: now_s + VETO_S for split in splits}
        return splits

    def _only_one_beside(self, job: Watched) -> Watched | None:
        """The other of a pair; None for who is alone, or one of several."""
        others = self.company.get(job.id, [])
        return others[0] if len(others) == 1 and len(self.company[others[0].id]) == 1 else None

    def standstills(self) -> list[Standstill]:
        """Who is to stand still for a moment, told once."""
        asked, self._still.asked = self._still.asked, []
        return asked

    # -- who is where ----------------------------------------------------------------------------------------------

    def _see(
        self, jobs: list[Watched], report_of: Callable[[str], Told | None], types: Mapping[str, str], now_s: float
    ) -> None:
        users: dict[tuple[str, int], list[Watched]] = {}
        for job in jobs:
            for cell in _cells(job):
                users.setdefault(cell, []).append(job)
        self.company, pairs = {}, set()
        self.gpu_type = {job.id: types.get(job.last.gpus[0][0], "") for job in jobs}
        for job in jobs:
            near = {one.id: one for cell in _cells(job) for one in users[cell] if one is not job}
            if near:
                self.company[job.id] = sorted(near.values(), key=lambda one: one.order)
                kind, gpu_type = learned_kind(job), self.gpu_type[job.id]
                pairs |= {veto(kind, learned_kind(one), gpu_type) for one in near.values()}
        self.tried = frozenset(pair for pair in pairs if pair not in self.seen.ratios and pair in self.seen.guesses)
        self.warm = {job.id for job in jobs if _is_warm(job, report_of(job.id), now_s)}
        alive = {job.key for job in jobs}
        self._away |= {key: self._stays[key] for key in self._stays.keys() - alive}
        for kept in (self._stays, self._alone_mean_s):
            for key in kept.keys() - alive:
                del kept[key]
        self._still.forget(alive)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _settled_s(self, job: Watched, report_of: Callable[[str], Told | None], now_s: float) -> float | None:
        """Its step time, once it has made enough steps in its present company, nobody of which is starting up."""
        others, report = self.company.get(job.id, []), report_of(job.id)
        company = frozenset(other.key for other in others)
        stay = self._stays.get(job.key)
        if stay is None or stay.company != company:
            before = stay or self._away.pop(job.key, None)
            if self._live and report is not None and before is not None and before.company != company:
                report.speed.new_company()
                self.moved.add(job.id)
            stay = self._stays[job.key] = _Stay(company, job.id)
        if report is None or report.step is None or not report.step_time_s or self._still.concerns(job.key):
            return None
        if not self.warm.issuperset((job.id, *(other.id for other in others))):
            stay.since_step = None
            return None
        if stay.since_step is None or report.step < stay.since_step:
            stay.since_step, stay.since_s = report.step, now_s
        steps, seconds = report.step - stay.since_step, now_s - stay.since_s
        if steps >= WINDOW_STEPS and seconds >= WINDOW_S:
            return report.step_time_s
        return _typical_s(report, stay.since_s) if steps >= FEW_STEPS and seconds >= LONG_S else None

    def _mean_s(self, job: Watched, report_of: Callable[[str], Told | None], since_s: float) -> float:
        """Its mean step in this company since then, NaN if few; one twice as long as usual was more, e.g. saving."""
        report, since_s = report_of(job.id), max(since_s, self._stays[job.key].since_s)
        marks = [mark for mark in report.marks if mark[0] >= since_s] if report is not None else []
        parts = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks) if b[1] > a[1]]
        if sum(steps for _, steps in parts) < WINDOW_STEPS:
            return math.nan
        usual_s = median(seconds / steps for seconds, steps in parts)
        kept = [(seconds, steps) for seconds, steps in parts if seconds <= 2 * usual_s * steps]
        return sum(seconds for seconds, _ in kept) / sum(steps for _, steps in kept)

    def _know_alone(self, job: Watched, step_s: float) -> None:
        """So fast is it alone, and others of its model; jobs of one program differ too much for that."""
        gpu_type = self.gpu_type[job.id]
        self._alone_s[job.id, gpu_type] = step_s
        kind = learned_kind(job), gpu_type
        if len(job.last.gpus) == 1:
            self.seen.rates.learn(kind[0], job.id, gpu_type, step_s)
        if job.spec.model and abs(self._alone_s.get(kind, 0.0) - step_s) > LEARN_BY * step_s:
            self._alone_s[kind] = step_s

    def _learn_stages(self, settled: list[Watched], report_of: Callable[[str], Told | None]) -> None:
        for job in settled:
            times = told_stages(report_of(job.id), alone=job.id not in self.company)
            key = learned_kind(job), self.gpu_type[job.id]
            if times is not None and learn_stages(self.seen.stages, key, times):
                self.seen.changes += 1

    def _compare_with_best(self, alone: Mapping[str, float]) -> None:
        """Who is slower than it was, though its GPUs are its own."""
        self._disturbed = {}
        for job, step_s in alone.items():
            at = job, self.gpu_type[job]
            best_s = self._best_s[at] = min(self._best_s.get(at, step_s), step_s)
            if best_s < (1 - DISTURBED) * step_s:
                self._disturbed[job] = best_s / step_s

    def _pace(self, job: Watched, settled: dict[str, float]) -> float:
        """Speed against alone; not a number where nobody knows how fast it is alone."""
        gpu_type = self.gpu_type[job.id]
        of_kind = self._alone_s.get((learned_kind(job), gpu_type))
        alone_s = self._alone_s.get((job.id, gpu_type), of_kind)
        return math.nan if alone_s is None else alone_s / settled[job.id]

    def _end_standstills(self, report_of: Callable[[str], Told | None], now_s: float) -> None:
        """Take in what was measured while somebody stood still; in company all begin to count anew."""
        for stood, moved, step_s in self._still.over(report_of, now_s):
            for job in (stood, moved):
                self._stays[job.key] = _Stay(frozenset(), job.id)  # which it has not: so its steps count anew
            if step_s is not None and moved.id in self.gpu_type:
                self._know_alone(moved, step_s)
                self._alone_mean_s.setdefault(moved.key, step_s)

    # -- pairs -----------------------------------------------------------------------------------------------------

    def _judge(
        self, one: Watched, two: Watched, settled: dict[str, float], report_of: Callable[[str], Told | None],
        now_s: float,
    ) -> list[Split]:  # fmt: skip
        """Add up the speeds of two. Of whom nothing can be known is taken to be as its neighbour."""
        gpu_type = self.gpu_type[one.id]
        against = veto(learned_kind(one), learned_kind(two), gpu_type)
        if against in self.vetoes:
            return []
        paces = {job.id: self.paces[job.id] for job in (one, two) if math.isfinite(self.paces.get(job.id, math.nan))}
        for job, other in ((one, two), (two, one)):
            report = report_of(job.id)
            silent = job.id in self.warm and (report is None or report.step is None)
            if job.id not in settled and not silent:
                return []
            if job.id in settled and other.id in settled and job.id not in paces:
                steps_s = settled[other.id], settled[job.id]
                left_s = min(_left_s(report_of(other.id), steps_s[0]), _left_s(report, steps_s[1]))
                if self._still.ask(other, job, steps_s, left_s, now_s) is not False:
                    return []
        if not paces:
            return []
        both = [paces.get(job.id, next(iter(paces.values()))) for job in (one, two)]
        kinds = learned_kind(one), learned_kind(two)
        paired = both if kinds[0] != kinds[1] else [sum(both) / 2] * 2
        self._learn((*kinds, gpu_type), paired[0])
        self._learn((*kinds[::-1], gpu_type), paired[1])
        return [Split(one.id, two.id, sum(both), against)] if sum(both) < 1.0 + MARGIN else []

    def _measure_host(
        self, host: Watched, guest: Watched, settled: dict[str, float], report_of: Callable[[str], Told | None],
        now_s: float,
    ) -> None:  # fmt: skip
        """Have a guest that is held back stand still once, where nobody knows how fast its host is alone."""
        if host.id in settled and not math.isfinite(self.paces.get(host.id, math.nan)):
            steps_s = settled.get(guest.id, settled[host.id]), settled[host.id]
            left_s = min(_left_s(report_of(one.id), step_s) for one, step_s in zip((guest, host), steps_s, strict=True))
            self._still.ask(guest, host, steps_s, left_s, now_s)

    def _learn(self, pair: tuple[Kind, Kind, str], pace: float) -> None:
        """Believe what was measured; small changes are passed over, for policies think anew at each."""
        pace = min(pace, 1.0)
        if abs(self.seen.ratios.get(pair, 0.0) - pace) > LEARN_BY:
            self.seen.ratios[pair] = pace
            self.seen.changes += 1

    def _end_vetoes(self, now_s: float) -> None:
        """Kinds that did not pay long ago may be tried anew: programs change."""
        for pair in [pair for pair, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[pair]
            self.seen.vetoes -= {pair}
            self.seen.changes += 1
            for ordered in (pair, (pair[1], pair[0], pair[2])):
                self.seen.ratios.pop(ordered, None)

    # -- for others ------------------------------------------------------------------------------------------------

    def measured(self, row_of: Mapping[str, int]) -> dict[int, tuple[float, frozenset[int]]]:
        """By row of those in company, or disturbed: speed against alone, and beside which rows that was measured."""
        found = {row_of[job]: (pace, frozenset[int]()) for job, pace in self._disturbed.items() if job in row_of}
        for job, company in self.company.items():
            pace, others = self.paces.get(job, math.nan), [one.id for one in company]
            if math.isfinite(pace) and row_of.keys() >= {job, *others}:
                found[row_of[job]] = pace, frozenset(row_of[one] for one in others)
        return found

    def copy(self) -> Pairing:
        """All that is known by now, for somebody else to go on with."""
        made = Pairing()
        made.seen, made.tried, made._still = self.seen.copy(), self.tried, self._still.copy()
        made.paces, made.company, made.gpu_type = dict(self.paces), dict(self.company), dict(self.gpu_type)
        made.warm, made.settling, made._live = set(self.warm), set(self.settling), False
        made._stays = {key: replace(stay) for key, stay in self._stays.items()}
        made._away = dict(self._away)
        made._alone_s, made._until_s = dict(self._alone_s), dict(self._until_s)
        made._best_s, made._disturbed = dict(self._best_s), dict(self._disturbed)
        made._alone_mean_s = dict(self._alone_mean_s)
        return made

    def keeps(self) -> dict[str, list[Any]]:
        """What was measured, as plain data: it must survive a restart."""
        alone = [
            [list(kind), gpu_type, round(step_s, 6)]
            for (kind, gpu_type), step_s in self._alone_s.items()
            if isinstance(kind, tuple)
        ]
        ratios = [[list(a), list(b), t, round(value, 6)] for (a, b, t), value in self.seen.ratios.items()]
        vetoes = sorted(self.seen.vetoes)
        until = [round(self._until_s[pair], 3) if pair in self._until_s else None for pair in vetoes]
        found: dict[str, list[Any]] = {
            "alone": alone, "ratios": ratios, "vetoes": [[list(a), list(b), t] for a, b, t in vetoes],
            "until_s": until, "uses": kept_uses(self.seen),
            "stages": kept_stages(self.seen.stages), "type_rates": self.seen.rates.keeps(),
        }  # fmt: skip
        return {key: rows for key, rows in found.items() if rows}

    def recall(self, kept: dict[str, list[Any]] | None) -> None:
        """The inverse: what an earlier service measured, unless this one has measured it anew.

        Vetoes of older versions have no end.
        """
        kept = kept or {}
        for kind, gpu_type, step_s in kept.get("alone", ()):
            self._alone_s.setdefault((_read(kind), gpu_type), step_s)
        for one, two, gpu_type, value in kept.get("ratios", ()):
            self.seen.ratios.setdefault((_read(one), _read(two), gpu_type), value)
        vetoes = [(_read(one), _read(two), gpu_type) for one, two, gpu_type in kept.get("vetoes", ())]
        self.seen.vetoes |= set(vetoes)
        ends = zip(vetoes, kept.get("until_s", ()), strict=False)
        self._until_s = {pair: until_s for pair, until_s in ends if until_s is not None} | self._until_s
        self.seen.uses = recalled_uses(kept.get("uses", ())) | self.seen.uses
        self.seen.stages = recalled_stages(kept.get("stages", [])) | self.seen.stages
        self.seen.rates.recall(kept.get("type_rates", ()))

    def forget_but(self, jobs: Container[str]) -> None:
        """Forget those that are over, and, once much is kept of jobs, all that are not among these."""
        self._away = {key: stay for key, stay in self._away.items() if stay.job in jobs}
        self.seen.rates.forget_but(jobs)
        if len(self._alone_s) > _MANY:
            gone = [key for key in self._alone_s if isinstance(key[0], str) and key[0] not in jobs]
            for key in gone:
                del self._alone_s[key]
                self._best_s.pop((str(key[0]), key[1]), None)


def guests_of(jobs: Iterable[_Job]) -> dict[str, _Job]:
    """Whoever came to GPUs that another was already on, and is not about to leave: that host."""
    first: dict[tuple[str, int], _Job] = {}
    found: dict[str, _Job] = {}
    for job in sorted(jobs, key=lambda job: (job.last.launched_s, job.order)):
        hosts = [host for cell in sorted(_cells(job)) if (host := first.setdefault(cell, job)) is not job]
        if hosts and not job.stop_why:
            found[job.id] = hosts[0]
    return found


def _is_warm(job: Watched, report: Told | None, now_s: float) -> bool:
    """Whether it has made some steps, or has run for long and says nothing of any."""
    if report is None or report.step is None:
        return now_s - job.last.launched_s >= SILENT_S
    return report.speed.warm


def _left_s(report: Told | None, step_s: float) -> float:
    """How long a job still takes, as far as it says so."""
    if report is None or report.step is None or not report.total:
        return math.inf
    return (report.total - report.step) * step_s


def _typical_s(report: Told, since_s: float) -> float | None:
    """The median of what steps took since then, by when they were heard of."""
    marks = [mark for mark in report.marks if mark[0] >= since_s]
    each = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(marks) if b[1] > a[1]]
    return median(each) if each else None


def _cells(job: Watched) -> set[tuple[str, int]]:
    return {(node, index) for node, indexes in job.last.gpus for index in indexes}


def _read(kind: list[Any]) -> Kind:
    return str(kind[0]), int(kind[1])
