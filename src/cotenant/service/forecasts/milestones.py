"""When it is written down what was foretold of a job: first after its submission, after its start, and half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cotenant.journal import Entry
from cotenant.service.forecasts.foretold import HALF, MOMENTS, START, SUBMIT, Foretold, Outlook
from cotenant.service.observer.report import Report
from cotenant.service.store.job import LiveJob

MOST_AT_ONCE = 500
_JUST_S = 30.0


def moment_of(job: LiveJob, report: Report | None, told: Foretold, now_s: float) -> str:
    """How far a job is: half-way by what it says of its steps, else by the time that it has run and has left."""
    if job.started_s is None:
        return SUBMIT
    if report is not None and report.total and report.step is not None:
        return HALF if 2 * report.step >= report.total else START
    return HALF if job.attained_s(now_s) >= told.end_s - now_s else START


def due(jobs: Iterable[LiveJob], outlook: Outlook, report: Callable[[str], Report | None]) -> list[Entry]:
    """Records of what was foretold at moments that have come and were not written down yet."""
    found: list[Entry] = []
    for job in jobs:
        told = outlook.jobs.get(job.id)
        if told is None or told.low_s is None or told.high_s is None or len(found) >= MOST_AT_ONCE:
            continue
        ends_s = {"expected_end_s": told.end_s, "low_s": told.low_s, "high_s": told.high_s, "made_s": outlook.at_s}
        times = {name: round(end_s, 3) for name, end_s in ends_s.items()}
        scale = {"scale": round(told.scale, 4)} if told.scale != 1.0 else {}
        for at in _have_come(job, moment_of(job, report(job.id), told, outlook.at_s), outlook.at_s):
            if at not in job.foretold:
                found.append(Entry("forecast", job.id, {"at": at, "policy": outlook.policy, **times, **scale}))
    return found


def _have_come(job: LiveJob, now: str, now_s: float) -> list[str]:
    """The moment that it is now, and those that have passed only just: many jobs start at once, and some are short."""
    passed = {SUBMIT: job.submitted_s, START: job.started_s or now_s}
    before = MOMENTS[: MOMENTS.index(now)]
    return [*(at for at in before if now_s - passed[at] <= _JUST_S), now]
