"""Which of many optimal fractions the released Gavel code gets for finish-time fairness: where its solver stops.

One job that is already at full speed often sets the largest ratio, and every division that does not slow it down is
then optimal. The released code hands this to an interior-point solver for cones, which stops inside the optimal set:
the ratio of a job with rate E is (age + left u) / fair, with E u >= 1, that is (E + u, E - u, 2) in a second-order
cone. Here is a method of the same kind as textbooks give it (Vandenberghe, The CVXOPT linear and quadratic cone program
solvers, 2010; Domahidi, Chu and Boyd, ECOS: an SOCP solver for embedded systems, ECC 2013): homogeneous self-dual form,
Nesterov-Todd scaling, predictor and corrector; as in `interior`, but with cones. Which optimum is met depends on every
step from the start, so what the papers leave open (how rows of a cone are scaled together, the longest step, the least
centring) is set so that the first steps are those which the released code's solver prints.

Jobs meet only in the pools and in the largest ratio, so a step takes time linear in their number. Here the program is
set up and scaled; `cone_walk` has the steps, `cone_kernels` their algebra.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.gavel.cone_kernels import Cones, scaled
from cotenant.policies.gavel.cone_walk import follow, walk_of
from cotenant.policies.rounds.problem import Problem

SCALINGS = 3


class _ConeProgram:
    """Least ratio with G (y, ratio) + s = limit. Variables of a job are its fractions, then u."""

    def __init__(self, problem: Problem, fair_s: Floats) -> None:
        self.n, self.pools = problem.rates.shape
        n, steps = self.n, problem.steps_per_s
        self.rates = problem.rates * steps[:, None]
        self.bound, self.time = np.ones((2, n, self.pools))
        self.pool = np.repeat(problem.gangs.astype(np.float64)[:, None], self.pools, axis=1)
        self.own, self.wait, self.most = np.ones(n), problem.left_s * steps / fair_s, np.ones(n)
        self.column, self.last, self.cost = np.ones((n, self.pools)), np.ones(n), 1.0
        free: tuple[Floats, ...]
        free = np.zeros((n, self.pools)), np.ones(n), problem.capacity.astype(np.float64), -problem.age_s / fair_s
        cone = np.repeat([[0.0, 0.0, 2.0]], n, axis=0)
        for _ in range(SCALINGS):
            free, cone = self._scale(free, cone)
        self.limit = np.zeros((n + 1, self.pools + 5))
        self.limit[:n] = np.column_stack([free[0], free[1], free[3], cone])
        self.limit[n, : self.pools] = free[2]

    def _scale(self, free: tuple[Floats, ...], cone: Matrix) -> tuple[tuple[Floats, ...], Matrix]:
        """Divide rows and columns by the root of their largest entry (Ruiz, 2001); a cone's by that of their sum."""
        bound, time, pool = np.sqrt(self.bound), np.sqrt(self.time.max(axis=1)), np.sqrt(self.pool.max(axis=0))
        wait = np.sqrt(np.maximum(self.wait, self.most))
        of_cone = np.sqrt(2.0 * np.maximum(self.rates.max(axis=1), self.own))  # of three rows one has no entries
        x = np.sqrt(np.maximum.reduce([self.bound, self.time, self.pool, self.rates]))
        u, ratio = np.sqrt(np.maximum(self.wait, self.own)), float(np.sqrt(self.most.max()))
        self.bound = self.bound / bound / x
        self.time = self.time / time[:, None] / x
        self.pool = self.pool / pool / x
        self.rates = self.rates / of_cone[:, None] / x
        self.own, self.wait, self.most = self.own / of_cone / u, self.wait / wait / u, self.most / wait / ratio
        self.column, self.last, self.cost = self.column * x, self.last * u, self.cost / ratio
        return (free[0] / bound, free[1] / time, free[2] / pool, free[3] / wait), cone / of_cone[:, None]

    def follow(self) -> Matrix:
        """Fractions where the method stops."""
        bound, time, pool, rates = (np.ascontiguousarray(one) for one in (self.bound, self.time, self.pool, self.rates))
        program = Cones(bound, time, pool, rates, self.own, self.wait, self.most, self.limit)
        walk = walk_of(self.n, self.pools, self.cost)
        follow(program, scaled(self.n, self.pools), walk)
        return np.asarray(walk.best[:-1, :-1] / self.column)


def finish_time(problem: Problem, fair_s: Floats) -> Matrix:
    """Fractions with the smallest largest ratio of finish times, where the solver stops."""
    return _ConeProgram(problem, fair_s).follow()
