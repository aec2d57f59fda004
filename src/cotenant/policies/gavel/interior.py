"""Which of many optimal fractions the released Gavel code gets: those at which its interior-point solver stops.

The optima of its programs are not unique, and the choice decides who runs where: a solver of this kind ends inside the
optimal set, with every fraction above 0, also those of pairs that gain nothing, which then fill GPUs that are left. A
simplex ends in a corner. So comparing with the released simulator needs the method itself: the homogeneous self-dual
embedding with Mehrotra's steps, from the starting point of CVXOPT and ECOS (Domahidi, Chu and Boyd, ECC'13), on rows and
columns scaled to alike sizes (Ruiz). Without an objective (makespan) it stops at the first feasible point, well before
the centre.

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
class Program:
    """Least cost @ x with x >= 0 (but for those free) and, in every row, sum of coefficient x count x variable <= limit.

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


def solve(program: Program) -> Floats:
    """The variables where the method stops; fractions below 0 by rounding are left to the caller."""
    p, bound, column = _scaled(program)
    return _Path(p, bound).follow() / column


def _scaled(p: Program) -> tuple[Program, Floats, Floats]:
    """The same with rows and columns of alike sizes, the coefficients of the bounds, and what each column was divided by."""
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
    return Program(coefficient, p.count, p.limit / row, p.rows, p.copies, p.cost / column, p.free), bound, column


def _root(size: Floats) -> Floats:
    return np.where(size < 1e-6, 1.0, np.sqrt(size))


class _Path:
    """One solve. Slacks and prices are of the bounds first, then of the rows."""

    def __init__(self, p: Program, bound: Floats) -> None:
        self.p, self.bound, self.kept = p, bound, ~p.free
        self.forth = p.coefficient * p.count  # rows x variables
        self.back = (p.coefficient * (p.count * p.rows[:, None] / p.copies[None, :])).T
        self.wide, self.lone = self.forth[:, self.kept], self.forth[:, p.free]
        self.many = np.concatenate([p.copies[self.kept], p.rows])
        self.limit = np.concatenate([np.zeros(int(self.kept.sum())), p.limit])
        self.size = float(self.many.sum())
        self.edge = int(self.kept.sum())

    def follow(self) -> Floats:
        """From the starting point to the tolerance."""
        p, many, h = self.p, self.many, self.limit
        find = self._factored(np.ones(len(many)))
        x, r = find(np.zeros(len(p.cost)), h)
        s = _inside(-r)
        z = _inside(find(-p.cost, np.zeros(len(h)))[1])
        kappa = tau = 1.0
        scale_x, scale_z = max(1.0, self._norm(p.cost, p.copies)), max(1.0, self._norm(h, many))
        for _ in range(STEPS):
            rx, rz = -self._back(z) - p.cost * tau, s + self._forth(x) - h * tau
            cx, hz = float(p.copies @ (p.cost * x)), float(many @ (h * z))
            rt, gap = kappa + cx + hz, float(many @ (s * z))
            mu = (gap + kappa * tau) / (self.size + 1)
            nx, ns, nz = self._norm(x, p.copies), self._norm(s, many), self._norm(z, many)
            feasible = self._norm(rz, many) / max(scale_z + nx + ns, 1.0) / tau < TOLERANCE
            feasible &= self._norm(rx, p.copies) / max(scale_x + nz, 1.0) / tau < ROUGHLY  # prices are not asked for
            worth = -cx / tau if cx < 0 else (-hz / tau if hz < 0 else 0.0)
            if feasible and (gap < TOLERANCE or (worth > 0 and gap / worth < TOLERANCE)):
                break
            w, middle = np.sqrt(s / z), np.sqrt(s * z)
            find = self._factored(w * w)
            x1, z1 = find(-p.cost, h)
            denominator = kappa / tau - float(p.copies @ (p.cost * x1)) - float(many @ (h * z1))

            def direction(
                bx: Floats, bz: Floats, bt: float, find: Solve = find, x1: Floats = x1, z1: Floats = z1,
                denominator: float = denominator,
            ) -> tuple[Floats, Floats, float]:  # fmt: skip
                x2, z2 = find(bx, bz)
                more = (bt + float(p.copies @ (p.cost * x2)) + float(many @ (h * z2))) / denominator
                return x2 + more * x1, z2 + more * z1, more

            _, dz, dtau = direction(rx, s - rz, rt - kappa)
            dz_w, ds_w = w * dz, -middle - w * dz
            dkappa = -kappa - kappa / tau * dtau
            sigma = (1 - _longest(middle, ds_w, dz_w, tau, dtau, kappa, dkappa)) ** 3
            sigma = min(max(sigma, LEAST_CENTRING), 1.0)
            aim = middle + (ds_w * dz_w - sigma * mu) / middle
            back = kappa * tau + dkappa * dtau - sigma * mu
            dx, dz, dtau = direction((1 - sigma) * rx, w * aim - (1 - sigma) * rz, (1 - sigma) * rt - back / tau)
            dz_w = w * dz
            ds_w = -(aim + dz_w)
            dkappa = -(back + kappa * dtau) / tau
            step = BACK_OFF * _longest(middle, ds_w, dz_w, tau, dtau, kappa, dkappa)
            x, z, s = x + step * dx, z + step * dz, s + step * w * ds_w
            kappa, tau = kappa + step * dkappa, tau + step * dtau
        return np.asarray(x / tau)

    def _forth(self, x: Floats) -> Floats:
        return np.concatenate([-self.bound[self.kept] * x[self.kept], self.forth @ x])

    def _back(self, z: Floats) -> Floats:
        found = self.back @ z[self.edge :]
        found[self.kept] -= self.bound[self.kept] * z[: self.edge]
        return np.asarray(found)

    @staticmethod
    def _norm(vector: Floats, many: Floats) -> float:
        return float(np.sqrt(many @ (vector * vector)))

    def _factored(self, w2: Floats) -> Solve:
        """A solver of: back(dz) = a, forth(dx) - w2 dz = b. What it factors is a little off, so that it can; then refined."""
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


def _longest(
    middle: Floats, ds: Floats, dz: Floats, tau: float, dtau: float, kappa: float, dkappa: float
) -> float:  # fmt: skip
    """How far a step may go before something reaches 0."""
    worst = min(float((ds / middle).min()), float((dz / middle).min()))
    step = 1.0 / -worst if worst < 0 else 10.0
    for value, change in ((tau, dtau), (kappa, dkappa)):
        if change < 0:
            step = min(step, -value / change)
    return min(max(step, 1e-6), LONGEST)
