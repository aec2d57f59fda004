"""What one run of a workload under one policy produced, as columns; made by `sim`, read by `report`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats, Ints, Workload

Scalar = str | int | float | bool | None
COLUMNS = (
    "first_start_s", "finish_s", "queue_s", "preemptions", "restarts", "lost_gpu_s", "startup_gpu_s", "restoring_gpu_s",
    "measured",
)  # fmt: skip
"""Of an outcome, by job."""


@dataclass(frozen=True, slots=True)
class Series:
    """The state of the cluster over time, sampled at decisions (thinned evenly when there are many)."""

    time_s: Floats
    gpus_busy: Floats
    jobs_waiting: Floats
    jobs_running: Floats


@dataclass(frozen=True, slots=True)
class Segments:
    """Stretches of time in which a job held GPUs of a node, inside the window that was asked for."""

    job: Ints
    node: Ints
    gpus: Ints
    start_s: Floats
    end_s: Floats


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per-job results in the row order of `workload`; NaN where a job did not start or finish."""

    policy: str
    placement: str
    cluster: str
    cluster_gpus: int
    workload: Workload
    first_start_s: Floats
    finish_s: Floats
    queue_s: Floats
    preemptions: Ints
    restarts: Ints
    lost_gpu_s: Floats
    startup_gpu_s: Floats  # of those lost: until a first start was ready to work
    restoring_gpu_s: Floats  # of those lost: coming back after a stop; the rest was done again
    measured: NDArray[np.bool_]
    series: Series
    segments: Segments
    summary: dict[str, Scalar] = field(default_factory=dict)
    tenants: list[dict[str, Scalar]] = field(default_factory=list)  # where a tree of tenants shares the cluster

    def rows(self, first: int, end: int) -> Outcome:
        """The same of some jobs only; curves and summary are left as they are."""
        if first == 0 and end >= len(self.workload):
            return self
        part = slice(first, end)
        columns = {name: getattr(self, name)[part] for name in COLUMNS}
        return replace(self, workload=self.workload.take(np.arange(len(self.workload))[part]), **columns)

    def as_dict(self) -> dict[str, object]:
        """Summary and tenants, as JSON files have them."""
        return {**self.summary, **({"tenants": self.tenants} if self.tenants else {})}

    @property
    def jct_s(self) -> Floats:
        """Job completion time: finish minus submission."""
        return self.finish_s - self.workload.submit_s

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Measured jobs that finished; all metrics are taken over these."""
        return self.measured & np.isfinite(self.finish_s)
