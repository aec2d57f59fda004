"""Matrix completion by factorisation: fill the holes of a table that has few independent rows.

Alternating least squares for rows of U and V in U V' with a penalty on their size, the same objective as
probabilistic matrix factorisation (Salakhutdinov and Mnih, NIPS'07), solved exactly for one side at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.core.workload import Floats

_ROUNDS = 30


def factorise(table: Floats, rank: int, penalty: float, seed: int = 0) -> Floats:
    """The table with every NaN filled and everything else smoothed; rows or columns without a value become 0."""
    seen = ~np.isnan(table)
    values = np.where(seen, table, 0.0)
    rank = min(rank, *table.shape)
    rng = np.random.default_rng(seed)
    left = rng.normal(0.0, 0.1, (table.shape[0], rank))
    right = rng.normal(0.0, 0.1, (table.shape[1], rank))
    for _ in range(_ROUNDS):
        left = _solve(right, values, seen, penalty)
        right = _solve(left, values.T, seen.T, penalty)
    return np.asarray(left @ right.T, np.float64)


def _solve(fixed: Floats, values: Floats, seen: NDArray[np.bool_], penalty: float) -> Floats:
    """Best factors of every row at once, the other side being fixed."""
    weighted = np.einsum("ij,jk,jl->ikl", seen.astype(np.float64), fixed, fixed, optimize=True)
    weighted += penalty * np.eye(fixed.shape[1])
    solved = np.linalg.solve(weighted, (values @ fixed)[:, :, None])
    return np.asarray(solved[:, :, 0], np.float64)
