"""The jobs of a journal as a workload: what the service has run, for analysis.

A copy is read, so a service that runs is not disturbed. Jobs that retention has forgotten are not in it any more.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.core.workload import Codes, Status, Workload, make_workload
from cotenant.journal import open_journal
from cotenant.service.store.job import Attempt, LiveJob
from cotenant.service.store.store import read_book

DURATION_MEANS = "the sum of all attempts, without the time in which they were suspended"
_STATUS = {
    JobState.SUCCEEDED: Status.PASSED, JobState.CANCELLED: Status.KILLED, JobState.FAILED: Status.FAILED,
}  # fmt: skip


def history(home: Path) -> Workload:
    """The ended jobs of the journal in this home, or of this copy of a journal; the others are counted in a note."""
    path = home / "journal.db" if home.is_dir() else home
    if not path.is_file():
        raise InputError(
            f"{home}: there is no journal.db in it; name the home of a service, a log, or a file of `cotenant backup`"
        )
    jobs = _jobs(path)
    ran = [job for job in jobs if job.finished and job.size > 0 and _ran_s(job) > 0]
    if not ran:
        raise InputError(f"{path}: none of its {len(jobs)} jobs has run on GPUs and ended yet")
    others = len(jobs) - len(ran)
    notes = (f"{others} jobs are left out: not ended yet, or never on GPUs",) if others else ()
    clock_s = np.array([_local_s(job.submitted_s) for job in ran])
    return make_workload(
        str(home),
        clock_s,
        np.array([job.size for job in ran], np.int64),
        np.array([_ran_s(job) for job in ran]),
        job_id=np.array([job.id for job in ran], dtype=object),
        tenant=Codes.of([job.tenant for job in ran]),
        user=Codes.of([job.user for job in ran]),
        status=np.array([int(_STATUS[job.state]) for job in ran], np.int64),
        attempts={at: tries for at, job in enumerate(ran) if (tries := _failed(job))},
        extra={
            "submit_clock_s": clock_s,
            "wait_s": np.array([_wait_s(job) for job in ran]),
            "first_to_last_s": np.array([_first_to_last_s(job) for job in ran]),
            "servers": np.array([len(job.last.gpus) for job in ran], np.float64),
            "failure": np.array([_reason(job) for job in ran], dtype=object),
        },
        notes=notes,
    )


def _jobs(path: Path) -> list[LiveJob]:
    """From a consistent copy: only one process at a time may open the journal itself."""
    with tempfile.TemporaryDirectory(prefix="cotenant-history-") as folder:
        copy = Path(folder) / "journal.db"
        try:
            with (
                closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise InputError(f"{path}: cannot be read as a journal ({error})") from None
        with open_journal(str(copy)) as journal:
            return list(read_book(journal).jobs.values())


def _ran_s(job: LiveJob) -> float:
    return job.attained_s(job.ended_s or 0.0)


def _wait_s(job: LiveJob) -> float:
    return max(job.started_s - job.submitted_s, 0.0) if job.started_s is not None else np.nan


def _first_to_last_s(job: LiveJob) -> float:
    return max((job.ended_s or 0.0) - job.started_s, 0.0) if job.started_s is not None else np.nan


def _failed(job: LiveJob) -> tuple[float, ...]:
    """Seconds of the attempts before the last one that ended by themselves, and not well."""
    return tuple(one.ran_s for one in job.attempts[:-1] if not one.rung and not one.holds and _code(one))


def _reason(job: LiveJob) -> str:
    if job.state != JobState.FAILED:
        return ""
    return _code(job.last) or job.message


def _code(attempt: Attempt) -> str:
    if attempt.signal:
        return f"signal {attempt.signal}"
    return f"exit code {attempt.exit_code}" if attempt.exit_code else ""


def _local_s(at_s: float) -> float:
    """A moment on the wall clock of this machine, as seconds from 1970."""
    offset = datetime.fromtimestamp(at_s).astimezone().utcoffset()
    return at_s + (offset.total_seconds() if offset is not None else 0.0)
