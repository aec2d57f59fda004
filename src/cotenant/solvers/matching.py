"""AlloX: which job on which GPU at which place in line, so that the sum of completion times is smallest.

Le et al., EuroSys'20. A job that is p-th from the end of a GPU's line delays p jobs (itself included), so it costs p
times its length there; every (GPU, p) takes one job. GPUs of one type are alike, so one column (type, p) with room for
as many jobs as the type has GPUs stands for all of them: 84 columns instead of 108,000 for 1,000 jobs on 108 GPUs.
Solved by shortest augmenting paths with prices (Jonker and Volgenant), a whole column of jobs at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers.answer import Floats, Ints
from cotenant.solvers.errors import SolverBudget, SolverError


@dataclass(frozen=True, slots=True)
class Lines:
    """Type and place of every job; place 1 runs last, the largest place of a GPU runs first."""

    type_: Ints
    """-1: the job can run nowhere."""
    place: Ints
    cost: float
    """Sum of completion times from now."""


def shortest_total(times: ArrayLike, gpus: ArrayLike, *, budget_s: float = float("inf")) -> Lines:
    """`times[i, k]`: seconds job i takes on one GPU of type k (inf: cannot run); `gpus[k]`: GPUs of the type."""
    budget = SolverBudget(budget_s)
    room = np.asarray(gpus, dtype=np.int64)
    length = np.array(times, dtype=np.float64, ndmin=2).reshape(-1, len(room))
    length[:, room <= 0] = np.inf
    if np.isnan(length).any() or (length < 0.0).any():
        raise SolverError("times must be numbers of 0 or more")
    able = np.flatnonzero(np.isfinite(length).any(axis=1))
    type_ = np.full(len(length), -1, dtype=np.int64)
    place = np.zeros(len(length), dtype=np.int64)
    if not len(able):
        return Lines(type_, place, 0.0)
    deep = np.where(room > 0, -(-len(able) // np.maximum(room, 1)), 0)
    kind = np.repeat(np.arange(len(room)), deep)
    position = np.concatenate([np.arange(1, d + 1) for d in deep])
    cost = length[able][:, kind] * position[None, :]
    chosen = _assign(cost, room[kind], budget)
    type_[able], place[able] = kind[chosen], position[chosen]
    return Lines(type_, place, float(cost[np.arange(len(able)), chosen].sum()))


def _assign(cost: Floats, room: Ints, budget: SolverBudget) -> Ints:
    """Cheapest column for every row, at most `room` rows per column. Long rows first: they find short paths."""
    rows, columns = cost.shape
    chosen = np.full(rows, -1, dtype=np.int64)
    used = np.zeros(columns, dtype=np.int64)
    price = np.zeros(columns)
    best = np.where(np.isfinite(cost), cost, np.inf).min(axis=1)
    for row in np.argsort(-best, kind="stable").tolist():
        budget.check("matching")
        _augment(cost, room, chosen, used, price, row)
    return chosen


def _augment(cost: Floats, room: Ints, chosen: Ints, used: Ints, price: Floats, row: int) -> None:
    """Find the cheapest chain of moves that places one more row, and make it."""
    distance = cost[row] + price
    came_from = np.full(len(price), row, dtype=np.int64)
    done = np.zeros(len(price), dtype=bool)
    while True:
        open_ = np.where(done, np.inf, distance)
        column = int(open_.argmin())
        reach = float(open_[column])
        if used[column] < room[column]:
            break
        done[column] = True
        inside = np.flatnonzero(chosen == column)
        onward = cost[inside] + price[None, :]
        onward = onward - onward[:, column, None] + reach
        mover = onward.argmin(axis=0)
        length = onward[mover, np.arange(len(price))]
        shorter = (length < distance) & ~done
        distance[shorter] = length[shorter]
        came_from[shorter] = inside[mover[shorter]]
    price[done] += reach - distance[done]
    used[column] += 1
    while True:
        mover_row = int(came_from[column])
        before = int(chosen[mover_row])
        chosen[mover_row] = column
        if mover_row == row:
            break
        column = before
