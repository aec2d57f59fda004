"""Helios `cluster_log.csv` (S-Lab, SC'21): one row per Slurm job, CPU jobs among them.

`duration` is the run time in seconds; `submit_time` is a date, so time is counted from the first GPU job.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from cotenant.core.workload import Workload
from cotenant.workload.readers.base import Reader, build, facts, keep_gpu_rows, statuses
from cotenant.workload.readers.table import Table

_OPTIONAL = ("node_num", "start_time", "end_time", "queue", "cpu_num", "vc", "user", "state")


class HeliosLog(Reader):
    """Told by `gpu_num` beside `submit_time` and `duration`."""

    name: ClassVar[str] = "helios"
    about: ClassVar[str] = "Helios cluster_log.csv (gpu_num, submit_time as date, duration in s, vc, state)"
    required: ClassVar[tuple[str, ...]] = ("job_id", "gpu_num", "submit_time", "duration")
    duration_means: ClassVar[str] = "the run time of the job, from its start to its end"

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Rows without GPUs, most of the file, are left out with a counted note."""
        table = table.ignore_others((*self.required, *_OPTIONAL))
        table, gpus = keep_gpu_rows(table, "gpu_num")
        submit = table.seconds("submit_time")
        return build(
            table,
            table.ids("job_id"),
            submit - submit.min(),
            gpus,
            table.numbers("duration"),
            tenant=table.codes("vc"),
            user=table.codes("user"),
            status=statuses(table.text("state")) if table.has("state") else None,
            cpus=table.optional("cpu_num"),
            extra={"submit_clock_s": submit, **facts(table, {"queue": "wait_s", "node_num": "servers"})},
        )
