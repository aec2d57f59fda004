"""Who is considered at all: jobs placed one by one on an empty cluster, each success admitting its likes (Muri).

A success on n GPUs admits as many jobs of n GPUs, in order, as may share; whoever does not fit is skipped. Jobs of one
shape are alike, so once one has failed its shape is done.
"""

from __future__ import annotations

import heapq

import numpy as np

from cotenant.core import columns as col
from cotenant.core.state import IntMatrix
from cotenant.core.view import View
from cotenant.core.workload import Ints


class FirstFit:
    """Free GPUs of an empty cluster as the released code counts them: gangs up to a node on the first node with room,
    larger ones on whole nodes. Where admitted jobs really go is the engine's business."""

    def __init__(self, node: IntMatrix, pool: IntMatrix) -> None:
        self.free: list[int] = node[:, col.NODE_CAP].tolist()
        self.size: list[int] = node[:, col.NODE_SIZE].tolist()
        self.pools = [(int(row[col.POOL_LO]), int(row[col.POOL_HI]), int(row[col.POOL_LARGEST])) for row in pool]
        self.left = [sum(self.free[lo:hi]) for lo, hi, _ in self.pools]

    def take(self, gpus: int, pools: int) -> int:
        """Take GPUs in the first allowed pool that has them; that pool, or -1."""
        for p, (lo, hi, largest) in enumerate(self.pools):
            if (pools >> p) & 1 and self.left[p] >= gpus and self._take_in(gpus, lo, hi, largest):
                self.left[p] -= gpus
                return p
        return -1

    def _take_in(self, gpus: int, lo: int, hi: int, largest: int) -> bool:
        free = self.free
        if gpus <= largest:
            for n in range(lo, hi):
                if free[n] >= gpus:
                    free[n] -= gpus
                    return True
            return False
        whole, rest = divmod(gpus, largest)
        idle = [n for n in range(lo, hi) if free[n] == largest]
        if len(idle) < whole:
            return self._gather(gpus, lo, hi, largest)
        chosen = idle[:whole]
        other = next((n for n in range(lo, hi) if free[n] >= rest and n not in chosen), -1) if rest else -1
        if rest and other < 0:
            return self._gather(gpus, lo, hi, largest)
        for n in chosen:
            free[n] -= largest
        if rest:
            free[other] -= rest
        return True

    def _gather(self, gpus: int, lo: int, hi: int, largest: int) -> bool:
        """Nodes of mixed sizes may never offer whole ones: then whatever is idle will do."""
        if sum(1 for n in range(lo, hi) if self.size[n] == largest) > gpus // largest:
            return False
        for n in range(lo, hi):
            took = min(self.free[n], gpus)
            self.free[n] -= took
            gpus -= took
        return True


def _lines(gpus: Ints, pools: Ints) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """The shapes (GPUs, pools) that there are, in order, and the places of the jobs of each."""
    by_shape = np.lexsort((pools, gpus))  # keeps the order of equal ones
    gpus, pools = gpus[by_shape], pools[by_shape]
    first = np.flatnonzero(np.append(True, (gpus[1:] != gpus[:-1]) | (pools[1:] != pools[:-1])))
    ends, places = [*first[1:].tolist(), len(gpus)], by_shape.tolist()
    shapes = list(zip(gpus[first].tolist(), pools[first].tolist(), strict=True))
    return shapes, [places[low:high] for low, high in zip(first.tolist(), ends, strict=True)]


def admit(view: View, order: Ints, at_once: int) -> tuple[list[int], list[int]]:
    """Positions of jobs in `order` (places in the view, best first) as they are admitted, and the pool of each."""
    tenant = view.tenant[order].tolist()
    quota: list[int] = view.site.quota[:, col.Q_LIMIT].tolist()
    room = FirstFit(view.site.node, view.site.pool)
    shapes, lines = _lines(view.gpus[order], view.open_pools[order])
    next_of = [0] * len(lines)
    heads = [(line[0], shape) for shape, line in enumerate(lines)]
    heapq.heapify(heads)
    free = min(quota) >= sum(room.left) * at_once  # no quota can bind
    admitted: list[int] = []
    pools: list[int] = []
    while heads and any(room.left):
        at, shape = heapq.heappop(heads)
        line, k = lines[shape], next_of[shape]
        count, open_ = shapes[shape]
        if quota[tenant[at]] < count:
            next_of[shape] = k + 1
        else:
            pool = room.take(count, open_)
            if pool < 0:
                continue
            before = len(admitted)
            if free:
                admitted += line[k : k + at_once]
                k += at_once
            while k < len(line) and len(admitted) < before + at_once:
                if quota[tenant[line[k]]] >= count:
                    quota[tenant[line[k]]] -= count
                    admitted.append(line[k])
                k += 1
            pools += [pool] * (len(admitted) - before)
            next_of[shape] = k
        if next_of[shape] < len(line):
            heapq.heappush(heads, (line[next_of[shape]], shape))
    return admitted, pools
