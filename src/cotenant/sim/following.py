"""Job tables of a long run that follow what is active: rows are written shortly before their jobs arrive, and their
memory is given back when all jobs of a block have ended.

Numbers of rows stay, so that kernels see no difference: the tables are as long as the log, but lie in memory that the
system provides page by page. A block of rows covers whole pages. It is for runs in which only kernels look at rows,
and only at those of active jobs: orders of columns on nodes that do not fail.
"""

from __future__ import annotations

import mmap

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import IntMatrix, Matrix, State
from cotenant.core.traits import Traits
from cotenant.engine.job_rows import JobRows
from cotenant.sim.ended import Ended
from cotenant.sim.experiment import Experiment

BLOCK = mmap.PAGESIZE // 8  # rows: as many pages as a table has columns
LOOK_EVERY = 65_536  # ended jobs after which it is looked which blocks are done


def may_follow(e: Experiment, traits: Traits, state: State) -> bool:
    """Whether only kernels look at rows, and only at those of active jobs."""
    asked = traits.plans or traits.computed or traits.learns or traits.shares or traits.resizes or traits.slices
    world = e.power or e.crash or e.services or e.defrag or e.network or e.fail_nodes is not None or e.cluster.network
    looked_at = e.transitions or e.check_invariants or e.compat
    lags = state.x[[col.LAGS, col.SHARING, col.TENANTS, col.ROTATES]].any()
    return not (asked or world or looked_at or lags)


class Following:
    """The tables of one run; `state` is what the engine works on."""

    def __init__(self, state: State, rows: JobRows) -> None:
        self._rows = rows
        self._maps = [_mapped(rows.count, columns) for columns in (col.FLOAT_COLUMNS, col.INT_COLUMNS)]
        f: Matrix = np.frombuffer(self._maps[0], np.float64).reshape(-1, col.FLOAT_COLUMNS)
        i: IntMatrix = np.frombuffer(self._maps[1], np.int64).reshape(-1, col.INT_COLUMNS)
        self.state = state._replace(f=f[: rows.count], i=i[: rows.count])
        self._submit_s = rows.floats_of(col.SUBMIT)
        self._written, self._blocks = 0, np.zeros(0, np.int64)  # rows so far, and the first ones of blocks in use
        self._ended, self._look_at = Ended.nobody(rows.count), LOOK_EVERY

    def ahead(self, arrivals: int) -> None:
        """Write the rows of so many jobs that arrive next, of all that come with the last of them, and one more."""
        last = min(int(self.state.x[col.NEXT_ARRIVAL]) + arrivals, self._rows.count - 1)
        need = int(np.searchsorted(self._submit_s, self._submit_s[last], side="right")) + 1
        end = min(-(-need // BLOCK) * BLOCK, self._rows.count)
        if end > self._written:
            self._rows.fill(self.state, self._written, end)
            self._blocks = np.append(self._blocks, np.arange(self._written, end, BLOCK))
            self._written = end

    def behind(self) -> int:
        """Now and then keep the results of blocks in which all jobs have ended, and forget their rows.

        How many rows from the first are done.
        """
        if self.state.x[col.N_FINISHED] >= self._look_at:
            self._look_at = int(self.state.x[col.N_FINISHED]) + LOOK_EVERY
            done = [bool((self.state.i[row : row + BLOCK, col.STATE] == col.FINISHED).all()) for row in self._blocks]
            for row in self._blocks[done].tolist():
                self._ended.take_in(self.state, row, min(row + BLOCK, self._written))
                self.forget(row)
            self._blocks = self._blocks[~np.array(done)]
        return int(self._blocks[0]) if len(self._blocks) else self._written

    def forget(self, row: int) -> None:
        """Give the memory of a block back to the system; its rows read as zeros."""
        for table, columns in zip(self._maps, (col.FLOAT_COLUMNS, col.INT_COLUMNS), strict=True):
            if hasattr(table, "madvise"):
                table.madvise(mmap.MADV_DONTNEED, row * 8 * columns, BLOCK * 8 * columns)

    def ended(self) -> Ended:
        """What became of all jobs so far."""
        for row in self._blocks.tolist():
            self._ended.take_in(self.state, row, min(row + BLOCK, self._written))
        return self._ended


def _mapped(rows: int, columns: int) -> mmap.mmap:
    """Zeros for whole blocks of rows, which take no memory until they are written."""
    size = max(-(-rows // BLOCK), 1) * mmap.PAGESIZE * columns
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
