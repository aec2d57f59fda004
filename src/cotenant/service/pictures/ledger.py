"""Stops that were not the end of the work: what each cost, and who gained by it.

A stop costs what was done since the last checkpoint, the time to leave and the time to come back, all times the GPUs.
Who starts on the same GPUs within seconds has gained: as much as it then had them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.lifecycle import JobState
from cotenant.service.accounts.account import FAILURES, STOPS, SUSPENDED, stretches
from cotenant.service.facade import Caller
from cotenant.service.store.job import Attempt, Gpus, LiveJob, cells

SOON_S = 15.0  # within which whoever starts on the GPUs of a stopped job is why it was stopped
_OVER = (str(JobState.SUCCEEDED), str(JobState.CANCELLED))


@dataclass(frozen=True, slots=True)
class LedgerStop:
    """One stop. `lost_s`, `leave_s` and `back_s` are of each GPU; `back_s` is None where it has not come back yet."""

    at_s: float
    job: LiveJob
    cause: str
    why: str
    gpus: Gpus
    lost_s: float
    leave_s: float
    back_s: float | None
    waited_s: float | None

    @property
    def size(self) -> int:
        """How many GPUs."""
        return sum(len(indexes) for _, indexes in self.gpus)


@dataclass(slots=True)
class Starts:
    """When which job came to a GPU and left it, by GPU."""

    _at: dict[tuple[str, int], list[tuple[float, float, str]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, job: LiveJob, now_s: float) -> None:
        """All stretches of a job."""
        for attempt in job.attempts:
            for from_s, to_s in stretches(attempt, now_s):
                for cell in cells(attempt.gpus):
                    self._at[cell].append((from_s, to_s, job.id))

    def sort(self) -> None:
        """To be done once, before it is asked."""
        for line in self._at.values():
            line.sort()

    def after(self, stop: LedgerStop) -> dict[str, float]:
        """Who came to the GPUs of a stopped job at once, and for how many GPU-seconds."""
        found: dict[str, float] = {}
        for cell in cells(stop.gpus):
            line = self._at[cell]
            at = bisect_left(line, (stop.at_s - 0.001, 0.0, ""))
            for from_s, to_s, job in line[at : at + 4]:
                if from_s <= stop.at_s + SOON_S and job != stop.job.id:
                    found[job] = found.get(job, 0.0) + to_s - from_s
        return found


def stops_of(job: LiveJob, now_s: float) -> Iterator[LedgerStop]:
    """All stops of a job, oldest first."""
    for number, attempt in enumerate(job.attempts):
        had = stretches(attempt, now_s)
        for at in range(len(had) - 1):
            yield _suspension(job, attempt, had[at][1], had[at + 1][0])
        if had and attempt.ended_s is None and attempt.taken_s is None:
            yield _suspension(job, attempt, had[-1][1], None)
        if attempt.ended_s is None or attempt.holds or not had or (attempt.end or "stopped") in _OVER:
            continue
        after = next((one for one in job.attempts[number + 1 :] if not one.holds), None)
        back_s = None if after is None else after.start_s or after.restore_s
        waited_s = None if after is None else max(after.launched_s - attempt.ended_s, 0.0)
        cause = attempt.end or "stopped"
        yield LedgerStop(
            attempt.ended_s, job, cause, attempt.why, attempt.gpus, attempt.lost_s, attempt.stop_s, back_s, waited_s
        )


def _suspension(job: LiveJob, attempt: Attempt, at_s: float, until_s: float | None) -> LedgerStop:
    waited_s = None if until_s is None else max(until_s - at_s, 0.0)
    return LedgerStop(at_s, job, SUSPENDED, "it stood still and kept its memory", attempt.gpus, 0.0, 0.0, 0.0, waited_s)


def ledger(jobs: Mapping[str, LiveJob], caller: Caller, now_s: float, from_s: float, to_s: float) -> dict[str, Any]:
    """Stops that the caller may see, newest first, and sums by cause."""
    starts = Starts()
    for job in jobs.values():
        starts.add(job, now_s)
    starts.sort()
    seen = (job for job in jobs.values() if job.attempts and caller.sees(job.tenant))
    found = [stop for job in seen for stop in stops_of(job, now_s) if from_s <= stop.at_s < to_s]
    found.sort(key=lambda stop: -stop.at_s)
    rows = [_row(stop, starts.after(stop), jobs, caller) for stop in found]
    return {"at_s": now_s, "from_s": from_s, "to_s": to_s, "rows": rows, "causes": _sums(rows)}


def _row(stop: LedgerStop, gained: Mapping[str, float], jobs: Mapping[str, LiveJob], caller: Caller) -> dict[str, Any]:
    size, job = stop.size, stop.job
    by_us = stop.cause in STOPS
    who = [
        {"job": name if caller.sees(jobs[name].tenant) else "", "tenant": jobs[name].tenant, "gpu_s": gpu_s}
        for name, gpu_s in gained.items()
    ] if by_us else []  # fmt: skip
    lost_gpu_s, leave_gpu_s, back_gpu_s = (size * one for one in (stop.lost_s, stop.leave_s, stop.back_s or 0.0))
    return {
        "at_s": stop.at_s, "job": job.id, "name": job.spec.name, "tenant": job.tenant, "user": job.user,
        "cause": stop.cause, "kind": "failure" if stop.cause in FAILURES else "stop" if by_us else "other",
        "why": stop.why, "gpus": size, "lost_gpu_s": lost_gpu_s, "leave_gpu_s": leave_gpu_s, "back_gpu_s": back_gpu_s,
        "cost_gpu_s": lost_gpu_s + leave_gpu_s + back_gpu_s, "waited_s": stop.waited_s, "gained": who,
        "gained_gpu_s": sum(one["gpu_s"] for one in who),
    }  # fmt: skip


def _sums(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = found.setdefault(row["cause"], {"cause": row["cause"], "kind": row["kind"], "count": 0})
        line["count"] += 1
        for name in ("lost_gpu_s", "leave_gpu_s", "back_gpu_s", "cost_gpu_s", "gained_gpu_s"):
            line[name] = line.get(name, 0.0) + row[name]
    return sorted(found.values(), key=lambda line: -line["cost_gpu_s"])
