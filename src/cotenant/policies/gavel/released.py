"""The released Gavel code's programs, solved as it solves them (`interior`): max-min fairness and makespan.

Its makespan bisects on a time until within 5 % and takes any fractions that finish in it.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats, Ints
from cotenant.policies.gavel.interior import AlikeProgram, solve
from cotenant.policies.rounds.problem import Problem, Targets

FIRST_S, LAST_S, PRECISION = 100.0, 1e6, 1.05


def bisected(optimum_s: float) -> float:
    """The time at which the bisection of the released code stops when everything from `optimum_s` on is feasible."""
    low, high = FIRST_S, LAST_S
    while True:
        top, found = high, 0.0
        while PRECISION * low < high:
            middle = (low + high) / 2
            if middle >= optimum_s:
                high = found = middle
            else:
                low = middle
        if found:
            return found
        low, high = top, 10 * top


def makespan(problem: Problem, time_s: float) -> Targets:
    """Fractions with which everybody is done in this time; in steps, on which the point depends, not in seconds."""
    steps = np.where(problem.steps_per_s > 0, problem.steps_per_s, 1.0)
    table = _Table(problem.rates * steps[:, None], problem.gangs, problem.capacity, np.ones(len(problem)))
    x = table.solved(limit=problem.left_s * steps / time_s, aims=False)
    return Targets(np.clip(x, 0.0, 1.0))


def max_min(problem: Problem, scale: Floats, sharing: bool) -> Targets:
    """Largest least `scale` x rate; alike jobs get alike fractions, and so do alike pairs."""
    keys = np.stack([problem.kind, problem.gangs, problem.weights], axis=1)
    _, first, of, many = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    of = of.ravel()
    table = _Table(problem.rates[first], problem.gangs[first], problem.capacity, many.astype(np.float64), scale[first])
    if not sharing or problem.pair is None:
        return Targets(np.clip(table.solved()[of], 0.0, 1.0) * (problem.rates > 0))
    return _shared(problem, table, first, of)


def _shared(problem: Problem, table: _Table, first: Ints, of: Ints) -> Targets:
    """The same with pairs of jobs of one size as further rows; those that cannot share count, but never run."""
    assert problem.pair is not None
    gangs, kind = problem.gangs[first], problem.kind[first]
    a, b = np.triu_indices(len(first))
    able = (gangs[a] == gangs[b]) & ((a != b) | (table.many[a] > 1))
    a, b = a[able], b[able]
    beside = problem.pair[kind[a], kind[b]], problem.pair[kind[b], kind[a]]
    table.pairs(a, b, beside)
    x = np.clip(table.solved(), 0.0, 1.0)
    number = np.full((len(first), len(first)), -1)
    number[a, b] = number[b, a] = np.arange(len(a))
    runs = (beside[0] > 0) & (beside[1] > 0)
    i, j = np.triu_indices(len(of), 1)
    at = number[of[i], of[j]]
    keep = (at >= 0) & runs.any(axis=1)[at]
    i, j, at = i[keep], j[keep], at[keep]
    return Targets(x[of], np.stack([i, j], axis=1), (x[len(first) :] * runs)[at])


class _Table:
    """A program of classes of alike jobs: for each whether it is served all the time, and how fast; then the pools."""

    def __init__(
        self, rates: Matrix, gangs: Ints, capacity: Floats, many: Floats, scale: Floats | None = None
    ) -> None:  # fmt: skip
        self.gangs, self.capacity, self.many = gangs, capacity, many
        self.scale = np.ones(len(many)) if scale is None else scale
        every = np.arange(len(many))
        self.members: list[tuple[Ints, Ints, Matrix, Floats]] = [(every, every, rates, np.ones(len(many)))]
        self.size, self.copies = gangs.astype(np.float64), many
        self.combinations = len(many)

    def pairs(self, a: Ints, b: Ints, beside: tuple[Matrix, Matrix]) -> None:
        """Pairs of classes a and b, and the rate of each beside the other."""
        at = self.combinations + np.arange(len(a))
        same = a == b
        others = np.where(same, self.many[a] - 1, self.many[b])
        self.members.append((a, at, beside[0], others))
        self.members.append((b[~same], at[~same], beside[1][~same], self.many[a][~same]))
        self.size = np.concatenate([self.size, self.gangs[a]])
        self.copies = np.concatenate([self.copies, self.many[a] * np.where(same, others / 2, others)])
        self.combinations += len(a)

    def solved(self, limit: Floats | None = None, aims: bool = True) -> Matrix:
        """Fractions per combination and pool: with the largest least rate, or with rates above a limit."""
        jobs, pools = len(self.many), len(self.capacity)
        wide = self.combinations * pools
        coefficient, count = np.zeros((2 * jobs + pools, wide + aims)), np.zeros((2 * jobs + pools, wide + aims))
        for k in range(pools):
            for job, at, rate, times in self.members:
                column = at * pools + k
                coefficient[job, column], count[job, column] = 1.0, times
                coefficient[jobs + job, column] = -self.scale[job] * rate[:, k]
                count[jobs + job, column] = times
            column = np.arange(self.combinations) * pools + k
            coefficient[2 * jobs + k, column], count[2 * jobs + k, column] = self.size, self.copies
        floor = np.zeros(jobs) if limit is None else -limit
        cost = np.zeros(wide + aims)
        copies = np.concatenate([np.repeat(self.copies, pools), np.ones(int(aims))])
        if aims:
            coefficient[jobs : 2 * jobs, -1] = count[jobs : 2 * jobs, -1] = 1.0
            cost[-1] = -1.0
        limits = np.concatenate([np.ones(jobs), floor, self.capacity])
        rows = np.concatenate([self.many, self.many, np.ones(pools)])
        x = solve(AlikeProgram(coefficient, count, limits, rows, copies, cost))
        return np.asarray(x[:wide].reshape(self.combinations, pools))
