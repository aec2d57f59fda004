"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, `;` before comments.

Its processors are taken as GPUs (`-1`: what was requested). Jobs that never ran (run time -1, 0 processors) are left
out.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from cotenant.core.errors import InputError
from cotenant.core.workload import Status, Workload
from cotenant.workload.readers.base import is_number
from cotenant.workload.readers.records import NAN, JobRecord, workload_of

_STATUS = {0: Status.FAILED, 1: Status.PASSED, 5: Status.KILLED}
_FIELDS = 18


class SwfLog:
    """Not a table with a header: `parse` takes the text of the file."""

    name: ClassVar[str] = "swf"
    about: ClassVar[str] = "Standard Workload Format (18 numbers per line; processors are taken as GPUs)"
    duration_means: ClassVar[str] = "the run time of the job"

    def matches(self, raw: bytes) -> bool:
        """Comments that begin with `;`, or a first line of 18 numbers."""
        line = raw[:4000].decode("utf-8", "replace").lstrip().split("\n")[0]
        cells = line.split()
        return line.startswith(";") or (len(cells) == _FIELDS and all(map(is_number, cells)))

    def parse(self, path: Path, raw: bytes) -> Workload:
        """Lines of numbers; times count from the beginning of the log."""
        jobs: list[JobRecord] = []
        left = {"never ran": 0}
        for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith(";"):
                continue
            cells = line.split()
            if len(cells) != _FIELDS or not all(map(is_number, cells)):
                raise InputError(f"{path} line {number}: not {_FIELDS} numbers, as the Standard Workload Format has")
            values = [float(cell) for cell in cells]
            submit_s, wait_s, run_s, used, asked = values[1], max(values[2], 0.0), values[3], values[4], values[7]
            gpus = int(used if used > 0 else asked)
            if run_s < 0 or gpus <= 0:
                left["never ran"] += 1
                continue
            start_s = submit_s + wait_s
            limit_s = values[8] if values[8] > 0 else NAN
            texts = {"partition": cells[15]} if values[15] >= 0 else {}
            texts |= {"qos": f"queue {cells[14]}"} if values[14] >= 0 else {}
            status = int(_STATUS.get(int(values[10]), Status.UNKNOWN))
            jobs.append(
                JobRecord(
                    cells[0], submit_s, start_s, start_s + run_s, gpus, run_s, _name("group", cells[12]),
                    _name("user", cells[11]), _name("app", cells[13]), status,
                    limit_s=limit_s, texts=texts,
                )
            )  # fmt: skip
        return workload_of(path, jobs, left)


def _name(what: str, cell: str) -> str:
    return "" if cell.startswith("-") else f"{what}-{cell}"
