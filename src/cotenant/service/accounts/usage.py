"""Who used what between two moments, by tenant, user, day, model or state, as with Slurm's `sreport`.

Every stretch on GPUs is cut at the borders, and at midnight where days are asked for (of the service's clock), so the
GPU-hours of neighbouring times add up to those of both. A wait counts when it ends, a failure when it happens. A GPU
that several jobs share counts for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

from cotenant.core.errors import InputError, unknown
from cotenant.service.accounts.account import FAILURES, JobAccount

BY = ("tenant", "user", "day", "model", "state")
_HOUR_S = 3600.0


@dataclass(slots=True)
class UsageSums:
    """Sums of one line."""

    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    jobs: int = 0
    failures: int = 0
    preemptions: int = 0
    waits_s: list[float] = field(default_factory=list)

    def add(self, other: UsageSums) -> None:
        """Take those of another line in, but for its jobs, which may be the same."""
        self.gpu_s, self.lost_gpu_s = self.gpu_s + other.gpu_s, self.lost_gpu_s + other.lost_gpu_s
        self.failures, self.preemptions = self.failures + other.failures, self.preemptions + other.preemptions
        self.waits_s += other.waits_s

    def row(self) -> dict[str, Any]:
        """For people: `jobs` were on GPUs or ended meanwhile, `started` of them got their first GPUs."""
        waits = sorted(self.waits_s)
        return {
            "gpu_hours": self.gpu_s / _HOUR_S,
            "jobs": self.jobs,
            "started": len(waits),
            "wait_mean_s": sum(waits) / len(waits) if waits else None,
            "wait_p95_s": waits[ceil(0.95 * len(waits)) - 1] if waits else None,
            "failures": self.failures,
            "preemptions": self.preemptions,
            "lost_gpu_hours": self.lost_gpu_s / _HOUR_S,
        }


class UsageTable:
    """Lines of a report, filled job by job. Times count from `from_s` to just before `to_s`."""

    def __init__(self, by: Sequence[str], from_s: float = 0.0, to_s: float = inf) -> None:
        for name in by:
            if name not in BY:
                raise unknown("--by", name, BY)
        if not from_s < to_s:
            raise InputError("--from must be before --to")
        self._by, self._from_s, self._to_s = tuple(dict.fromkeys(by)), from_s, to_s
        self._days, self._jobs = "day" in by, 0
        self._lines: dict[tuple[str, ...], UsageSums] = {}

    def add(self, job: JobAccount) -> None:
        """Take one job in."""
        lines: dict[str, UsageSums] = {}
        for run in job.runs:
            for from_s, to_s in run.had:
                for day, seconds in self._cut(from_s, to_s):
                    self._line(job, day, lines).gpu_s += run.gpus * seconds
            for from_s, to_s in run.lost() if run.lost_s else ():
                for day, seconds in self._cut(from_s, to_s):
                    self._line(job, day, lines).lost_gpu_s += run.gpus * seconds
            for at_s in filter(self._inside, run.stops()):
                self._line(job, self._day(at_s), lines).preemptions += 1
            if run.end in FAILURES and self._inside(at_s := run.had[-1][1]):
                self._line(job, self._day(at_s), lines).failures += 1
        if (began_s := job.began_s) is not None and self._inside(began_s):
            self._line(job, self._day(began_s), lines).waits_s.append(max(began_s - job.submitted_s, 0.0))
        if job.ended_s is not None and self._inside(job.ended_s):
            self._line(job, self._day(job.ended_s), lines)
        self._jobs += bool(lines)

    def report(self) -> dict[str, Any]:
        """Lines in order of their names, and all together, where a job counts once."""
        rows = [dict(zip(self._by, key, strict=True)) | self._lines[key].row() for key in sorted(self._lines)]
        total = UsageSums(jobs=self._jobs)
        for line in self._lines.values():
            total.add(line)
        return {"by": list(self._by), "rows": rows, "total": total.row()}

    def _line(self, job: JobAccount, day: str, lines: dict[str, UsageSums]) -> UsageSums:
        """The line of a job on a day; it is counted as a job of that line once."""
        if day not in lines:
            key = tuple([day if name == "day" else getattr(job, name) for name in self._by])
            lines[day] = self._lines.setdefault(key, UsageSums())
            lines[day].jobs += 1
        return lines[day]

    def _inside(self, at_s: float) -> bool:
        return self._from_s <= at_s < self._to_s

    def _day(self, at_s: float) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(at_s)) if self._days else ""

    def _cut(self, from_s: float, to_s: float) -> Iterator[tuple[str, float]]:
        """The seconds of a stretch that are inside, day by day where days are asked for."""
        from_s, to_s = max(from_s, self._from_s), min(to_s, self._to_s)
        while from_s < to_s:
            until_s = min(to_s, _midnight_s(from_s)) if self._days else to_s
            yield self._day(from_s), until_s - from_s
            from_s = until_s


def usage(accounts: Iterable[JobAccount], by: Sequence[str], from_s: float, to_s: float) -> dict[str, Any]:
    """The report on these accounts."""
    table = UsageTable(by, from_s, to_s)
    for account in accounts:
        table.add(account)
    return table.report()


def _midnight_s(at_s: float) -> float:
    """The end of the day of a moment, local time."""
    day = time.localtime(at_s)
    return time.mktime((day.tm_year, day.tm_mon, day.tm_mday + 1, 0, 0, 0, 0, 0, -1))
