"""The official Philly log, `cluster_job_log`: a JSON list of jobs with their attempts (Microsoft, ATC'19).

GPUs are those of the last attempt that lists machines. Duration is the sum of all attempts that ended, so it
includes failed work; every attempt but the last goes to `Workload.attempts`. Dates are naive local time. When a job
first started, when it last ended and on how many machines it was are kept for `cotenant analyze`.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Status, Workload, make_workload
from cotenant.workload.readers.base import STATUS_OF

_EPOCH = datetime(1970, 1, 1)


class PhillyLog:
    """Not a table: `parse` takes the text of the file."""

    name: ClassVar[str] = "philly"
    about: ClassVar[str] = "official Philly cluster_job_log (JSON)"
    required: ClassVar[tuple[str, ...]] = ("jobid", "submitted_time", "attempts", "status", "vc", "user")
    duration_means: ClassVar[str] = "the sum of all attempts"

    def parse(self, path: Path, raw: bytes) -> Workload:
        """Jobs that never ran or asked for no GPU are left out with a counted note."""
        try:
            data = json.loads(raw)
        except ValueError as error:
            raise InputError(f"{path}: broken JSON ({error}); copy the file again") from None
        if not isinstance(data, list) or not data:
            raise InputError(f"{path}: not a Philly job log (a JSON list with at least one job)")
        rows = [_job(path, number, item) for number, item in enumerate(data, start=1)]
        ran = [row for row in rows if row.lengths]
        jobs = [row for row in ran if row.gpus > 0]
        notes = []
        if len(ran) < len(rows):
            notes.append(f"{path.name}: {len(rows) - len(ran)} jobs left out (no attempt ended)")
        if len(jobs) < len(ran):
            notes.append(f"{path.name}: {len(ran) - len(jobs)} jobs left out (0 GPUs asked)")
        if not jobs:
            raise InputError(f"{path}: no job is left; none has GPUs and an attempt that ended")
        clock_s = np.array([row.submit_s for row in jobs], np.float64)
        submit_s = clock_s - clock_s.min()
        if np.any(np.diff(submit_s) < 0):
            notes.append(f"{path.name}: jobs were not sorted by submit time; sorted")
        _no_duplicates(path, [row.id for row in rows])
        return make_workload(
            str(path),
            submit_s,
            np.array([row.gpus for row in jobs], np.int64),
            np.array([sum(row.lengths) for row in jobs], np.float64),
            job_id=np.array([row.id for row in jobs], dtype=object),
            tenant=Codes.of([row.vc for row in jobs]),
            user=Codes.of([row.user for row in jobs]),
            status=np.array([row.status for row in jobs], np.int64),
            attempts={at: tuple(row.lengths[:-1]) for at, row in enumerate(jobs) if len(row.lengths) > 1},
            extra={
                "submit_clock_s": clock_s,
                "wait_s": np.array([row.first_s - row.submit_s for row in jobs]),
                "first_to_last_s": np.array([row.last_s - row.first_s for row in jobs]),
                "servers": np.array([row.servers for row in jobs], np.float64),
            },
            notes=tuple(notes),
        )


class _PhillyJob(NamedTuple):
    """One job of the list; `lengths` are seconds of the attempts that ended, times are seconds from 1970."""

    id: str
    submit_s: float
    gpus: int
    lengths: list[float]
    vc: str
    user: str
    status: int
    first_s: float
    last_s: float
    servers: int


def _job(path: Path, number: int, item: Any) -> _PhillyJob:
    try:
        lengths, gpus, servers, times = [], 0, 0, []
        for attempt in item["attempts"]:
            detail = attempt.get("detail") or ()
            found = sum(len(machine["gpus"]) for machine in detail)
            gpus, servers = (found, len(detail)) if found else (gpus, servers)
            start, end = _seconds(attempt.get("start_time")), _seconds(attempt.get("end_time"))
            if start is not None and end is not None:
                if end < start:
                    raise InputError(f"{path} job {number}: an attempt ends before it starts")
                lengths.append(end - start)
                times += [start, end]
        submit = _seconds(item["submitted_time"])
        if submit is None:
            raise InputError(f"{path} job {number}: submitted_time of '{item['jobid']}' is missing")
        status = STATUS_OF.get(str(item.get("status", "")).strip().lower(), Status.UNKNOWN)
        vc, user = str(item.get("vc") or ""), str(item.get("user") or "")
        first_s, last_s = (min(times), max(times)) if times else (submit, submit)
        kept = [x for x in lengths if x > 0]
        return _PhillyJob(str(item["jobid"]), submit, gpus, kept, vc, user, int(status), first_s, last_s, servers)
    except KeyError as missing:
        raise InputError(f"{path} job {number}: field {missing} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} job {number}: cannot be read ({error})") from None


def _seconds(text: str | None) -> float | None:
    if not text or text == "None":
        return None
    return (datetime.fromisoformat(text[:19]) - _EPOCH).total_seconds()


def _no_duplicates(path: Path, ids: list[str]) -> None:
    seen: dict[str, int] = {}
    for number, job in enumerate(ids, start=1):
        if job in seen:
            raise InputError(f"{path} job {number}: jobid '{job}' was used before, in job {seen[job]}; ids must differ")
        seen[job] = number
