"""Alibaba's GPU clusters: the PAI tables of v2020 and the pod list of v2023 (openb).

PAI: a job has tasks (worker, ps, evaluator, ...) of several instances; the GPUs are in the task table, as
per cent of one GPU per instance, so a task asks for inst_num x ceil(plan_gpu / 100) whole GPUs. Neither
table knows when a job was submitted: the start time stands in for it, and queueing cannot be compared with
reality.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.core.workload import Floats, Workload
from cotenant.workload.readers.base import Reader, build, keep_gpu_rows, statuses
from cotenant.workload.readers.table import Table, first_fields, load_csv, open_bytes

_PAI_STATES = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")


class PaiTaskLog(Reader):
    """`pai_task_table`: ten columns, shipped without a header."""

    name: ClassVar[str] = "pai-task"
    about: ClassVar[str] = "Alibaba PAI v2020 task table (job_name, task_name, inst_num, ..., plan_gpu)"
    required: ClassVar[tuple[str, ...]] = (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
        "gpu_type",
    )  # fmt: skip
    headerless: ClassVar[tuple[str, ...]] = required
    duration_means: ClassVar[str] = "from the start to the end of the task; submission is taken to be the start"

    def matches(self, columns: tuple[str, ...]) -> bool:
        """The columns that matter, whatever else is there."""
        return {"job_name", "task_name", "inst_num", "plan_gpu"} <= set(columns)

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Ten cells with a PAI state in the fourth."""
        return len(cells) == 10 and cells[3] in _PAI_STATES

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """One job per task, id `job_name/task_name`; CPU cores and GiB are totals over the instances."""
        import polars as pl

        table = table.ignore_others((*self.required, "user"))
        share = table.numbers("plan_gpu", empty=0.0)
        table, share = table.keep(share > 0, "0 GPUs asked"), share[share > 0]
        ran = _present(table, "start_time") & _present(table, "end_time")
        table, share = table.keep(ran, "no start or end time"), share[ran]
        instances = table.numbers("inst_num")
        gpus = (instances * np.ceil(share / 100)).astype(np.int64)
        if (gpus < 1).any():
            raise InputError(f"{table.where(int(np.argmax(gpus < 1)))}: inst_num must be at least 1")
        start = table.numbers("start_time")
        end = table.numbers("end_time")
        _forward(table, start, end)
        names = pl.concat_str([table.text("job_name"), table.text("task_name")], separator="/")
        ids = table.frame.select(names).to_series()
        table = table.note("the table has no submit times; start times stand in for them")
        return build(
            table,
            table.check_ids(ids, "job_name/task_name"),
            start,
            gpus,
            end - start,
            user=table.codes("user"),
            status=statuses(table.text("status")),
            cpus=instances * table.optional("plan_cpu") / 100,
            mem_gib=instances * table.optional("plan_mem"),
            extra={"gpu_share": share / 100},
        )


class PaiJobLog(Reader):
    """`pai_job_table`: users, but no GPUs. Read together with the task table when that lies beside it."""

    name: ClassVar[str] = "pai-job"
    about: ClassVar[str] = "Alibaba PAI v2020 job table (needs the task table beside it)"
    required: ClassVar[tuple[str, ...]] = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
    headerless: ClassVar[tuple[str, ...]] = required

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Six cells with a PAI state in the fourth."""
        return len(cells) == 6 and cells[3] in _PAI_STATES

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """The tasks, with the users of their jobs."""
        beside = table.path.with_name(table.path.name.replace("job", "task"))
        if beside == table.path or not beside.is_file():
            raise InputError(
                f"{table.path}: the PAI job table has no GPUs; read the task table, or put it beside as {beside.name}"
            )
        raw = open_bytes(beside)
        cells, separator = first_fields(raw)
        reader = PaiTaskLog()
        headerless = not reader.matches(tuple(cells))
        tasks = load_csv(beside, raw, separator, reader.required if headerless else None)
        users = table.frame.select("job_name", "user").unique("job_name", keep="first", maintain_order=True)
        joined = tasks.frame.join(users, on="job_name", how="left", maintain_order="left")
        work = reader.parse(replace(tasks, frame=joined), profile)
        return replace(work, notes=(f"{table.path.name}: GPUs and times are read from {beside.name}", *work.notes))


class OpenbLog(Reader):
    """Pods of cluster-trace-gpu-v2023: `gpu_milli` is thousandths of a GPU, meaningful when num_gpu is 1."""

    name: ClassVar[str] = "openb"
    about: ClassVar[str] = "Alibaba v2023 openb pod list (num_gpu, gpu_milli, creation_time, ...)"
    required: ClassVar[tuple[str, ...]] = ("name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
    duration_means: ClassVar[str] = "from scheduling to deletion of the pod"

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Submit = creation, duration = deletion - scheduling; pods never scheduled are left out."""
        optional = ("cpu_milli", "memory_mib", "gpu_milli", "gpu_spec", "qos", "pod_phase")
        table = table.ignore_others((*self.required, *optional))
        table, gpus = keep_gpu_rows(table, "num_gpu")
        ran = _present(table, "scheduled_time")
        table, gpus = table.keep(ran, "never scheduled"), gpus[ran]
        start = table.numbers("scheduled_time")
        end = table.numbers("deletion_time")
        _forward(table, start, end)
        extra = {"gpu_share": np.full(len(table), 1.0)}
        if table.has("gpu_milli"):
            share = table.numbers("gpu_milli", empty=0.0) / 1000
            extra["gpu_share"] = np.where((gpus == 1) & (share > 0), share, 1.0)
        return build(
            table,
            table.ids("name"),
            table.numbers("creation_time"),
            gpus,
            end - start,
            tenant=table.codes("qos"),
            status=statuses(table.text("pod_phase")) if table.has("pod_phase") else None,
            cpus=table.optional("cpu_milli") / 1000,
            mem_gib=table.optional("memory_mib") / 1024,
            extra={**extra, "wait_s": start - table.numbers("creation_time")},
        )


def _present(table: Table, column: str) -> NDArray[np.bool_]:
    return np.asarray((table.text(column).str.strip_chars() != "").to_numpy(), np.bool_)


def _forward(table: Table, start: Floats, end: Floats) -> None:
    if (end < start).any():
        at = int(np.argmax(end < start))
        raise InputError(f"{table.where(at)}: the job ends at {end[at]:g}, before it starts at {start[at]:g}")
