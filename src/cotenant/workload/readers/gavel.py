"""Gavel traces: ten tab-separated columns without a header, job lengths in steps.

Steps become seconds by the authors' throughput file (JSON: GPU type -> "('model', scale)" -> {"null":
steps/s}): duration = steps / V100 rate at the job's scale factor, as their generator made them (OSDI'20,
released code).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.workload import Workload
from cotenant.workload.readers.base import Reader, build, is_number, keep_gpu_rows
from cotenant.workload.readers.table import Table
from cotenant.workload.readers.throughputs import REFERENCE, load_throughputs


class GavelLog(Reader):
    """Told by its shape: ten tab-separated cells, the last six of them numbers."""

    name: ClassVar[str] = "gavel"
    about: ClassVar[str] = "Gavel trace (no header, 10 tab-separated columns; needs --profile)"
    required: ClassVar[tuple[str, ...]] = (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "weight", "slo", "arrival_s",
    )  # fmt: skip
    headerless: ClassVar[tuple[str, ...]] = required

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Ten cells ending in six numbers."""
        return len(cells) == 10 and not is_number(cells[0]) and all(is_number(cell) for cell in cells[4:])

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """`total_steps`, `weight` and `slo` (-1 = none) are kept as extra columns.

        A deadline is `slo` durations after the arrival.
        """
        if profile is None:
            raise InputError(
                f"{table.path}: a Gavel trace counts steps, not seconds; "
                "give the throughputs with --profile throughputs.json"
            )
        table, gpus = keep_gpu_rows(table, "scale_factor")
        rates = load_throughputs(profile).reference
        model = table.codes("job_type")
        steps = table.numbers("total_steps")
        scales = np.unique(gpus)
        lookup = np.array(
            [[rates.get((name, int(scale)), 0.0) for scale in scales] for name in model.names], np.float64
        )
        rate = lookup[model.code, np.searchsorted(scales, gpus)]
        if (rate <= 0).any():
            at = int(np.argmax(rate <= 0))
            raise InputError(
                f"{table.where(at)}: {profile} has no {REFERENCE} throughput for "
                f"'{model.names[model.code[at]]}' on {gpus[at]} GPUs; use the file the trace was made for"
            )
        duration_s, slo = steps / rate, table.numbers("slo", low=None)
        arrival_s = table.numbers("arrival_s", low=None)
        ids = np.array([str(row) for row in table.row.tolist()], dtype=object)
        return build(
            table,
            ids,
            arrival_s,
            gpus,
            duration_s,
            model=model,
            deadline_s=np.where(slo > 0, arrival_s + slo * duration_s, np.nan),
            extra={"total_steps": steps, "weight": table.numbers("weight", low=None), "slo": slo},
        )
