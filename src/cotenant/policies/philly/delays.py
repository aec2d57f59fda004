"""Why jobs wait, counted: at quota (fair-share delay), or within it without GPUs that suit (fragmentation delay).

The class of each waiting job is set at every decision and holds until the next. An occurrence is a stretch of waiting
in one class; a job can pass from one to the other and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cotenant.core.outcome import Scalar
from cotenant.core.workload import Floats, Ints

FAIR_SHARE, FRAGMENTATION = 0, 1
CLASSES = ("fair_share", "fragmentation")
BUCKETS: Mapping[str, tuple[int, int]] = {"1": (1, 1), "2-4": (2, 4), "5-8": (5, 8), ">8": (9, 2**40)}


class Delays:
    """By row: stretches and seconds of each class; jobs keep their rows."""

    def __init__(self) -> None:
        self.gpus: Ints = np.zeros(0, np.int64)
        self.stretches: Ints = np.zeros((0, 2), np.int64)
        self.seconds: Floats = np.zeros((0, 2))
        self._code: Ints = np.zeros(0, np.int64)  # of who waits; -1: it does not
        self._rows: Ints = np.zeros(0, np.int64)
        self._since_s = 0.0

    def _grow(self, rows: int) -> None:
        more = rows - len(self.gpus)
        if more > 0:
            more = max(more, len(self.gpus))
            self.gpus = np.concatenate([self.gpus, np.zeros(more, np.int64)])
            self.stretches = np.concatenate([self.stretches, np.zeros((more, 2), np.int64)])
            self.seconds = np.concatenate([self.seconds, np.zeros((more, 2))])
            self._code = np.concatenate([self._code, np.full(more, -1)])

    def pass_to(self, now_s: float) -> None:
        """Time passes as was decided last."""
        rows, passed_s = self._rows, now_s - self._since_s
        if len(rows) and passed_s > 0:
            self.seconds[rows, self._code[rows]] += passed_s
        self._since_s = now_s

    def decided(self, rows: Ints, gpus: Ints, at_quota: NDArray[np.bool_]) -> None:
        """These wait from now on, each for this reason, and nobody else."""
        self._grow(int(rows.max(initial=-1)) + 1)
        before = np.full(len(rows), -1) if not len(self._rows) else self._code[rows]
        self._code[self._rows] = -1
        code = np.where(at_quota, FAIR_SHARE, FRAGMENTATION)
        new = before != code
        self.stretches[rows[new], code[new]] += 1
        self._code[rows], self.gpus[rows], self._rows = code, gpus, rows

    def table(self, keep: NDArray[np.bool_] | None = None) -> dict[str, dict[str, float]]:
        """By bucket the stretches and seconds of each class, over the rows that are kept."""
        found = {}
        for name, (least, most) in BUCKETS.items():
            inside = (self.gpus >= least) & (self.gpus <= most)
            if keep is not None:
                inside &= np.resize(keep, len(inside))
            counts, seconds = self.stretches[inside].sum(axis=0), self.seconds[inside].sum(axis=0)
            found[name] = {
                **{f"{kind}": float(counts[k]) for k, kind in enumerate(CLASSES)},
                **{f"{kind}_s": float(seconds[k]) for k, kind in enumerate(CLASSES)},
            }
        return found

    def figures(self) -> dict[str, Scalar]:
        """The table, flat, for the summary of a run."""
        return {
            f"delay_{kind}_{bucket}": value if kind.endswith("_s") else int(value)
            for bucket, row in self.table().items()
            for kind, value in row.items()
        }
