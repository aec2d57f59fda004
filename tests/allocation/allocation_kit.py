"""Small clusters and matrices for tests of allocators; nothing here comes from anybody's data."""

from __future__ import annotations

import numpy as np

from cotenant.allocation import Demands, Share, demands
from cotenant.allocation.tables import BEGIN, COUNT, NODE, TAKEN, Packing
from cotenant.core.sensitivity import Sensitivity

CPUS, MEMS = np.array([1.0, 2.0, 3.0, 6.0, 9.0]), np.array([20.0, 60.0, 120.0])
SHARE = Share(8, 24, 480)


def matrices() -> Sensitivity:
    """Four kinds: hungry for cores, hungry for both, a donor, one that needs exactly its share."""
    cores = np.array([0.34, 0.67, 1.0, 2.0, 2.5])
    table = np.ones((4, len(CPUS), len(MEMS)))
    table[0] = np.minimum(cores[:, None], np.array([0.2, 2.5, 2.5])[None, :])
    table[1] = np.minimum(cores[:, None], np.array([0.2, 1.4, 2.0])[None, :])
    table[3] = np.minimum(np.minimum(cores, 1.0)[:, None], np.array([0.2, 1.0, 1.0])[None, :])
    return Sensitivity(CPUS, MEMS, table, np.full((4, 3), np.nan), np.full(4, 0.5))


HUNGRY, GREEDY, DONOR, EXACT = range(4)


def with_gangs(sizes: tuple[int, ...] = (1, 2, 4, 8, 12), share: Share = SHARE) -> tuple[np.ndarray, Demands]:
    """Every kind at every size: gangs per kind, and demands; kind = size index x 4 + kind of the matrix."""
    gangs = np.repeat(np.array(sizes, np.int64), 4)
    return gangs, demands(matrices().take(np.tile(np.arange(4), len(sizes))), gangs, share)


def check_packing(p: Packing, *, all_placed: bool, floor: bool = True) -> None:
    """Nothing over capacity, gangs whole, books in order, nobody below its share, equal shares per GPU."""
    used = np.zeros_like(p.cap)
    for k in range(len(p.gpus)):
        rows = p.slices[p.at[k, BEGIN] : p.at[k, BEGIN] + p.at[k, COUNT]]
        if not len(rows):
            assert not all_placed
            continue
        assert rows[:, TAKEN].sum() == p.gpus[k]
        assert len(set(rows[:, NODE].tolist())) == len(rows)
        for _, node, held in rows.tolist():
            used[node] += held * np.array([1.0, p.got[k, 0], p.got[k, 1]])
        if floor:
            assert p.got[k, 2] >= p.floor[k, 2] - 1e-9
    assert (used <= p.cap + 1e-4).all()
    assert np.allclose(p.cap - used, p.free, atol=1e-4)
