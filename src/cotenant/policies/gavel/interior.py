"""Which of many optimal fractions the released Gavel code gets: those at which an interior-point solver stops.

The optima of its programs are not unique, and the choice decides who runs where: a solver of this kind ends inside the
optimal set, with every fraction above 0, also those of pairs that gain nothing, which then fill GPUs that are left. A
simplex ends in a corner. So comparing with the released simulator needs a method of the same kind, here as textbooks
give it: the homogeneous self-dual form (Xu, Hung and Ye, Annals of OR 62, 1996; Wright, Primal-Dual Interior-Point
Methods, SIAM 1997, chapter 9) with predictor and corrector (Mehrotra, SIAM J. Optimization 2, 1992), starting point and
centring as in Vandenberghe, The CVXOPT linear and quadratic cone program solvers, 2010. Without an objective (makespan)
it stops at the first feasible point, well before the centre.

Jobs of one kind are alike to it, so one of each is enough: a program has classes of rows and of variables, with how
many of each there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats

TOLERANCE = 1e-8
STEPS = 100
NEARLY = 0.99  # of the way to where something reaches 0
SCALINGS = 3

Solve = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class AlikeProgram:
    """Least cost @ x with x >= 0; in every row the sum of coefficient x count x variable <= limit.

    `coefficient[r, v]` is that of one variable in one row, `count[r, v]` how many variables of class v a row of class r
    has; `rows` and `copies` say how many there are in each class.
    """

    coefficient: Matrix
    count: Matrix
    limit: Floats
    rows: Floats
    copies: Floats
    cost: Floats


def solve(program: AlikeProgram) -> Floats:
    """The variables where the method stops."""
    row, column, bound = _sizes(np.abs(program.coefficient) * (program.count > 0))
    matrix = program.coefficient * program.count / row[:, None] / column[None, :]
    path = _Path(matrix, bound, program.limit / row, program.cost / column, program.copies, program.rows)
    return path.follow() / column


def _sizes(matrix: Matrix) -> tuple[Floats, Floats, Floats]:
    """What to divide rows and columns by so that the largest entry of each is near 1 (Ruiz, 2001); x >= 0 are rows too.

    The third are the entries of those.
    """
    row, column, bound = np.ones(len(matrix)), np.ones(matrix.shape[1]), np.ones(matrix.shape[1])
    for _ in range(SCALINGS):
        of_row, of_column = _root(matrix.max(axis=1)), _root(np.maximum(matrix.max(axis=0), bound))
        matrix, bound = matrix / of_row[:, None] / of_column[None, :], bound / np.sqrt(bound) / of_column
        row, column = row * of_row, column * of_column
    return row, column, bound


def _root(size: Floats) -> Floats:
    return np.where(size > 0, np.sqrt(size), 1.0)


@dataclass(frozen=True, slots=True)
class _Move:
    """A point: variables, slacks, prices, by what all are scaled, and the slack of the gap. Or a step of it."""

    x: Floats
    s: Floats
    z: Floats
    tau: float
    kappa: float

    def by(self, step: _Move, length: float) -> _Move:
        return _Move(
            self.x + length * step.x, self.s + length * step.s, self.z + length * step.z,
            self.tau + length * step.tau, self.kappa + length * step.kappa,
        )  # fmt: skip

    def longest(self, step: _Move) -> float:
        """How much of a step can be taken, at most all, before something that is above 0 reaches it."""
        worst = min((step.s / self.s).min(), (step.z / self.z).min(), step.tau / self.tau, step.kappa / self.kappa)
        return min(1.0, -1.0 / float(worst)) if worst < 0 else 1.0


class _Path:
    """One solve of: forth(x) + s = limit, back(z) = -cost. Slacks and prices are of the bounds first, then of rows."""

    def __init__(
        self, matrix: Matrix, bound: Floats, limit: Floats, cost: Floats, copies: Floats, rows: Floats
    ) -> None:  # fmt: skip
        self.matrix, self.bound, self.cost, self.copies, self.rows = matrix, bound, cost, copies, rows
        self.width = len(cost)
        self.limit, self.many = np.concatenate([np.zeros(self.width), limit]), np.concatenate([copies, rows])

    def follow(self) -> Floats:
        """From the starting point until equations and gap are within the tolerance, or numbers no longer tell."""
        here = best = self._start()
        least = np.inf
        of_limit, of_cost = max(1.0, _norm(self.limit, self.many)), max(1.0, _norm(self.cost, self.copies))
        for _ in range(STEPS):
            off_x, off_z, _ = self._off(here)
            gap = float(self.many @ (here.s * here.z)) / here.tau / max(here.tau, abs(self._value(here.x)))
            off = max(_norm(off_z, self.many) / of_limit, _norm(off_x, self.copies) / of_cost) / here.tau
            if max(off, gap) < least:
                best, least = here, max(off, gap)
            if least <= TOLERANCE:
                break
            try:
                here = self._ahead(here)
            except np.linalg.LinAlgError:
                break
        return np.asarray(best.s[: self.width] / self.bound / best.tau)  # slacks of x >= 0 are x, and above 0

    def _start(self) -> _Move:
        """The smallest slacks and the smallest prices that fulfil their equations, lifted above 0."""
        find = self._factored(np.ones(len(self.many)))
        x, less = find(np.zeros(self.width), self.limit)
        _, z = find(-self.cost, np.zeros(len(self.limit)))
        return _Move(x, _lifted(-less), _lifted(z), 1.0, 1.0)

    def _ahead(self, at: _Move) -> _Move:
        """One step: straight ahead to see how far that goes, then with so much centring, and the error corrected."""
        off_x, off_z, off_t = self._off(at)
        find = self._factored(at.s / at.z)
        x1, z1 = find(-self.cost, self.limit)
        turn = at.kappa / at.tau - self._value(x1) - self._price(z1)

        def towards(share: float, aim: Floats, aim_t: float) -> _Move:
            """So much of what the equations are off by, and the products s z and kappa tau changed by `aim`."""
            x2, z2 = find(share * off_x, share * off_z - aim / at.z)
            tau = (aim_t / at.tau - share * off_t + self._value(x2) + self._price(z2)) / turn
            z = z2 + tau * z1
            return _Move(x2 + tau * x1, (aim - at.s * z) / at.z, z, tau, (aim_t - at.kappa * tau) / at.tau)

        products, product_t = at.s * at.z, at.kappa * at.tau
        first = towards(1.0, -products, -product_t)
        centring = (1.0 - at.longest(first)) ** 3
        mean = centring * (float(self.many @ products) + product_t) / (float(self.many.sum()) + 1.0)
        step = towards(
            1.0 - centring, mean - first.s * first.z - products, mean - first.kappa * first.tau - product_t
        )  # fmt: skip
        return at.by(step, NEARLY * at.longest(step))

    def _off(self, at: _Move) -> tuple[Floats, Floats, float]:
        """What is missing in the equations of variables, of rows, and of the gap."""
        price = self.matrix.T @ (self.rows * at.z[self.width :]) / self.copies - self.bound * at.z[: self.width]
        used = np.concatenate([-self.bound * at.x, self.matrix @ at.x])
        off_t = -at.kappa - self._value(at.x) - self._price(at.z)
        return -price - self.cost * at.tau, self.limit * at.tau - used - at.s, off_t

    def _value(self, x: Floats) -> float:
        return float(self.copies @ (self.cost * x))

    def _price(self, z: Floats) -> float:
        return float(self.many @ (self.limit * z))

    def _factored(self, ratio: Floats) -> Solve:
        """A solver of: back(dz) = a, forth(dx) - ratio dz = b; by the equations of the prices of rows."""
        inside, outside, bound = ratio[: self.width], ratio[self.width :], self.bound
        weight = inside / (bound * bound)
        normal = (self.matrix * (weight / self.copies)) @ self.matrix.T
        normal[np.diag_indices(len(normal))] += outside / self.rows
        size = 1.0 / np.sqrt(normal.diagonal())
        root = np.linalg.inv(np.linalg.cholesky(normal * size[:, None] * size[None, :])) * size[None, :]

        def find(a: Floats, b: Floats) -> tuple[Floats, Floats]:
            of_bound, of_row = b[: self.width], b[self.width :]
            all_alike = root.T @ (root @ (self.matrix @ (weight * a - of_bound / bound) - of_row))
            price = (self.matrix.T @ all_alike / self.copies - a) / bound
            return -(of_bound + inside * price) / bound, np.concatenate([price, all_alike / self.rows])

        return find


def _lifted(values: Floats) -> Floats:
    least = float(values.min())
    return values if least > 0 else values + (1.0 - least)


def _norm(vector: Floats, many: Floats) -> float:
    return float(np.sqrt(many @ (vector * vector)))
