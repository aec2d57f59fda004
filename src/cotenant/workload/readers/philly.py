"""The official Philly log, `cluster_job_log`: a JSON list of jobs with their attempts (Microsoft, ATC'19).

GPUs are those of the last attempt that lists machines. Duration is the sum of all attempts that ended, so it
includes failed work; every attempt but the last goes to `Workload.attempts`. Dates are naive local time.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Status, Workload, make_workload
from cotenant.workload.readers.base import STATUS_OF

_EPOCH = datetime(2017, 1, 1)


class PhillyLog:
    """Not a table: `parse_json` takes the text of the file."""

    name: ClassVar[str] = "philly"
    about: ClassVar[str] = "official Philly cluster_job_log (JSON)"
    required: ClassVar[tuple[str, ...]] = ("jobid", "submitted_time", "attempts", "status", "vc", "user")

    def parse_json(self, path: Path, raw: bytes) -> Workload:
        """Jobs that never ran or asked for no GPU are left out with a counted note."""
        try:
            data = json.loads(raw)
        except ValueError as error:
            raise InputError(f"{path}: broken JSON ({error}); copy the file again") from None
        if not isinstance(data, list) or not data:
            raise InputError(f"{path}: not a Philly job log (a JSON list with at least one job)")
        rows = [_job(path, number, item) for number, item in enumerate(data, start=1)]
        ran = [row for row in rows if row[3]]
        jobs = [row for row in ran if row[2] > 0]
        notes = []
        if len(ran) < len(rows):
            notes.append(f"{path.name}: {len(rows) - len(ran)} jobs left out (no attempt ended)")
        if len(jobs) < len(ran):
            notes.append(f"{path.name}: {len(ran) - len(jobs)} jobs left out (0 GPUs asked)")
        if not jobs:
            raise InputError(f"{path}: no job is left; none has GPUs and an attempt that ended")
        submit_s = np.array([row[1] for row in jobs], np.float64)
        submit_s -= submit_s.min()
        if np.any(np.diff(submit_s) < 0):
            notes.append(f"{path.name}: jobs were not sorted by submit time; sorted")
        _no_duplicates(path, [row[0] for row in rows])
        return make_workload(
            str(path),
            submit_s,
            np.array([row[2] for row in jobs], np.int64),
            np.array([sum(row[3]) for row in jobs], np.float64),
            job_id=np.array([row[0] for row in jobs], dtype=object),
            tenant=Codes.of([row[4] for row in jobs]),
            user=Codes.of([row[5] for row in jobs]),
            status=np.array([row[6] for row in jobs], np.int64),
            attempts={at: tuple(row[3][:-1]) for at, row in enumerate(jobs) if len(row[3]) > 1},
            notes=tuple(notes),
        )


def _job(path: Path, number: int, item: Any) -> tuple[str, float, int, list[float], str, str, int]:
    """(id, submit, GPUs, seconds of the attempts that ended, vc, user, status)."""
    try:
        lengths, gpus = [], 0
        for attempt in item["attempts"]:
            detail = attempt.get("detail") or ()
            gpus = sum(len(machine["gpus"]) for machine in detail) or gpus
            start, end = _seconds(attempt.get("start_time")), _seconds(attempt.get("end_time"))
            if start is not None and end is not None:
                if end < start:
                    raise InputError(f"{path} job {number}: an attempt ends before it starts")
                lengths.append(end - start)
        submit = _seconds(item["submitted_time"])
        if submit is None:
            raise InputError(f"{path} job {number}: submitted_time of '{item['jobid']}' is missing")
        status = STATUS_OF.get(str(item.get("status", "")).strip().lower(), Status.UNKNOWN)
        vc, user = str(item.get("vc") or ""), str(item.get("user") or "")
        return str(item["jobid"]), submit, gpus, [x for x in lengths if x > 0], vc, user, int(status)
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
