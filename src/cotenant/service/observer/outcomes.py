"""What the end of a process means for its job, and for those that come after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cotenant.backends.base import Observed
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.observer.report import Report
from cotenant.service.store.book import Book
from cotenant.service.store.job import ASK, KILL, STOP, SUSPEND, LiveJob, never

UNKNOWN_DURATION_S = 3600.0
EXIT_PREEMPTED = 75  # what the runtime exits with after saving on request
ASKED = {
    "preempt": "preempted",
    "turn": "its turn was over",
    "hold": "held",
    "resize": "asked to change its size",
    "move": "moved to other GPUs",
    "split": "parted from the job beside it",
    "requeue": "requeued",
    "window": "its node was needed for a maintenance or a reservation",
    "health": "its node or GPU is not well",
    "shutdown": "stopped with the service",
    "scale": "its service needs fewer replicas",
}
MOST_LOSSES = 10  # of its process, with its node or otherwise, until a job is given up: it may be what takes nodes down


@dataclass(frozen=True, slots=True)
class End:
    """Where a job goes after its process ended."""

    to: JobState
    why: str
    code: int | None
    signal: int | None
    at_s: float
    lost_s: float = 0.0
    failure: bool = False  # counts against the retries that the user allows
    gone: bool = False  # lost through no fault of the job: counts against `MOST_LOSSES`

    def as_dict(self) -> dict[str, Any]:
        """For the journal."""
        names = ("code", "signal", "at_s", "lost_s", "failure", "gone")
        return {name: getattr(self, name) for name in names}


def judge(job: LiveJob, item: Observed, report: Report | None, now_s: float) -> End:
    """Success, failure, another try, or back to the queue.

    A process that ends with 0 has succeeded, whatever was asked of it. One that was asked to stop for others
    waits again; so does one that failed with retries left, and one that was lost with its node or killed while it
    was suspended, which costs no retry. Lost work is the time it ran since its last checkpoint.
    """
    if job.last.ahead_s and (job.holds or (item.ended_s is not None and item.ended_s < job.last.launched_s)):
        return _in_vain(job, item, now_s)
    at_s = likely_s(item.ended_s, job.last.started_s or job.last.launched_s, now_s)
    code, signal = item.exit_code, item.signal
    lost = lost_s(job, report, at_s)
    if code == 0 and not (job.spec.service and job.stop_why in ASKED):  # servers end like this when told to leave
        return End(JobState.SUCCEEDED, "exit code 0", code, signal, at_s)
    how = _how(item)
    if job.stop_why == "cancel":
        return End(JobState.CANCELLED, "cancelled", code, signal, at_s, lost)
    limit_s = job.spec.max_runtime_s
    alone = limit_s and not job.stop_why and job.last.active_s(at_s) > limit_s  # ended while no service was there
    if job.stop_why == "timeout" or alone:
        return End(
            JobState.FAILED, f"ran longer than max_runtime {job.spec.max_runtime_s:g} s", code, signal, at_s, lost
        )
    saved = _saved(code, report)
    if _without_gpus(job):
        why = "its GPUs were not to be had: starts again on others"
        return End(JobState.PENDING, why, code, signal, at_s, lost)
    if job.stop_why in ASKED:
        why = job.message if job.stop_why == "health" and job.message else ASKED[job.stop_why]
        return End(
            JobState.PENDING, f"{why}, {'work saved' if saved else how}", code, signal, at_s, 0.0 if saved else lost
        )
    if item.state == "lost" or job.state == JobState.SUSPENDED:
        return gone(job, how if item.state == "lost" else f"{how} while it was suspended", at_s, lost)
    if saved:
        return End(JobState.PENDING, "stopped itself after saving", code, signal, at_s)
    if job.failures < job.spec.retries:
        left = job.spec.retries - job.failures - 1
        return End(JobState.PENDING, f"{how}; tries again, {left} retries left", code, signal, at_s, lost, failure=True)
    return End(JobState.FAILED, how, code, signal, at_s, lost, failure=True)


def _in_vain(job: LiveJob, item: Observed, now_s: float) -> End:
    """The end of a process that was started ahead and never had its GPUs.

    Only success counts. Whatever else ended it may be the fault of its early start: the job waits on as if nothing had
    been, and is started when its GPUs are free.
    """
    at_s = likely_s(item.ended_s, job.last.ahead_s, now_s)
    if item.exit_code == 0:
        return End(JobState.SUCCEEDED, "exit code 0", 0, None, at_s)
    if job.stop_why == "cancel":
        return End(JobState.CANCELLED, "cancelled before it had its GPUs", item.exit_code, item.signal, at_s)
    how = "not needed yet" if job.stop_why else f"ended by itself ({_how(item)})"
    return End(JobState.PENDING, f"started ahead, {how}", item.exit_code, item.signal, at_s)


def _how(item: Observed) -> str:
    if item.state == "lost":
        return item.message or "its process vanished"
    if item.oom:
        return "out of memory"
    return f"signal {item.signal}" if item.signal is not None else f"exit code {item.exit_code}"


def likely_s(at_s: float | None, first_s: float, now_s: float) -> float:
    """When something happened by the world's clock; now, if that cannot be since it was not before `first_s`."""
    return at_s if at_s is not None and first_s <= at_s <= now_s else now_s


def _without_gpus(job: LiveJob) -> bool:
    """Whether it was suspended and ended because its GPUs were not to be had, or it would not go on."""
    return job.stop_why == "move" and (job.state == JobState.SUSPENDED or job.rung == KILL)


def _saved(code: int | None, report: Report | None) -> bool:
    """Whether it saved its work and left on request.

    Its exit code says so; where a launcher such as torchrun turns that of its workers into 1, their last word does.
    """
    return code == EXIT_PREEMPTED or (code == 1 and report is not None and report.left_saved)


def gone(job: LiveJob, how: str, at_s: float, lost: float) -> End:
    """Its process is gone and nobody blames the job; but what takes every process with it is not tried for ever.

    One that somebody else has made is gone for good: only he can make it again.
    """
    if job.spec.foreign:
        return End(JobState.FAILED, how, None, None, at_s, lost, gone=True)
    if job.losses + 1 >= MOST_LOSSES:
        return End(JobState.FAILED, f"{how}; lost {job.losses + 1} times", None, None, at_s, lost, gone=True)
    return End(JobState.PENDING, f"{how}; tries again", None, None, at_s, lost, gone=True)


def lost_s(job: LiveJob, report: Report | None, at_s: float) -> float:
    """Work that would be lost if its process ended then."""
    return job.last.lost_if_ended_s(at_s, report.checkpoint_s if report is not None else None)


def costs(job: LiveJob, end: End, report: Report | None) -> dict[str, Any]:
    """What stopping and restoring really cost and by which rung; what is done and left to do, as far as known."""
    found: dict[str, Any] = {}
    if job.holds:
        return found
    if _without_gpus(job) or (job.state == JobState.SUSPENDED and job.stop_why not in ASKED):
        found["rung"] = SUSPEND
    elif job.stop_why in ASKED and end.code != 0:
        found["stop_s"] = max(end.at_s - job.stop_asked_s, 0.0)
        found["rung"] = ASK if _saved(end.code, report) else STOP
    if report is not None and report.restore_s is not None:
        found["restore_s"] = report.restore_s
    left = left_s(report)
    if left is not None and _saved(end.code, report):
        found["left_s"] = left
    found |= timings(job, report)
    if report is not None and end.code == 0 and report.stepped_s is not None and report.step == report.total:
        found["exit_s"] = max(end.at_s - report.stepped_s, 0.0)
    if report is not None and report.step is not None:
        metrics = {name: value if math.isfinite(value) else None for name, value in report.metrics.items()}
        steps = {"step": report.step, "total": report.total, "step_time_s": report.step_time_s}
        found["progress"] = {**steps, "metrics": metrics}
    return found


def timings(job: LiveJob, report: Report | None) -> dict[str, Any]:
    """How long it took to come to its steps, and what these take, as far as known. Its first step counts as work."""
    if report is None or report.ready_s is None:
        return {}
    step_s = report.speed.step_s
    found = {} if step_s is None else {"step_s": step_s}
    if not job.last.start_s:
        found["start_s"] = max(report.ready_s - job.last.launched_s - (step_s or 0.0), 0.0)
    if report.restore_s is not None:
        found["restore_s"] = report.restore_s
    return found


def orphans(book: Book) -> list[Entry]:
    """What to journal of pending jobs that come after others and never can start any more: they are cancelled."""
    never_to_start = ((job, never(job, book.members)) for job in book.chained.values())
    return [Entry("reject", job.id, {"why": why, "to": str(JobState.CANCELLED)}) for job, why in never_to_start if why]


def left_s(report: Report | None) -> float | None:
    """Seconds that a job needs for the steps that are left, on the GPUs on which it said so; None while it is cold."""
    if report is None or not report.total or report.step is None or report.speed.mean_s is None:
        return None
    return max(report.total - report.step, 0) * report.speed.mean_s if report.speed.warm else None
