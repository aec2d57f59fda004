"""Orders of two multi-resource schedulers that pack whole demands: DRF and Tetris."""

from __future__ import annotations

import heapq

import numpy as np

from cotenant.allocation.tables import Packing
from cotenant.core.workload import Floats, Ints


def _parts(packing: Packing, jobs: Ints, total: Floats) -> Floats:
    """Jobs x (GPUs, cores, memory): their demands as parts of the pool."""
    gpus = packing.gpus[jobs].astype(np.float64)
    need = np.stack([gpus, gpus * packing.want[jobs, 0], gpus * packing.want[jobs, 1]], axis=1)
    return np.asarray(need / np.maximum(total, 1e-12), np.float64)


def drf_order(packing: Packing, turn: Ints, tenant: Ints, total: Floats) -> Ints:
    """Progressive filling: next comes a job of the tenant with the smallest dominant share so far (NSDI'11).

    Inside a tenant the policy's order holds. A single tenant says nothing about fairness between jobs: then jobs
    come by their own dominant share, as in Synergy's code. Kept jobs stay in front.
    """
    if not len(turn):
        return turn
    parts = _parts(packing, turn, total)
    names = tenant[turn]
    if (names == names[0]).all():
        return np.asarray(turn[np.lexsort((parts.max(axis=1), -packing.kept[turn]))], np.int64)
    lines: dict[int, list[int]] = {}
    used: dict[int, Floats] = {}
    for at, name in enumerate(names.tolist()):
        used.setdefault(name, np.zeros(3))
        if packing.kept[turn[at]]:
            used[name] = used[name] + parts[at]
        else:
            lines.setdefault(name, []).append(at)
    heap = [(float(used[name].max()), name, 0) for name in lines]
    heapq.heapify(heap)
    order = [at for at in range(len(turn)) if packing.kept[turn[at]]]
    while heap:
        _, name, place = heapq.heappop(heap)
        at = lines[name][place]
        order.append(at)
        used[name] = used[name] + parts[at]
        if place + 1 < len(lines[name]):
            heapq.heappush(heap, (float(used[name].max()), name, place + 1))
    return np.asarray(turn[order], np.int64)


def tetris_order(packing: Packing, turn: Ints, left_s: Floats, total: Floats) -> Ints:
    """Remaining time x sum of normalised demands, smallest first; kept jobs stay in front."""
    score = left_s[turn] * _parts(packing, turn, total).sum(axis=1)
    return np.asarray(turn[np.lexsort((score, -packing.kept[turn]))], np.int64)
