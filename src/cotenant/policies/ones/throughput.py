"""Throughput by number of GPUs from what was seen, and what a size would cost (ONES, SC'21).

The artifact draws straight lines between observed sizes and the point (0, 0), and lets the last line go on beyond the
largest: far too much after one observation. By default a model of the step is fitted instead, to all jobs of a kind,
and samples are counted by what they help at that batch.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.goodput import efficiency, fit, linear_batch
from cotenant.core.training import Training
from cotenant.core.workload import Floats, Ints

_SAME = 0.02  # measurements that differ by less are not fitted again


def throughputs(seen: Floats, most: int) -> Floats:
    """Samples per second on 0 to `most` GPUs from observations by size (NaN: none); zeros where nothing was seen."""
    sizes = np.flatnonzero(~np.isnan(seen))
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return np.zeros(most + 1)
    x = np.concatenate([[0], sizes]).astype(np.float64)
    y = np.concatenate([[0.0], seen[sizes]])
    grid = np.arange(most + 1, dtype=np.float64)
    slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return np.asarray(np.where(grid <= x[-1], np.interp(grid, x, y), y[-1] + slope * (grid - x[-1])))


def sruf(rate: np.ndarray, left: Floats) -> np.ndarray:
    """The artifact's score: jobs x sizes, GPU-seconds that the remaining samples take; 0 for size 0."""
    sizes = np.arange(rate.shape[1])[None, :]
    return np.asarray(np.where(rate > 0, sizes * left[:, None] / np.where(rate > 0, rate, 1.0), 0.0))


class Goodputs:
    """Throughput and goodput by size, from the model fitted to all jobs of one kind; sizes seen keep what was seen."""

    def __init__(self, node_gpus: int) -> None:
        self.node_gpus = max(node_gpus, 1)
        self._known: dict[int, tuple[tuple[object, ...], Floats, np.ndarray]] = {}

    def tables(self, training: Training, rows: Ints, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Jobs x sizes (0 to `most`): samples per second, and the same with each sample counted by its efficiency."""
        rate, good = np.zeros((len(rows), most + 1)), np.zeros((len(rows), most + 1))
        for kind in np.unique(training.kind[rows]).tolist():
            mine = np.flatnonzero(training.kind[rows] == kind)
            table = self._kind(training, kind, int(rows[mine[0]]), most)
            rate[mine], good[mine] = table[0], table[1]
        return rate, good

    @staticmethod
    def largest(training: Training, rows: Ints) -> Ints:
        """The largest size on which any job of the same kind has been seen; 0 where none has."""
        sizes = np.arange(training.seen.shape[1])
        most = np.where(np.isnan(training.seen), 0, sizes[None, :]).max(axis=1)
        return np.array([most[training.kind == kind].max() for kind in training.kind[rows].tolist()], np.int64)

    def _kind(self, training: Training, kind: int, row: int, most: int) -> np.ndarray:
        found = training.seen[training.kind == kind]
        times = np.maximum((found > 0).sum(axis=0), 1)
        seen = np.nansum(found, axis=0) / times
        sizes = np.flatnonzero(seen > 0)
        if not len(sizes):
            return np.zeros((2, most + 1))
        batch, base_lr, max_lr = (float(c[row]) for c in (training.batch, training.base_lr, training.max_lr))
        asked, most = most, max(most, int(sizes[-1]))  # it may have been seen on more GPUs than there are now
        key, told = (most, batch, base_lr, max_lr, *sizes.tolist()), np.append(seen[sizes], training.noise[row])
        kept = self._known.get(kind)
        if kept is not None and kept[0] == key and np.allclose(kept[1], told, rtol=_SAME, atol=0.0):
            return kept[2][:, : asked + 1]
        grid = np.arange(1, most + 1)
        local = np.array([linear_batch(int(batch), base_lr, max_lr, int(n))[0] for n in grid], np.float64)
        nodes = -(-grid // self.node_gpus)
        steps = tuple(
            (float(local[n - 1]), int(n), int(nodes[n - 1]), float(f"{local[n - 1] * n / seen[n]:.5g}"))
            for n in sizes.tolist()
        )
        rate = np.concatenate([[0.0], fit(steps).throughput(local, grid, nodes)])
        rate[sizes] = seen[sizes]
        worth = efficiency(float(training.noise[row]), batch, local * grid)
        table = np.stack([rate, rate * np.concatenate([[1.0], worth])])
        self._known[kind] = key, told, table
        return table[:, : asked + 1]
