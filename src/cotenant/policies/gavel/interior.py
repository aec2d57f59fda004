"""Which of many optimal fractions the released Gavel code gets: those at which its interior-point solver stops.

The optima of its programs are not unique, and the choice decides who runs where: a solver of this kind ends inside the
optimal set, with every fraction above 0, also those of pairs that gain nothing, which then fill GPUs that are left. A
simplex ends in a corner. So comparing with the released simulator needs the method itself: the homogeneous self-dual
embedding with Mehrotra's steps, from the starting point of CVXOPT and ECOS (Domahidi, Chu and Boyd, ECC'13), on rows
and columns scaled to alike sizes (Ruiz). Without an objective (makespan) it stops at the first feasible point, well
before the centre.

Jobs of one kind are alike to it, so one of each is enough: a program has classes of rows and of variables, with how
many of each there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats

TOLERANCE, ROUGHLY = 1e-8, 1e-4
STEPS = 100
BACK_OFF, LONGEST, LEAST_CENTRING = 0.99, 0.999, 1e-4
SCALINGS = 3
SOFTENED, REFINED, EXACT = 7e-8, 10, 1e-12  # how linear equations are solved

Solve = Callable[[Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True)
class AlikeProgram:
    """Least cost @ x with x >= 0 (but for those free); in every row the sum of coefficient x count x variable <= limit.

    `coefficient[r, v]` is that of one variable in one row, `count[r, v]` how many variables of class v a row of class r
    has; `rows` and `copies` say how many there are in each class.
    """

    coefficient: Matrix
    count: Matrix
    limit: Floats
    rows: Floats
    copies: Floats
    cost: Floats
    free: np.ndarray


def solve(program: AlikeProgram) -> Floats:
    """The variables where the method stops; fractions below 0 by rounding are left to the caller."""
    p, bound, column = _scaled(program)
    return _Path(p, bound).follow() / column


def _scaled(p: AlikeProgram) -> tuple[AlikeProgram, Floats, Floats]:
    """The same with rows and columns of alike sizes, coefficients of the bounds, what each column was divided by."""
    matrix = np.abs(p.coefficient) * (p.count > 0)
    bound = np.where(p.free, 0.0, 1.0)
    row, column = np.ones(len(p.limit)), np.ones(len(p.cost))
    for _ in range(SCALINGS):
        of_row, of_bound = _root(matrix.max(axis=1, initial=0.0)), _root(bound)
        of_column = _root(np.maximum(matrix.max(axis=0, initial=0.0), bound))
        matrix = matrix / of_row[:, None] / of_column[None, :]
        bound = bound / of_bound / of_column
        row, column = row * of_row, column * of_column
    coefficient = p.coefficient / row[:, None] / column[None, :]
    return AlikeProgram(coefficient, p.count, p.limit / row, p.rows, p.copies, p.cost / column, p.free), bound, column


def _root(size: Floats) -> Floats:
    return np.where(size < 1e-6, 1.0, np.sqrt(size))


@dataclass(frozen=True, slots=True)
class _Point:
    """Variables, slacks, prices, and the two numbers that scale them."""

    x: Floats
    s: Floats
    z: Floats
    kappa: float
    tau: float

    @property
    def sound(self) -> bool:
        """Whether all that has to be above 0 is."""
        return bool(min(self.s.min(), self.z.min(), self.kappa, self.tau) > 0)


class _Path:
    """One solve. Slacks and prices are of the bounds first, then of the rows."""

    def __init__(self, p: AlikeProgram, bound: Floats) -> None:
        self.p, self.bound, self.kept = p, bound, ~p.free
        self.forth = p.coefficient * p.count  # rows x variables
        self.back = (p.coefficient * (p.count * p.rows[:, None] / p.copies[None, :])).T
        self.wide, self.lone = self.forth[:, self.kept], self.forth[:, p.free]
        self.many = np.concatenate([p.copies[self.kept], p.rows])
        self.limit = np.concatenate([np.zeros(int(self.kept.sum())), p.limit])
        self.size = float(self.many.sum())
        self.edge = int(self.kept.sum())

    def follow(self) -> Floats:
        """From the starting point to the tolerance, or to the best point before numbers no longer tell."""
        here = best = self._start()
        least = np.inf
        for _ in range(STEPS):
            wrong = self._wrong(here)
            if wrong < least:
                best, least = here, wrong
            if wrong <= 1.0:
                break
            try:
                here = self._ahead(here)
            except np.linalg.LinAlgError:
                break
            if not here.sound:
                break
        return np.asarray(best.x / best.tau)

    def _start(self) -> _Point:
        find = self._factored(np.ones(len(self.many)))
        x, slack = find(np.zeros(len(self.p.cost)), self.limit)
        z = find(-self.p.cost, np.zeros(len(self.limit)))[1]
        return _Point(x, _inside(-slack), _inside(z), 1.0, 1.0)

    def _worth(self, x: Floats, z: Floats) -> float:
        return float(self.p.copies @ (self.p.cost * x)) + float(self.many @ (self.limit * z))

    def _off(self, at: _Point) -> tuple[Floats, Floats]:
        """By how much the point misses its equations, those of the variables and those of the rows."""
        return -self._back(at.z) - self.p.cost * at.tau, at.s + self._forth(at.x) - self.limit * at.tau

    def _wrong(self, at: _Point) -> float:
        """How far from done, in tolerances; prices, which nobody asks for, may be rougher."""
        (off_x, off_z), many, copies = self._off(at), self.many, self.p.copies
        of_cost, of_limit = max(1.0, _norm(self.p.cost, copies)), max(1.0, _norm(self.limit, many))
        size_x, size_s, size_z = _norm(at.x, copies), _norm(at.s, many), _norm(at.z, many)
        rows = _norm(off_z, many) / max(of_limit + size_x + size_s, 1.0) / at.tau / TOLERANCE
        prices = _norm(off_x, copies) / max(of_cost + size_z, 1.0) / at.tau / ROUGHLY
        gap = float(many @ (at.s * at.z))
        cost = -float(copies @ (self.p.cost * at.x)) / at.tau
        return max(rows, prices, gap / max(cost, 1.0) / TOLERANCE)

    def _ahead(self, at: _Point) -> _Point:
        """One of Mehrotra's steps: straight ahead to see how far that goes, then with so much centring."""
        (off_x, off_z), tau, kappa = self._off(at), at.tau, at.kappa
        off_t = kappa + self._worth(at.x, at.z)
        mu = (float(self.many @ (at.s * at.z)) + kappa * tau) / (self.size + 1)
        w, middle = np.sqrt(at.s / at.z), np.sqrt(at.s * at.z)
        find = self._factored(w * w)
        x1, z1 = find(-self.p.cost, self.limit)
        turn = kappa / tau - self._worth(x1, z1)

        def direction(bx: Floats, bz: Floats, bt: float) -> tuple[Floats, Floats, float]:
            x2, z2 = find(bx, bz)
            more = (bt + self._worth(x2, z2)) / turn
            return x2 + more * x1, z2 + more * z1, more

        _, dz, dtau = direction(off_x, at.s - off_z, off_t - kappa)
        dz, ds, dkappa = w * dz, -middle - w * dz, -kappa - kappa / tau * dtau
        sigma = max((1 - _longest(middle, ds, dz, (tau, dtau), (kappa, dkappa))) ** 3, LEAST_CENTRING)
        aim, back = middle + (ds * dz - sigma * mu) / middle, kappa * tau + dkappa * dtau - sigma * mu
        less = 1 - sigma
        dx, dz, dtau = direction(less * off_x, w * aim - less * off_z, less * off_t - back / tau)
        ds, dkappa = -(aim + w * dz), -(back + kappa * dtau) / tau
        step = BACK_OFF * _longest(middle, ds, w * dz, (tau, dtau), (kappa, dkappa))
        return _Point(
            at.x + step * dx, at.s + step * w * ds, at.z + step * dz, kappa + step * dkappa, tau + step * dtau
        )

    def _forth(self, x: Floats) -> Floats:
        return np.concatenate([-self.bound[self.kept] * x[self.kept], self.forth @ x])

    def _back(self, z: Floats) -> Floats:
        found = self.back @ z[self.edge :]
        found[self.kept] -= self.bound[self.kept] * z[: self.edge]
        return np.asarray(found)

    def _factored(self, w2: Floats) -> Solve:
        """A solver of: back(dz) = a, forth(dx) - w2 dz = b; it factors something near, and refines the answer."""
        p, bound, edge, kept = self.p, self.bound[self.kept], self.edge, self.kept
        wide, lone, near = self.wide, self.lone, w2 + SOFTENED
        inside, rows = near[:edge], near[edge:]
        own = p.copies[kept] * (bound * bound / inside + SOFTENED)
        inverse = _inverse(wide, own, rows / p.rows)
        through = lone.T @ inverse(lone) if lone.shape[1] else None

        def roughly(a: Floats, b: Floats) -> tuple[Floats, Floats]:
            full = p.copies * a + self.forth.T @ (p.rows * b[edge:] / rows)
            part = full[kept] - p.copies[kept] * bound * b[:edge] / inside
            given = wide @ (part / own)
            x = np.zeros(len(p.cost))
            if through is not None:
                x[~kept] = np.linalg.solve(through, full[~kept] - lone.T @ inverse(given))
                given = given + lone @ x[~kept]
            x[kept] = (part - wide.T @ inverse(given)) / own
            return x, (self._forth(x) - b) / near

        def find(a: Floats, b: Floats) -> tuple[Floats, Floats]:
            x, z = np.zeros(len(a)), np.zeros(len(b))
            miss_x, miss_z = a, b
            size = np.inf
            for _ in range(REFINED):
                dx, dz = roughly(miss_x, miss_z)
                miss_x, miss_z = a - self._back(z + dz), b - self._forth(x + dx) + w2 * (z + dz)
                now = max(float(np.abs(miss_x).max()), float(np.abs(miss_z).max()))
                if not now < size:
                    break
                x, z, size = x + dx, z + dz, now
                if size < EXACT:
                    break
            return x, z

        return find


def _inverse(wide: Matrix, own: Floats, more: Floats) -> Callable[[Floats], Floats]:
    """Multiplies by the inverse of wide @ diag(1 / own) @ wide.T + diag(more)."""
    small = (wide / own) @ wide.T
    small[np.diag_indices(len(small))] += more
    size = 1.0 / np.sqrt(small.diagonal())
    root = np.linalg.inv(np.linalg.cholesky(small * size[:, None] * size[None, :])) * size[None, :]
    return lambda vector: np.asarray(root.T @ (root @ vector))


def _inside(values: Floats) -> Floats:
    """Lifted into the inside of what is allowed."""
    outside = values <= 0
    lift = max(-BACK_OFF, float(-values[outside].min()) if outside.any() else -BACK_OFF)
    return np.asarray(values + 1.0 + lift)


def _norm(vector: Floats, many: Floats) -> float:
    return float(np.sqrt(many @ (vector * vector)))


def _longest(middle: Floats, ds: Floats, dz: Floats, *others: tuple[float, float]) -> float:
    """How far a step may go before something reaches 0; `others` are values and their changes."""
    worst = min(float((ds / middle).min()), float((dz / middle).min()))
    step = 1.0 / -worst if worst < 0 else np.inf
    for value, change in others:
        if change < 0:
            step = min(step, -value / change)
    return min(max(step, 1e-6), LONGEST)
