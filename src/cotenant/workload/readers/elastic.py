"""Traces of Pollux (OSDI'21), ElasticFlow (ASPLOS'23) and Shockwave (NSDI'23), as their authors released them.

Pollux' jobs (`name,time,application,num_replicas,batch_size`) are told by their work, which only its profiles turn into
time: they need `--profile`, the folder of profiles that came with them, or a CSV `application,num_replicas,duration_s`.
Shockwave's traces are Gavel's with two more
columns: the duration and the arrival, in seconds; its eighth column says how the job changes its batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Floats, Ints, Workload
from cotenant.workload.readers.base import Reader, build, is_number, keep_gpu_rows
from cotenant.workload.readers.pollux_profiles import duration_s
from cotenant.workload.readers.table import Table, first_fields, load_csv, open_bytes

_COLUMNS = ("application", "num_replicas", "duration_s")


class ElasticFlowLog(Reader):
    """Seconds; the deadline is a moment."""

    name: ClassVar[str] = "elasticflow"
    about: ClassVar[str] = "ElasticFlow trace (submission_time, num_iteration, deadline, num_gpu, duration in s)"
    required: ClassVar[tuple[str, ...]] = (
        "job_id",
        "submission_time",
        "num_iteration",
        "deadline",
        "num_gpu",
        "duration",
    )

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Iterations and batch sizes are kept beside."""
        table = table.ignore_others((*self.required, "model_name", "batch_size"))
        table, gpus = keep_gpu_rows(table, "num_gpu")
        submit_s = table.numbers("submission_time", low=None)
        extra = {"iterations": table.numbers("num_iteration")}
        if table.has("batch_size"):
            extra["batch_size"] = table.numbers("batch_size")
        return build(
            table, table.ids("job_id"), submit_s, gpus, table.numbers("duration"), model=table.codes("model_name"),
            deadline_s=table.optional("deadline", low=None), extra=extra,
        )  # fmt: skip


class PolluxLog(Reader):
    """Told by `application` and `num_replicas`."""

    name: ClassVar[str] = "pollux"
    about: ClassVar[str] = "Pollux workload (name, time, application, num_replicas, batch_size; needs --profile)"
    required: ClassVar[tuple[str, ...]] = ("name", "time", "application", "num_replicas", "batch_size")

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Durations from a file of the applications' times on so many GPUs."""
        if profile is None:
            raise InputError(
                f"{table.path}: a Pollux workload has no durations; give --profile FOLDER (as released:"
                " one folder per application with placements.csv, scalability.csv, validation-*.csv)"
                " or FILE.csv with the columns application,num_replicas,duration_s"
            )
        table, gpus = keep_gpu_rows(table, "num_replicas")
        names = table.text("application").to_list()
        batch = table.numbers("batch_size")
        if profile.is_dir():
            asked = list(zip(names, gpus.tolist(), batch.tolist(), strict=True))
            known = {one: duration_s(profile, *one) for one in set(asked)}
            return self._built(table, gpus, np.array([known[one] for one in asked]), batch)
        times = _durations(profile)
        lengths = np.array([times.get((name, size), np.nan) for name, size in zip(names, gpus.tolist(), strict=True)])
        if np.isnan(lengths).any():
            at = int(np.argmax(np.isnan(lengths)))
            raise InputError(f"{table.where(at)}: {profile} has no duration of '{names[at]}' on {gpus[at]} GPUs")
        return self._built(table, gpus, lengths, batch)

    def _built(self, table: Table, gpus: Ints, lengths_s: Floats, batch: Floats) -> Workload:
        return build(
            table, table.ids("name"), table.numbers("time"), gpus, lengths_s, model=table.codes("application"),
            extra={"batch_size": batch},
        )  # fmt: skip


def tells_durations(profile: str) -> bool:
    """Whether a profile is one of those that only say how long Pollux' jobs run, and nothing about speeds of models."""
    path = Path(profile)
    if path.is_file() and path.suffix == ".csv":
        with path.open(encoding="utf-8", errors="replace") as file:
            return set(_COLUMNS) <= set(file.readline().strip().split(","))
    return path.is_dir()


def _durations(profile: Path) -> dict[tuple[str, int], float]:
    raw = open_bytes(profile)
    times = load_csv(profile, raw, first_fields(raw)[1], None)
    for name in _COLUMNS:
        if not times.has(name):
            raise InputError(f"{profile} line 1: column is missing: '{name}'")
    columns = (
        times.text("application").to_list(),
        times.whole("num_replicas").tolist(),
        times.numbers("duration_s").tolist(),
    )
    return {(name, size): seconds for name, size, seconds in zip(*columns, strict=True)}


class ShockwaveLog(Reader):
    """Twelve tab-separated cells without a header."""

    name: ClassVar[str] = "shockwave"
    about: ClassVar[str] = "Shockwave trace (no header, 12 tab-separated columns, duration and arrival in s)"
    required: ClassVar[tuple[str, ...]] = (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "weight", "slo", "duration_s", "arrival_s",
    )  # fmt: skip
    headerless: ClassVar[tuple[str, ...]] = required

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Numbers in the last four, and a word for how the batch changes before them."""
        return len(cells) == 12 and not is_number(cells[7]) and all(map(is_number, cells[8:]))

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Steps, weight and mode are kept beside."""
        table, gpus = keep_gpu_rows(table, "scale_factor")
        ids = np.array([str(row) for row in table.row.tolist()], dtype=object)
        return build(
            table, ids, table.numbers("arrival_s", low=None), gpus, table.numbers("duration_s"),
            model=table.codes("job_type"),
            extra={
                "total_steps": table.numbers("total_steps"), "weight": table.numbers("weight", low=None),
                "mode": np.asarray(table.text("mode").to_numpy(), dtype=object),
            },
        )  # fmt: skip
