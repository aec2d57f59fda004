"""Rate models of the simulator: what running jobs really do when they share GPUs or move in whole steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.rates import paired_speeds, rerate


def running_rows(state: State) -> Ints:
    """Rows of the jobs that run."""
    listed = state.run[: state.x[col.N_RUN]]
    return listed[listed >= 0]


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


class WholeSteps:
    """A round as in the released Gavel simulator: whole steps only, and it ends with its latest piece of work.

    Each job makes floor(rate x round) steps, or what is left; nobody gets more before everybody is done.
    """

    def __init__(self, round_s: float, inner: PairTruth | None) -> None:
        self.round_s, self.inner = round_s, inner

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Speeds that bring each job exactly to the end of its piece by the end of the round."""
        rows = running_rows(state)
        if not len(rows):
            return
        speed = state.f[rows, col.ALONE] if self.inner is None else self.inner.speeds(state, rows)
        steps_per_s = np.nan_to_num(state.f[rows, col.STEPS], nan=1.0)
        rate = speed * steps_per_s
        left = np.round((state.f[rows, col.WORK] - _done(state, rows, now_s)) * steps_per_s)
        piece = np.minimum(np.floor(rate * self.round_s + 1e-9), left)
        length = float((piece / rate).max())
        ends = piece >= left
        with np.errstate(divide="ignore", invalid="ignore"):
            paced = np.where(ends | (length <= 0), speed, piece / steps_per_s / length)
        rerate(state, rule, rows, paced, now_s)
        last = float(state.f[rows[ends], col.EVENT].max()) if ends.any() else 0.0
        state.t[col.NEXT_CALL] = max(now_s + length, last)


def _done(state: State, rows: Ints, now_s: float) -> Floats:
    since = np.maximum(state.f[rows, col.WARM], state.f[rows, col.RATED])
    return np.asarray(state.f[rows, col.DONE] + np.maximum(now_s - since, 0.0) * state.f[rows, col.SPEED])
