"""Dense simplex for tiny packing programs: a handful of rows, up to some hundred columns.

The price methods mix the answers found at past prices by such a program after almost every step; a call into a
general solver would cost more than the step itself.
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.core import jit
from cotenant.core.jit import entry, kernel
from cotenant.solvers.answer import Floats, Ints, Matrix

_EPS, _LEAST_PIVOT = 1e-12, 1e-11


def pack(value: Floats, matrix: Floats, limit: Floats) -> tuple[Floats, Floats]:
    """Maximise value . y with matrix @ y <= limit, y >= 0 (limit >= 0, bounded). Gives y and the row duals."""
    rows, columns = matrix.shape
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns] = matrix
    table[:rows, columns:-1] = np.eye(rows)
    table[:rows, -1] = limit
    table[rows, :columns] = -value
    basis = np.arange(columns, columns + rows)
    scale = max(1.0, float(np.abs(value).max(initial=0.0)))
    if jit.enabled():
        pivot_all(table, basis, scale, np.empty(table.shape[1]))
    else:
        _pivot_all(table, basis, scale)
    y = np.zeros(columns + rows)
    y[basis] = np.maximum(table[:rows, -1], 0.0)
    return y[:columns], np.maximum(table[rows, columns:-1], 0.0)


def _pivot_all(table: Floats, basis: Ints, scale: float) -> None:
    """Simplex steps until nothing gains any more: `pivot_all` in whole-array steps, to the last bit."""
    rows = len(basis)
    columns = table.shape[1] - rows - 1
    for step in range(50 * (rows + columns)):
        reduced = table[rows, :-1]
        if step < 10 * rows + 20:
            enter = int(reduced.argmin())
        else:  # Bland's rule cannot cycle
            negative = np.flatnonzero(reduced < -_EPS * scale)
            enter = int(negative[0]) if len(negative) else 0
        if reduced[enter] >= -_EPS * scale:
            break
        entering = table[:rows, enter]
        usable = entering > _LEAST_PIVOT
        if not usable.any():
            break
        ratio = np.full(rows, np.inf)
        ratio[usable] = np.maximum(table[:rows, -1][usable], 0.0) / entering[usable]
        tied = np.flatnonzero(ratio <= ratio.min() * (1 + 1e-13))
        leave = int(tied[basis[tied].argmin()])
        pivot = table[leave] / table[leave, enter]
        table -= np.outer(table[:, enter], pivot)
        table[leave] = pivot
        basis[leave] = enter


@kernel
def _entering(table: Matrix, rows: int, scale: float, first: bool) -> int:
    """The column that gains most, or the `first` that gains; -1 where none does."""
    best = 0
    for k in range(table.shape[1] - 1):
        if first and table[rows, k] < -_EPS * scale:
            return k
        if not first and table[rows, k] < table[rows, best]:
            best = k
    return best if table[rows, best] < -_EPS * scale else -1


@kernel
def _leaving(table: Matrix, basis: Ints, enter: int) -> int:
    """The row that is full first when a column enters, of several that of the lowest number; -1 where none ever is."""
    rows, last = len(basis), table.shape[1] - 1
    least = math.inf
    for r in range(rows):
        if table[r, enter] > _LEAST_PIVOT:
            least = min(least, max(table[r, last], 0.0) / table[r, enter])
    leave = -1
    for r in range(rows):
        usable, lower = table[r, enter] > _LEAST_PIVOT, leave < 0 or basis[r] < basis[leave]
        if usable and lower and max(table[r, last], 0.0) / table[r, enter] <= least * (1 + 1e-13):
            leave = r
    return leave


@entry
def pivot_all(table: Matrix, basis: Ints, scale: float, pivot: Floats) -> None:
    """Simplex steps until nothing gains any more; `pivot` is scratch."""
    rows, width = len(basis), table.shape[1]
    for step in range(50 * (width - 1)):
        enter = _entering(table, rows, scale, step >= 10 * rows + 20)  # Bland's rule cannot cycle
        leave = _leaving(table, basis, enter) if enter >= 0 else -1
        if leave < 0:
            return
        value = table[leave, enter]
        for k in range(width):
            pivot[k] = table[leave, k] / value
        for r in range(rows + 1):
            factor = table[r, enter]
            for k in range(width):
                table[r, k] = pivot[k] if r == leave else table[r, k] - factor * pivot[k]
        basis[leave] = enter


def play(usage: Floats) -> tuple[float, Floats, Floats]:
    """Mix the columns of `usage` (types x answers) so that the largest row is smallest.

    Gives that largest row z, the weights of the answers (sum 1), and the weights of the rows (sum 1): the prices at
    which no mix of the known answers costs less than z.
    """
    if usage.shape == (1, 1):
        return float(usage[0, 0]), np.ones(1), np.ones(1)
    y, duals = pack(np.ones(usage.shape[1]), usage + 1.0, np.ones(usage.shape[0]))
    mix = y / y.sum()
    prices = duals / duals.sum()
    return float((usage @ mix).max()), mix, prices
