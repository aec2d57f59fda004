"""Synergy's traces: five columns without a header: job_id, model, arrival (s), iterations, GPUs.

A job's length is given in iterations; seconds follow from the iteration time at the proportional share of
CPUs and memory (3 CPUs and 62.5 GB per GPU), a constant per model in the authors' simulator (OSDI'22).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Workload
from cotenant.workload.readers.base import Reader, build, is_number, keep_gpu_rows
from cotenant.workload.readers.table import Table

ITERATION_S = {
    "alexnet": 0.60,
    "shufflenet": 0.615,
    "res18": 0.64,
    "mobilenet": 0.71,
    "res50": 0.78,
    "m5": 0.60,
    "deepspeech": 0.757,
    "gnmt": 0.12,
    "transformer": 0.67,
    "lstm": 0.011,
}


class SynergyLog(Reader):
    """Told by its first line: number, name, number, number, number."""

    name: ClassVar[str] = "synergy"
    about: ClassVar[str] = "Synergy CSV (no header: job_id, model, arrival in s, iterations, GPUs)"
    required: ClassVar[tuple[str, ...]] = ("job_id", "model", "arrival", "iterations", "gpus")
    headerless: ClassVar[tuple[str, ...]] = required

    def matches_cells(self, cells: tuple[str, ...]) -> bool:
        """Five cells, all numbers but the second."""
        return len(cells) == 5 and [is_number(cell) for cell in cells] == [True, False, True, True, True]

    def parse(self, table: Table, profile: Path | None) -> Workload:
        """Duration = iterations x iteration time of the model at the proportional share."""
        table, gpus = keep_gpu_rows(table, "gpus")
        model = table.codes("model")
        for code, name in enumerate(model.names):
            if name not in ITERATION_S:
                at = int(np.argmax(model.code == code))
                raise InputError(f"{table.where(at)}: {unknown('Synergy model', name, ITERATION_S)}")
        iteration_s = np.array([ITERATION_S[name] for name in model.names])[model.code]
        iterations = table.numbers("iterations")
        return build(
            table,
            table.ids("job_id"),
            table.numbers("arrival", low=None),
            gpus,
            iterations * iteration_s,
            model=model,
            extra={"iterations": iterations, "iteration_time_s": iteration_s},
        )
