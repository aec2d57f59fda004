"""What is left of jobs when they have ended: the few columns of the job tables that results are made of."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import State
from cotenant.core.workload import Floats, Ints


@dataclass(frozen=True, slots=True)
class Ended:
    """By row; NaN where a job did not start or finish. Times in seconds, losses in GPU-seconds."""

    first_start_s: Floats
    finish_s: Floats
    waited_s: Floats
    lost_gpu_s: Floats
    preemptions: Ints
    starts: Ints

    @classmethod
    def nobody(cls, rows: int) -> Ended:
        """Nobody has arrived yet."""
        first, finish = np.full(rows, np.nan), np.full(rows, np.nan)
        stops, starts = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        return cls(first, finish, np.zeros(rows), np.zeros(rows), stops, starts)

    @classmethod
    def of(cls, state: State, rows: int) -> Ended:
        """As the tables say of the first so many rows."""
        ended = cls.nobody(rows)
        ended.take_in(state, 0, rows)
        return ended

    def take_in(self, state: State, first: int, end: int) -> None:
        """Copy what the tables say of some rows."""
        rows, f, i = slice(first, end), state.f[first:end], state.i[first:end]
        self.first_start_s[rows], self.finish_s[rows] = f[:, col.FIRST], f[:, col.FINISH]
        self.waited_s[rows], self.lost_gpu_s[rows] = f[:, col.WAITED], f[:, col.LOST]
        self.preemptions[rows], self.starts[rows] = i[:, col.PREEMPTS], i[:, col.STARTS]

    def part(self, first: int, end: int) -> Ended:
        """Some rows."""
        return Ended(*(getattr(self, one.name)[first:end] for one in fields(self)))
