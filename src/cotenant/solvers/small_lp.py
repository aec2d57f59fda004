"""Dense simplex for tiny packing programs: a handful of rows, up to some hundred columns.

The price methods mix the answers found at past prices by such a program after almost every step; a call into a
general solver would cost more than the step itself.
"""

from __future__ import annotations

import numpy as np

from cotenant.solvers.answer import Floats

_EPS = 1e-12


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
        usable = entering > 1e-11
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
    y = np.zeros(columns + rows)
    y[basis] = np.maximum(table[:rows, -1], 0.0)
    return y[:columns], np.maximum(table[rows, columns:-1], 0.0)


def play(usage: Floats) -> tuple[float, Floats, Floats]:
    """Mix the columns of `usage` (types x answers) so that the largest row is smallest.

    Gives that largest row z, the weights of the answers (sum 1), and the weights of the rows (sum 1): the prices at
    which no mix of the known answers costs less than z.
    """
    y, duals = pack(np.ones(usage.shape[1]), usage + 1.0, np.ones(usage.shape[0]))
    mix = y / y.sum()
    prices = duals / duals.sum()
    return float((usage @ mix).max()), mix, prices
