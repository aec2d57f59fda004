"""How fast jobs go in slices of GPUs, as a rate model of the engine: as the slice lets them, whoever is beside."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.core.partitions import Slicing
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import rerate, restart


class SliceSpeeds:
    """Nobody slows anybody down. Whoever's slice is changed while it runs makes no progress until that is done.

    Without `pauses` that is left to the world.
    """

    def __init__(self, slicing: Slicing, pauses: bool = True) -> None:
        self.slicing, self.pauses = slicing, pauses
        self.cost_s = np.array([table.reconfigure_s for table in slicing.tables])
        self.restarts = np.array([table.restarts for table in slicing.tables])
        self.changes = 0  # of slices, under jobs that ran
        self._cut: dict[int, tuple[float, int, int]] = {}  # row -> since when it runs, its shape and column

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job in its slice."""
        sliced, table = state.i[rows, col.SLICED], self._tables(state, rows)
        factor = self.slicing.speed[state.i[rows, col.SPEED_ROW], table, sliced - 1]
        return np.asarray(state.f[rows, col.ALONE] * np.where(sliced > 0, factor, 1.0))

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody; those whose slice has changed pause first."""
        rows = running_rows(state)
        speeds, cuts = self.speeds(state, rows), state.i[rows][:, [col.SLICED, col.COLUMN]].tolist()
        now = {
            row: (since_s, *cut)
            for row, since_s, cut in zip(rows.tolist(), state.f[rows, col.SINCE].tolist(), cuts, strict=True)
        }
        same = np.array([self._cut.get(row, cut)[1:] == cut[1:] or cut[0] == now_s for row, cut in now.items()], bool)
        self._cut = now
        if self.pauses and len(rows) and not same.all():
            changed = rows[~same]
            self.changes += len(changed)
            restart(state, rule, changed, speeds[~same], self._pauses_s(state, changed, now_s), now_s)
        rerate(state, rule, rows, speeds, now_s)
        state.t[col.NEXT_WARM] = np.inf  # nobody has to be looked at when others begin to use their slices

    def _pauses_s(self, state: State, rows: Ints, now_s: float) -> Floats:
        """What a change costs each: the new slice, going on there, and what was left of its last start."""
        table = self._tables(state, rows)
        anew_s = np.where(self.restarts[table], state.f[rows, col.RESTORE], 0.0)
        return np.asarray(self.cost_s[table] + anew_s + np.maximum(state.f[rows, col.WARM] - now_s, 0.0))

    def _tables(self, state: State, rows: Ints) -> Ints:
        return np.asarray(self.slicing.of_node[state.slices[state.i[rows, col.SLICE], col.SLICE_NODE]], np.int64)
