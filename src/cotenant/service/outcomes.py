"""What the end of a process means for its job, and how long a job is believed to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotenant.backends.base import Observed
from cotenant.core.lifecycle import JobState
from cotenant.service.book import LiveJob
from cotenant.service.reports import Report

UNKNOWN_DURATION_S = 3600.0
EXIT_PREEMPTED = 75  # what the runtime exits with after saving on request


@dataclass(frozen=True, slots=True)
class End:
    """Where a job goes after its process ended."""

    to: JobState
    why: str
    code: int | None
    signal: int | None
    at_s: float
    lost_s: float = 0.0
    failure: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "code": self.code,
            "signal": self.signal,
            "at_s": self.at_s,
            "lost_s": self.lost_s,
            "failure": self.failure,
        }


def judge(job: LiveJob, item: Observed, report: Report | None, now_s: float) -> End:
    """Success, failure, another try, or back to the queue.

    A process that ends with 0 has succeeded, whatever was asked of it. One that was asked to stop for others
    waits again; so does one that failed with retries left. Lost work is the time since its last checkpoint.
    """
    at_s = item.ended_s if item.ended_s is not None else now_s
    code, signal = item.exit_code, item.signal
    lost = _lost_s(job, report, at_s)
    if code == 0:
        return End(JobState.SUCCEEDED, "exit code 0", code, signal, at_s)
    how = "out of memory" if item.oom else f"signal {signal}" if signal is not None else f"exit code {code}"
    if item.state == "lost":
        how = item.message or "its process vanished"
    if job.stop_why == "cancel":
        return End(JobState.CANCELLED, "cancelled", code, signal, at_s, lost)
    if job.stop_why == "timeout":
        return End(
            JobState.FAILED, f"ran longer than max_runtime {job.spec.max_runtime_s:g} s", code, signal, at_s, lost
        )
    saved = code == EXIT_PREEMPTED
    if job.stop_why in ("preempt", "hold"):
        why = "preempted" if job.stop_why == "preempt" else "held"
        return End(
            JobState.PENDING, f"{why}, {'work saved' if saved else how}", code, signal, at_s, 0.0 if saved else lost
        )
    if saved:
        return End(JobState.PENDING, "stopped itself after saving", code, signal, at_s)
    if job.failures < job.spec.retries:
        left = job.spec.retries - job.failures - 1
        return End(JobState.PENDING, f"{how}; tries again, {left} retries left", code, signal, at_s, lost, failure=True)
    return End(JobState.FAILED, how, code, signal, at_s, lost, failure=True)


def _lost_s(job: LiveJob, report: Report | None, at_s: float) -> float:
    began = job.last.started_s
    if began is None:
        return 0.0
    if report is not None and report.checkpoint_s is not None:
        began = max(began, report.checkpoint_s)
    return max(at_s - began, 0.0)


def costs(job: LiveJob, end: End, report: Report | None) -> dict[str, float]:
    """What stopping and restoring really cost, and what is left to do, as far as known."""
    found = {}
    if job.stop_why in ("preempt", "hold"):
        found["stop_s"] = max(end.at_s - job.stop_asked_s, 0.0)
    if report is not None and report.restore_s is not None:
        found["restore_s"] = report.restore_s
    left = _left_s(report)
    if left is not None and end.code == EXIT_PREEMPTED:
        found["left_s"] = left
    return found


def _left_s(report: Report | None) -> float | None:
    if report is None or not report.total or not report.step_time_s or report.step is None:
        return None
    return max(report.total - report.step, 0) * report.step_time_s


def believed_total_s(job: LiveJob, report: Report | None, done_s: float, attained_s: float) -> float:
    """How long a job takes in all: from its progress, else from what the user says, else a default."""
    left = _left_s(report)
    left = job.left_s if left is None else left
    if left is not None:
        return done_s + left
    if job.spec.expected_s:
        return max(job.spec.expected_s, done_s + 1.0)
    return max(UNKNOWN_DURATION_S, 2 * attained_s)
