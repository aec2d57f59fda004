"""Slurm's accounting, as `sacct` prints it: `-P` (or `-p`), fixed width, or `--json`.

One row per allocation: steps (`7.batch`, `7.0`) are left out, elements of arrays are jobs, `7_[1-4%2]` has not started
yet. A job that was requeued has a row per run where `sacct -D` was used: the earlier ones become failed attempts. GPUs
are those allocated (`AllocTRES`, else what was requested), of all types together; which type is kept for `--where
gpu_kind == ...`. The duration is `Elapsed`, which leaves out time in suspension, else End - Start. Tenants are
accounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Status, Workload
from cotenant.workload.readers.base import STATUS_OF, status_word
from cotenant.workload.readers.records import NAN, JobRecord, date_s, gib, length_s, load_json, workload_of

Row = dict[str, str]
_STATES = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RUNNING",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "SUSPENDED",
    "TIMEOUT",
    "COMPLETING",
]
_GPUS = re.compile(r"(?:gres[/:])?gpu(?::([A-Za-z][\w.-]*))?[=:](\d+)")
_NEEDS = "JobID, Submit, Start, End and AllocTRES (or ReqTRES, AllocGRES)"
ASK = "sacct -P -a -o JobID,User,Account,Partition,QOS,Submit,Start,End,ElapsedRaw,State,Timelimit,NNodes,AllocTRES"


class SacctLog:
    """Not a table: `parse` takes the text of the file."""

    name: ClassVar[str] = "sacct"
    about: ClassVar[str] = "Slurm accounting: sacct -P, --json or fixed width"
    duration_means: ClassVar[str] = "the time that the allocation ran, without suspension"

    def matches(self, raw: bytes) -> bool:
        """By its first lines: a header with JobID, cut by `|` or underlined, or JSON with jobs that have TRES."""
        if raw[:1] == b"{":
            return b'"tres"' in raw[:200_000] and b'"jobs"' in raw
        head = raw[:4000].decode("utf-8", "replace").lstrip().split("\n")
        names = head[0].lower()
        underlined = len(head) > 1 and re.fullmatch(r"[- ]+\s*", head[1] or "x") is not None
        return "jobid" in re.split(r"[|\s]+", names) and ("|" in names or underlined)

    def parse(self, path: Path, raw: bytes) -> Workload:
        """Rows of any of the three forms."""
        rows = list(_of_json(path, raw) if raw[:1] == b"{" else _of_text(path, raw))
        if not rows:
            raise InputError(f"{path} has a header line but no jobs below it")
        return _workload(path, rows)


def _of_text(path: Path, raw: bytes) -> Iterator[tuple[str, Row]]:
    lines = raw.decode("utf-8", "replace").splitlines()
    first = next(at for at, line in enumerate(lines) if line.strip())
    cut = _cutter(lines[first], lines[first + 1] if first + 1 < len(lines) else "")
    names = [name.strip().lower().split("%")[0] for name in cut(lines[first])]
    if "submit" not in names or "jobid" not in names:
        raise InputError(f"{path} line {first + 1}: column 'Submit' or 'JobID' is missing; ask for {_NEEDS}: {ASK}")
    for number, line in enumerate(lines[first + 1 :], start=first + 2):
        if not line.strip() or not line.strip("- "):
            continue
        cells = cut(line)
        if len(cells) < len(names):
            raise InputError(
                f"{path} line {number}: {len(cells)} cells, but the header has {len(names)}; is it cut off?"
            )
        yield f"{path} line {number}", {name: cell.strip() for name, cell in zip(names, cells, strict=False)}


def _cutter(header: str, below: str) -> Any:
    """How lines are cut into cells: at `|`, or where the dashes below the header stand."""
    if "|" in header:
        return lambda line: line.split("|")
    edges = [match.span() for match in re.finditer(r"-+", below)]
    return lambda line: [line[start:end] for start, end in edges]


def _of_json(path: Path, raw: bytes) -> Iterator[tuple[str, Row]]:
    """`sacct --json`, of Slurm 20.11 and later: numbers are sometimes objects with `set` and `number`."""
    data = load_json(path, raw)
    for number, job in enumerate(data.get("jobs") or [], start=1):
        where = f"{path} job {number}"
        try:
            yield where, _json_row(job)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where}: cannot be read ({type(error).__name__}: {error})") from None


def _json_row(job: dict[str, Any]) -> Row:
    time, array = job["time"], job.get("array") or {}
    base, task = _plain(array.get("job_id")), _plain(array.get("task_id"))
    state = job.get("state")
    state = state.get("current") if isinstance(state, dict) else state
    limit = _plain(time.get("limit"))
    tres = (job.get("tres") or {}).get("allocated") or (job.get("tres") or {}).get("requested") or []
    return {
        "jobid": f"{base}_{task}" if base not in ("", "0") and task else str(job["job_id"]),
        "jobname": str(job.get("name") or ""), "user": str(job.get("user") or ""),
        "account": str(job.get("account") or ""), "partition": str(job.get("partition") or ""),
        "qos": str(job.get("qos") or ""), "submit": _plain(time.get("submission")), "start": _plain(time.get("start")),
        "end": _plain(time.get("end")), "elapsedraw": _plain(time.get("elapsed")),
        "state": " ".join(state) if isinstance(state, list) else str(state or ""),
        "timelimitraw": limit, "nnodes": _plain(job.get("allocation_nodes")),
        "alloctres": ",".join(_tres(part) for part in tres),
        "reason": str((job.get("state") or {}).get("reason", "") if isinstance(job.get("state"), dict) else ""),
    }  # fmt: skip


def _plain(value: Any) -> str:
    """A number, which newer versions write as {"set": true, "number": 5}; '' where it is not set."""
    if isinstance(value, dict):
        return str(value.get("number", "")) if value.get("set") and not value.get("infinite") else ""
    return "" if value is None else str(value)


def _tres(part: dict[str, Any]) -> str:
    kind, name, count = part.get("type", ""), part.get("name") or "", _plain(part.get("count"))
    if kind == "mem":
        count += "M"
    return f"{kind}/{name}={count}" if name else f"{kind}={count}"


def _workload(path: Path, rows: list[tuple[str, Row]]) -> Workload:
    left = {"steps of jobs": 0, "not started": 0, "not ended": 0, "no GPUs": 0}
    found: dict[str, JobRecord] = {}
    strange: dict[str, int] = {}
    for where, row in rows:
        id_ = row["jobid"]
        if "." in id_:
            left["steps of jobs"] += 1
            continue
        if not id_:
            raise InputError(f"{where}: JobID is empty")
        if "[" in id_:  # elements of an array that nobody has started
            left["not started"] += 1
            continue
        try:
            submit_s, start_s, end_s = (date_s(row.get(key, "")) for key in ("submit", "start", "end"))
        except ValueError:
            cells = ", ".join(f"{key} '{row.get(key, '')}'" for key in ("submit", "start", "end"))
            raise InputError(f"{where}: {cells}: not all are dates such as 2024-05-01T12:00:00 or Unknown") from None
        if np.isnan(submit_s):
            raise InputError(f"{where}: Submit is '{row.get('submit', '')}', not a date")
        if np.isnan(start_s):
            left["not started"] += 1
            continue
        state = _state(row.get("state", ""))
        if np.isnan(end_s) or state in ("RUNNING", "PENDING", "SUSPENDED"):
            left["not ended"] += 1
            continue
        gpus, kind = _gpus(row)
        if not gpus:
            left["no GPUs"] += 1
            continue
        if state and state not in _STATES:
            strange[state] = strange.get(state, 0) + 1
        record = _record(id_, row, state, submit_s, start_s, end_s, gpus, kind)
        found[id_] = record if id_ not in found else _again(found[id_], record)
    notes = [
        f"state '{state}' of {count:,} jobs is not one of Slurm's; taken as unknown" for state, count in strange.items()
    ]
    requeued = sum(1 for job in found.values() if job.failed_s)
    if requeued:
        notes.append(f"{requeued:,} jobs were requeued: earlier runs are failed attempts")
    return workload_of(path, list(found.values()), left, notes)


def _record(
    id_: str, row: Row, state: str, submit_s: float, start_s: float, end_s: float, gpus: int, kind: str
) -> JobRecord:
    tres = _pairs(row.get("alloctres") or row.get("reqtres") or "")
    raw = row.get("elapsedraw", "")
    elapsed_s = float(raw) if raw.replace(".", "", 1).isdigit() else length_s(row.get("elapsed", ""))
    duration_s = elapsed_s if elapsed_s == elapsed_s else max(end_s - start_s, 0.0)
    nodes = _number(row.get("nnodes") or row.get("allocnodes") or tres.get("node", ""))
    cpus = _number(row.get("alloccpus") or row.get("ncpus") or tres.get("cpu", ""))
    minutes = row.get("timelimitraw", "")
    limit_s = float(minutes) * 60 if minutes.isdigit() else length_s(row.get("timelimit", ""))
    status = int(STATUS_OF.get(status_word(state), Status.UNKNOWN))
    texts = {
        "partition": row.get("partition", ""), "qos": row.get("qos", ""), "reason": row.get("reason", ""),
        "gpu_kind": kind, "name": row.get("jobname", ""),
    }  # fmt: skip
    return JobRecord(
        id_, submit_s, start_s, end_s, gpus, duration_s, row.get("account", ""), row.get("user", ""), "", status, cpus,
        _memory(row, tres, nodes, cpus), nodes, limit_s, (), NAN, {key: text for key, text in texts.items() if text},
    )  # fmt: skip


def _again(before: JobRecord, now: JobRecord) -> JobRecord:
    """The same job, run once more: what went before is a failed attempt; it was submitted when it first was."""
    from dataclasses import replace

    first, last = sorted((before, now), key=lambda record: record.start_s)
    lengths = (*first.failed_s, first.duration_s - sum(first.failed_s))
    begun_s = first.start_s if np.isnan(first.first_s) else first.first_s
    return replace(
        last,
        first_s=begun_s,
        submit_s=min(first.submit_s, last.submit_s),
        duration_s=last.duration_s + sum(lengths),
        failed_s=lengths,
    )


def _state(text: str) -> str:
    """Its first word; cut off ones (`CANCELLED+`, `OUT_OF_ME+`) are completed."""
    word = text.strip().split(" ")[0].upper()
    if word.endswith("+"):
        return next((state for state in _STATES if state.startswith(word[:-1])), word[:-1])
    return word


def _pairs(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _gpus(row: Row) -> tuple[int, str]:
    """GPUs of an allocation, and their type where it is told."""
    for key in ("alloctres", "reqtres", "allocgres", "reqgres"):
        found = _GPUS.findall(row.get(key, ""))
        if not found:
            continue
        typed = [(kind, int(count)) for kind, count in found if kind]
        plain = [int(count) for kind, count in found if not kind]
        total = max(sum(plain), sum(count for _, count in typed)) if plain else sum(count for _, count in typed)
        if key.endswith("gres"):  # GRES are per node
            total *= max(int(_number(row.get("nnodes") or row.get("allocnodes") or "1") or 1), 1)
        return total, "+".join(dict.fromkeys(kind for kind, _ in typed))
    return 0, ""


def _memory(row: Row, tres: dict[str, str], nodes: float, cpus: float) -> float:
    """GiB of the whole gang: allocated, or asked for per node (`16Gn`) or per core (`4Gc`)."""
    if "mem" in tres:
        return gib(tres["mem"])
    text = row.get("reqmem", "")
    factor = {"c": cpus, "n": nodes}.get(text[-1:], 1.0)
    size = gib(text[:-1] if text[-1:] in ("c", "n") else text)
    return size * (1.0 if factor != factor else factor)


def _number(text: str) -> float:
    return float(text) if text.strip().isdigit() else NAN
