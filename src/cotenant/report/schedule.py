"""The Gantt chart of a comparison: the same nodes and window for every policy, one set of bars per policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cotenant.core.outcome import Outcome
from cotenant.report.charts import Line, origin
from cotenant.report.curves import SIZE_CLASSES, rounded, size_class
from cotenant.report.gantt import MAX_BARS, Bars, lay_out
from cotenant.report.standing import busiest_window
from cotenant.report.units import duration

SIZES = tuple(zip(SIZE_CLASSES, ("#8fbbe8", "#3b7dd8", "#e8a33d", "#c8443c"), strict=True))
"""Classes of job size and their colours."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rows of GPUs, a window in seconds since the first submission, and the bars of each policy as columns."""

    rows: list[str]
    from_s: float
    to_s: float
    note: str
    lines: list[dict[str, list[Any]]]

    def as_dict(self) -> dict[str, Any]:
        """As the page reads it."""
        return {"rows": self.rows, "from": self.from_s, "to": self.to_s, "note": self.note, "lines": self.lines}


def schedule(lines: Sequence[Line], window_s: tuple[float, float] | None, most: int = MAX_BARS) -> Schedule | None:
    """Bars of at most `most` segments, all policies together; None without segments."""
    outcomes = [line.outcome for line in lines]
    made = lay_out(outcomes, window_s or busiest_window(outcomes), most)
    if made is None:
        return None
    zero = origin(lines[0].outcome)
    rows = [
        f"node {node} · {slot}" if node >= 0 else f"pool · {slot}"
        for node, (low, high) in zip(made.nodes, pairwise([*made.first_row, made.rows]), strict=True)
        for slot in range(high - low)
    ]
    left_out = f" The first {len(made.nodes)} nodes are shown." if made.nodes_left_out else ""
    window = f"{duration(made.start_s - zero)} to {duration(made.end_s - zero)}"
    note = f"GPUs of each node from {window} after the first submission, coloured by job size.{left_out}"
    start, end = rounded(np.array([made.start_s - zero, made.end_s - zero]), 9)
    bars = [_columns(line.outcome, bars, zero) for line, bars in zip(lines, made.bars, strict=True)]
    return Schedule(rows, start, end, note, bars)


def _columns(outcome: Outcome, bars: Bars, zero: float) -> dict[str, list[Any]]:
    work = outcome.workload
    jobs, index = np.unique(bars.job, return_inverse=True)
    return {
        "jobs": [str(work.job_id[job]) for job in jobs.tolist()], "size": size_class(work.gpus[jobs]).tolist(),
        "gpus": work.gpus[jobs].tolist(), "job": index.tolist(),
        "row": (bars.row - bars.height / 2).astype(np.int64).tolist(), "tall": bars.height.tolist(),
        "start": rounded(bars.start_s - zero, 8), "end": rounded(bars.end_s - zero, 8),
    }  # fmt: skip
