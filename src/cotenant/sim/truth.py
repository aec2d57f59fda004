"""Rate models of the simulator: what running jobs really do when they share GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.state import Rule, State
from cotenant.core.together import CURVE, Together
from cotenant.core.workload import Floats, Ints
from cotenant.engine.observe import running_rows
from cotenant.engine.rates import paired_speeds, rerate, shared_speeds
from cotenant.workload.pair_estimator import PairBelief


class PairTruth:
    """Jobs on one GPU slow each other down as a table of pairs says."""

    def __init__(self, pair: NDArray[np.float64]) -> None:
        self.pair = np.ascontiguousarray(pair, np.float64)

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job in its present company."""
        out = np.empty(len(rows))
        paired_speeds(state, self.pair, rows, out)
        return out

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody; those whose company has not changed are left alone."""
        rows = running_rows(state)
        rerate(state, rule, rows, self.speeds(state, rows), now_s)


class PairWatch:
    """Tell a belief about pairs what every pair that runs really does."""

    def __init__(self, belief: PairBelief, truth: PairTruth) -> None:
        self.belief, self.truth = belief, truth
        self._seen: set[tuple[int, int, int]] = set()

    def look(self, state: State) -> bool:
        """Whether the belief has changed."""
        news = False
        rows = running_rows(state)
        for guest in rows[state.i[rows, col.HOST] >= 0].tolist():
            a, b = (int(state.i[job, col.SPEED_ROW]) for job in (guest, state.i[guest, col.HOST]))
            node = state.slices[state.i[guest, col.SLICE], col.SLICE_NODE]
            kind = int(state.pool[state.node[node, col.NODE_POOL], col.POOL_TYPE])
            for one, other in ((a, b), (b, a)):
                if (one, other, kind) not in self._seen:
                    self._seen.add((one, other, kind))
                    news |= self.belief.observe(one, other, kind, float(self.truth.pair[one, other, kind]))
        return news


class SharedTruth:
    """Jobs on one GPU slow each other down by pairs, in proportion to what each is allowed; memory limits cost too."""

    def __init__(self, together: Together) -> None:
        self.ratio = np.ascontiguousarray(together.ratio, np.float64)
        self.pace = np.ascontiguousarray(together.pace, np.float64)
        self.curve = np.ascontiguousarray(together.curve, np.float64)
        self.busy = np.ascontiguousarray(together.busy, np.float64)

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate everybody; those whose company and terms have not changed are left alone."""
        rows = running_rows(state)
        rerate(state, rule, rows, self.speeds(state, rows), now_s)

    def speeds(self, state: State, rows: Ints) -> Floats:
        """Speed of each running job on its terms and in its present company."""
        speeds = np.empty(len(rows))
        shared_speeds(state, self.ratio, self.pace, self.curve, CURVE, self.busy, rows, speeds)
        return speeds


class Measured(SharedTruth):
    """The same as believed, but for rows of which it was measured how fast they are against alone."""

    def __init__(self, together: Together, paces: Mapping[int, float]) -> None:
        super().__init__(together)
        self.paces = paces

    def speeds(self, state: State, rows: Ints) -> Floats:
        """As measured, else as believed."""
        speeds = super().speeds(state, rows)
        for at, row in enumerate(rows.tolist()):
            if row in self.paces:
                speeds[at] = state.f[row, col.ALONE] * min(self.paces[row], 1.0)
        return speeds
