"""Jobs of logs that are no plain tables (Slurm's accounting, Kubernetes, Ray) as records, and a workload of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Status, Workload, make_workload

NAN = float("nan")
_TIME = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$")
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B?)$", re.IGNORECASE)
_GIB = {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 1024.0, "P": 2.0**20}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job that ran and ended. Moments are seconds from 1970; NaN and '' where the log does not tell."""

    id: str
    submit_s: float
    start_s: float
    end_s: float
    gpus: int
    duration_s: float
    tenant: str = ""
    user: str = ""
    model: str = ""
    status: int = int(Status.UNKNOWN)
    cpus: float = NAN
    mem_gib: float = NAN
    nodes: float = NAN
    limit_s: float = NAN
    failed_s: tuple[float, ...] = ()  # lengths of attempts before the last
    first_s: float = NAN  # start of the first of them
    texts: dict[str, str] = field(default_factory=dict)  # partition, qos, gpu_kind, reason, ...


def workload_of(path: Path, jobs: list[JobRecord], left_out: dict[str, int], notes: Iterable[str] = ()) -> Workload:
    """The jobs in the order of the log, on a clock that begins with the first submission."""
    told = [f"{path.name}: {count:,} left out ({why})" for why, count in left_out.items() if count]
    told += [f"{path.name}: {note}" for note in notes]
    if not jobs:
        why = "; ".join(told) or "it lists none"
        raise InputError(f"{path}: no job is left that ran on GPUs and ended: {why}")
    clock_s = np.array([job.submit_s for job in jobs])
    texts = {
        key: [job.texts.get(key, "") for job in jobs] for key in dict.fromkeys(k for job in jobs for k in job.texts)
    }
    firsts = [job.start_s if np.isnan(job.first_s) else job.first_s for job in jobs]
    extra: dict[str, Any] = {
        "submit_clock_s": clock_s,
        "wait_s": np.array([first - job.submit_s for first, job in zip(firsts, jobs, strict=True)]),
        "first_to_last_s": np.array([job.end_s - first for first, job in zip(firsts, jobs, strict=True)]),
        "servers": np.array([job.nodes for job in jobs]),
        **{key: np.array(values, dtype=object) for key, values in texts.items()},
    }
    if not all(np.isnan(job.limit_s) for job in jobs):
        extra["time_limit_s"] = np.array([job.limit_s for job in jobs])
    if np.any(np.diff(clock_s) < 0):
        told.append(f"{path.name}: jobs were not sorted by submit time; sorted")
    return make_workload(
        str(path),
        clock_s - clock_s.min(),
        np.array([job.gpus for job in jobs], np.int64),
        np.array([job.duration_s for job in jobs]),
        job_id=np.array([job.id for job in jobs], dtype=object),
        tenant=Codes.of([job.tenant for job in jobs]),
        user=Codes.of([job.user for job in jobs]),
        model=Codes.of([job.model for job in jobs]),
        status=np.array([job.status for job in jobs], np.int64),
        cpus=np.array([job.cpus for job in jobs]),
        mem_gib=np.array([job.mem_gib for job in jobs]),
        attempts={at: job.failed_s for at, job in enumerate(jobs) if job.failed_s},
        extra=extra,
        notes=tuple(told),
    )


def load_json(path: Path, raw: bytes) -> Any:
    """JSON, or one clear line."""
    try:
        return json.loads(raw)
    except ValueError as error:
        raise InputError(f"{path}: broken JSON ({error}); copy the file again") from None


def date_s(text: object) -> float:
    """`2024-05-01T12:00:00`, with or without a zone, as seconds from 1970; NaN for Unknown, None, N/A and nothing."""
    word = str(text if text is not None else "").strip()
    if word.lower() in ("", "unknown", "none", "n/a", "null", "0"):
        return NAN
    if re.fullmatch(r"\d+(\.\d+)?", word):
        return float(word)
    date = datetime.fromisoformat(word.replace("Z", "+00:00"))
    return date.replace(tzinfo=date.tzinfo or UTC).timestamp()


def length_s(text: str) -> float:
    """`[days-[hours:]]minutes:seconds` as Slurm writes times; NaN for UNLIMITED, Partition_Limit and the like."""
    word = text.strip()
    if re.fullmatch(r"\d+-\d+(:\d+)?", word):  # days-hours[:minutes]
        days, _, rest = word.partition("-")
        hours, _, minutes = rest.partition(":")
        return int(days) * 86400.0 + int(hours) * 3600.0 + int(minutes or 0) * 60.0
    match = _TIME.match(word)
    if match is None:
        return NAN
    parts = [float(part or 0) for part in match.groups()]
    return parts[0] * 86400 + parts[1] * 3600 + parts[2] * 60 + parts[3]


def gib(text: str) -> float:
    """`16G`, `16000M`, `1T`, `4Gi` as GiB; NaN where it is none. Plain numbers are MiB, as in Slurm."""
    match = _SIZE.match(text.strip())
    return float(match[1]) * _GIB[match[2].upper()] if match else NAN
