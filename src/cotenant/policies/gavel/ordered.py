"""FIFO and SJF as allocations: jobs in order, each whole on one GPU type (Gavel's `fifo` family)."""

from __future__ import annotations

import random

import numpy as np

from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.rounds.problem import Problem, Targets

PACKING_GAIN = 1.5  # a queued job joins a running one only above this sum of normalised rates


def in_order(problem: Problem, order: Ints, *, blocking: bool) -> Targets:
    """Each job of `order` to its fastest pool with room; `blocking` stops at the first that does not fit."""
    room = problem.capacity.copy()
    x = np.zeros_like(problem.rates)
    for j in order.tolist():
        fits = (problem.rates[j] > 0) & (room >= problem.gangs[j])
        if not fits.any():
            if blocking:
                break
            continue
        k = int(np.argmax(np.where(fits, problem.rates[j], -1.0)))
        x[j, k] = 1.0
        room[k] -= problem.gangs[j]
    return Targets(x)


def any_type(problem: Problem, held: Ints, rng: np.random.Generator) -> Targets:
    """Types ignored: whoever runs stays (`held`: its pool or -1), the head goes to a random type with room."""
    room = problem.capacity.copy()
    x = np.zeros_like(problem.rates)
    for j in np.flatnonzero(held >= 0).tolist():
        x[j, held[j]] = 1.0
        room[held[j]] -= problem.gangs[j]
    for j in np.flatnonzero(held < 0).tolist():
        fits = np.flatnonzero((problem.rates[j] > 0) & (room >= problem.gangs[j]))
        if not len(fits):
            break
        k = int(rng.choice(fits))
        x[j, k] = 1.0
        room[k] -= problem.gangs[j]
    return Targets(x)


class Slots:
    """The same as the released code does it: the head inherits the type of whoever has ended, then types are drawn.

    `stale` is a slip of it: it draws a type and then uses the last one in the alphabet that is still listed, but
    strikes the drawn one off the list. So types are given out beyond what they have.
    """

    def __init__(self, seed: int, *, stale: bool) -> None:
        self.draws, self.stale = random.Random(seed), stale
        self.pool: dict[int, int] = {}  # of jobs (by row) that have been given one

    def targets(self, problem: Problem, rows: Ints) -> Targets:
        """Everybody whole on its type; those that have none wait."""
        at = {row: j for j, row in enumerate(rows.tolist())}
        gangs, rates, room = problem.gangs.tolist(), problem.rates, problem.capacity.tolist()
        queue = sorted(row for row in at if row not in self.pool)
        for row in sorted(self.pool):
            pool = self.pool[row]
            if row in at:
                room[pool] -= gangs[at[row]]
                continue
            del self.pool[row]
            if queue and gangs[at[queue[0]]] <= room[pool] and rates[at[queue[0]], pool] > 0:
                head = queue.pop(0)
                self.pool[head] = pool
                room[pool] -= gangs[at[head]]
        self._draw(queue, at, problem, room)
        x = np.zeros_like(rates)
        for row, pool in self.pool.items():
            x[at[row], pool] = 1.0
        return Targets(x)

    def _draw(self, queue: list[int], at: dict[int, int], problem: Problem, room: list[float]) -> None:
        listed = sorted((k for k, left in enumerate(room) if left > 0), key=lambda k: problem.pool_types[k])
        for row in queue:
            gang = int(problem.gangs[at[row]])
            fits = [place for place, pool in enumerate(listed) if room[pool] >= gang]
            if not fits:
                break
            drawn = fits[self.draws.randrange(len(fits))]
            pool = listed[-1 if self.stale else drawn]
            if problem.rates[at[row], pool] <= 0:
                continue
            self.pool[row] = pool
            room[pool] -= gang
            if room[pool] == 0:
                listed.pop(drawn)


def pack_queued(problem: Problem, targets: Targets) -> Targets:
    """Put jobs that got nothing, in order, on running ones: the partner with the largest normalised sum."""
    if problem.pair is None:
        return targets
    x = targets.x.copy()
    hosts = np.flatnonzero(x.sum(axis=1) > 0)
    pool = np.argmax(x, axis=1)
    free = np.ones(len(problem), bool)
    pairs: list[tuple[int, int]] = []
    for j in np.flatnonzero(x.sum(axis=1) == 0).tolist():
        mates = hosts[free[hosts] & (problem.gangs[hosts] == problem.gangs[j])]
        gain = _gain(problem, j, mates, pool[mates])
        if not len(gain) or gain.max() <= PACKING_GAIN:
            break
        mate = int(mates[np.argmax(gain)])
        free[mate] = False
        pairs.append((mate, j))
    pair_x = np.zeros((len(pairs), x.shape[1]))
    for p, (mate, _) in enumerate(pairs):
        pair_x[p, pool[mate]] = 1.0
        x[mate] = 0.0
    return Targets(x, as_matrix(pairs), pair_x)


def _gain(problem: Problem, job: int, mates: Ints, pools: Ints) -> Floats:
    """Sum of both rates in the pool of the mate, each against its rate alone there."""
    assert problem.pair is not None
    return normalised_sum(problem.rates, problem.kind, problem.pair, np.full(len(mates), job), mates, pools)


def normalised_sum(rates: Matrix, kind: Ints, pair: np.ndarray, a: Ints, b: Ints, pools: Ints) -> Floats:
    """Rates of jobs a and b together, each against its own rate alone, summed; 0 where they cannot share."""
    together = pair[kind[a], kind[b], pools], pair[kind[b], kind[a], pools]
    alone = rates[a, pools], rates[b, pools]
    both = (together[0] > 0) & (together[1] > 0) & (alone[0] > 0) & (alone[1] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = together[0] / alone[0] + together[1] / alone[1]
    return np.where(both, total, 0.0)


def as_matrix(pairs: list[tuple[int, int]]) -> IntMatrix:
    """Pairs as a table of two columns, also when there are none."""
    return np.array(pairs, np.int64).reshape(-1, 2)
