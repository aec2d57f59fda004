"""Rows of the job tables as they are before a job arrives, written when they are needed.

Most columns hold the same in every row; the others are columns of the workload. Rows lie one behind the other, so that
a stretch of them is written while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.core.workload import Floats, Ints

_STRETCH = 1024  # rows written at a time, about 600 KiB
_ALIKE_F: dict[int, float] = {
    **dict.fromkeys((col.SPEED, col.SHARE, col.CAP), 1.0),
    **dict.fromkeys((col.FIRST, col.FINISH, col.BARRED, col.GAIN, col.COST), np.nan),
    **dict.fromkeys((col.FAIL_AT, col.EVENT, col.LEAVES), np.inf),
}
_ALIKE_I = dict.fromkeys((col.HEAP_AT, col.EVENT_AT, col.SLICE, col.HOST, col.OLD, col.HOME), -1)


class JobRows:
    """What each row holds at first: by column one number, or an array of one for each job."""

    def __init__(self, count: int, floats: Mapping[int, Floats | float], ints: Mapping[int, Ints | float]) -> None:
        self.count = count
        self.floats, self.ints = {**_ALIKE_F, **floats}, {**_ALIKE_I, **ints}
        self._f, self._i = np.zeros(col.FLOAT_COLUMNS), np.zeros(col.INT_COLUMNS, np.int64)
        for row, columns in ((self._f, self.floats), (self._i, self.ints)):
            for at, value in columns.items():
                if not isinstance(value, np.ndarray):
                    row[at] = value

    def fill(self, state: State, first: int, end: int) -> None:
        """Write rows `first` to `end`, the last excluded."""
        for lo in range(first, end, _STRETCH):
            rows = slice(lo, min(lo + _STRETCH, end))
            f, i = state.f[rows], state.i[rows]
            f[:], i[:] = self._f, self._i
            i[:, col.ARRIVAL] = np.arange(lo, rows.stop)
            for table, columns in ((f, self.floats), (i, self.ints)):
                for at, values in columns.items():
                    if isinstance(values, np.ndarray):
                        table[:, at] = values[rows]

    def floats_of(self, at: int) -> Floats:
        """A column of floats, one number for each job."""
        return np.broadcast_to(np.asarray(self.floats.get(at, 0.0), np.float64), self.count)


def alike(values: np.ndarray) -> np.ndarray | float:
    """One number where all of them are the same, or none is one, so that nobody has to copy them."""
    if not len(values):
        return values
    same = values == values[0] if values[0] == values[0] else np.isnan(values)
    return float(values[0]) if bool(same.all()) else values
