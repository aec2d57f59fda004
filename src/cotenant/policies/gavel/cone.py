"""Which of many optimal fractions the released Gavel code gets for finish-time fairness: where its solver stops.

One job that is already at full speed often sets the largest ratio, and every division that does not slow it down is
then optimal. The released code hands this to an interior-point solver for cones, which stops inside the optimal set:
the ratio of a job with rate E is (age + left u) / fair, with E u >= 1, that is (E + u, E - u, 2) in a second-order
cone. Here is a method of the same kind as textbooks give it (Vandenberghe, The CVXOPT linear and quadratic cone program
solvers, 2010; Domahidi, Chu and Boyd, ECOS: an SOCP solver for embedded systems, ECC 2013): homogeneous self-dual form,
Nesterov-Todd scaling, predictor and corrector; as in `interior`, but with cones. Which optimum is met depends on every
step from the start, so what the papers leave open (how rows of a cone are scaled together, the longest step, the least
centring) is set so that the first steps are those which the released code's solver prints.

Jobs meet only in the pools and in the largest ratio, so a step takes time linear in their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cotenant.core.state import Cube, Matrix
from cotenant.core.workload import Floats
from cotenant.policies.rounds.problem import Problem

TOLERANCE = 1e-6  # nearer than that the fractions no longer change
STEPS, PATIENCE = 100, 15  # so many steps without getting nearer
REFINED = 1  # times that what is missing in a solution is solved for
SCALINGS = 3
NEARLY, FARTHEST = 0.99, 0.999  # of the way to where something leaves its cone, and of a whole step
LEAST_CENTRING = 1e-4
FLIP = np.array([1.0, -1.0, -1.0])
PART = 6  # unknowns of a job beside its fractions: u, prices of its time, of its ratio, of its cone


@dataclass(frozen=True, slots=True)
class _Vector:
    """A slack or a price of every row: linear ones, and three for each cone."""

    flat: Floats
    cone: Matrix

    def __add__(self, other: _Vector) -> _Vector:
        return _Vector(self.flat + other.flat, self.cone + other.cone)

    def __sub__(self, other: _Vector) -> _Vector:
        return _Vector(self.flat - other.flat, self.cone - other.cone)

    def __mul__(self, by: float) -> _Vector:
        return _Vector(by * self.flat, by * self.cone)

    def dot(self, other: _Vector) -> float:
        return float(self.flat @ other.flat + (self.cone * other.cone).sum())

    def circle(self, other: _Vector) -> _Vector:
        """The product of the cones' algebra."""
        a, b = self.cone, other.cone
        first = (a * b).sum(axis=1)
        return _Vector(self.flat * other.flat, np.column_stack([first, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:]]))

    def under(self, other: _Vector) -> _Vector:
        """What times this gives the other."""
        a, b = self.cone, other.cone
        first = (a[:, 0] * b[:, 0] - (a[:, 1:] * b[:, 1:]).sum(axis=1)) / _norm(a)
        return _Vector(
            other.flat / self.flat, np.column_stack([first, (b[:, 1:] - first[:, None] * a[:, 1:]) / a[:, :1]])
        )

    def lifted(self) -> _Vector:
        """Well inside the cones."""
        lack = max(-float(self.flat.min()), float((np.linalg.norm(self.cone[:, 1:], axis=1) - self.cone[:, 0]).max()))
        return (
            self if lack < 0 else _Vector(self.flat + 1.0 + lack, self.cone + (1.0 + lack) * np.array([1.0, 0.0, 0.0]))
        )

    def longest(self, step: _Vector) -> float:
        """How far along a step everything stays in its cone."""
        worst = float((step.flat / self.flat).min())
        far = 1.0 / -worst if worst < 0 else np.inf
        a, b, c = _norm(step.cone), (self.cone * step.cone * FLIP).sum(axis=1), _norm(self.cone)
        # c + 2 b t + a t^2 = 0 first at c / (sqrt(b^2 - a c) - b), if ever
        root = b * b - a * c
        with np.errstate(divide="ignore", invalid="ignore"):
            at = c / (np.sqrt(np.maximum(root, 0.0)) - b)
        at = np.where((root >= 0) & (at > 0), at, np.inf)
        return min(far, float(at.min()))


def _norm(cone: Matrix) -> Floats:
    """What is above 0 inside a cone."""
    length = np.linalg.norm(cone[:, 1:], axis=1)
    return np.asarray((cone[:, 0] - length) * (cone[:, 0] + length))


class _Scaling:
    """Nesterov and Todd's: with W as here, W z = s / W = `middle`."""

    def __init__(self, s: _Vector, z: _Vector) -> None:
        self.flat = np.sqrt(s.flat / z.flat)
        of_s, of_z = np.sqrt(_norm(s.cone)), np.sqrt(_norm(z.cone))
        bar_s, bar_z = s.cone / of_s[:, None], z.cone / of_z[:, None]
        half = np.sqrt((1.0 + (bar_s * bar_z).sum(axis=1)) / 2.0)
        self.axis = (bar_s + FLIP * bar_z) / (2.0 * half)[:, None]
        self.size = np.sqrt(of_s / of_z)
        turned = self.axis.copy()
        turned[:, 0] += 1.0
        self.turn = turned / np.sqrt(2.0 * turned[:, 0])[:, None]
        self.middle = self.times(z)

    def times(self, v: _Vector) -> _Vector:
        """W v."""
        cone = 2.0 * self.turn * (self.turn * v.cone).sum(axis=1)[:, None] - FLIP * v.cone
        return _Vector(self.flat * v.flat, self.size[:, None] * cone)

    def over(self, v: _Vector) -> _Vector:
        """W^-1 v."""
        return _Vector(v.flat / self.flat, self.over_cones(v.cone))

    def over_cones(self, cone: Matrix) -> Matrix:
        """W^-1 of the cones."""
        flipped = FLIP * self.turn
        cone = 2.0 * flipped * (flipped * cone).sum(axis=1)[:, None] - FLIP * cone
        return np.asarray(cone / self.size[:, None])


@dataclass(frozen=True, slots=True)
class _ConeMove:
    """A point, or a step: variables (by job, and the ratio), slacks, prices, the scale of all, the gap's slack."""

    y: Matrix
    ratio: float
    s: _Vector
    z: _Vector
    tau: float
    kappa: float

    def by(self, step: _ConeMove, length: float) -> _ConeMove:
        return _ConeMove(
            self.y + length * step.y, self.ratio + length * step.ratio, self.s + step.s * length,
            self.z + step.z * length, self.tau + length * step.tau, self.kappa + length * step.kappa,
        )  # fmt: skip

    def longest(self, step: _ConeMove) -> float:
        ends = [-one / by for one, by in ((self.tau, step.tau), (self.kappa, step.kappa)) if by < 0]
        return min(FARTHEST, self.s.longest(step.s), self.z.longest(step.z), *ends)


Find = Callable[[Matrix, float, _Vector], tuple[Matrix, float, _Vector]]


class _ConePath:
    """Least ratio with forth(y, ratio) + s = limit. Variables of a job are its fractions, then u."""

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
        self.limit = _Vector(np.concatenate([one.ravel() for one in free]), cone)
        self.rows = np.cumsum([n * self.pools, n, self.pools])
        self.lead = np.zeros((n, 3, self.pools + 1))
        self.lead[:, 0, :-1] = self.lead[:, 1, :-1] = self.rates
        self.lead[:, 0, -1], self.lead[:, 1, -1] = self.own, -self.own
        self.degree = len(self.limit.flat) + n

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

    def forth(self, y: Matrix, ratio: float) -> _Vector:
        x, u = y[:, :-1], y[:, -1]
        flat = (-self.bound * x).ravel(), (self.time * x).sum(axis=1), (self.pool * x).sum(axis=0)
        return _Vector(
            np.concatenate([*flat, self.wait * u - self.most * ratio]), -(self.lead @ y[:, :, None])[:, :, 0]
        )

    def back(self, z: _Vector) -> tuple[Matrix, float]:
        x, time, pool, wait = np.split(z.flat, self.rows)
        y = -(z.cone[:, None, :] @ self.lead)[:, 0]
        y[:, :-1] += -self.bound * x.reshape(self.n, self.pools) + self.time * time[:, None] + self.pool * pool
        y[:, -1] += self.wait * wait
        return y, -float(self.most @ wait)

    def solver(self, scaling: _Scaling) -> Find:
        """Of: back(dz) = (a, b), forth(dy) - W^2 dz = c.

        Unknown are dy and W dz, so that numbers of all sizes, which W has near the end, meet only as products. A job's
        part is inverted by itself; prices of pools and the ratio then follow from a few equations.
        """
        x, time, pool, wait = np.split(scaling.flat, self.rows)
        inverse = np.linalg.inv(self._part(x.reshape(self.n, self.pools), time, wait, scaling))
        edge = np.zeros((self.n, PART + self.pools, self.pools + 1))  # what jobs have to do with pools and ratio
        at = np.arange(self.pools)
        edge[:, at, at] = self.pool / pool
        edge[:, self.pools + 2, -1] = -self.most / wait
        spread = inverse @ edge
        meet = np.diag([-1.0] * self.pools + [0.0]) - np.einsum("jae,jaf->ef", edge, spread)
        size = 1.0 / np.sqrt(np.abs(meet).max(axis=1))
        meet = np.linalg.inv(meet * size[:, None] * size[None, :]) * size[:, None] * size[None, :]

        def roughly(a: Matrix, b: float, c: _Vector) -> tuple[Matrix, float, _Vector]:
            """With c and the answer in units of W."""
            of_x, of_time, of_pool, of_wait = np.split(c.flat, self.rows)
            bound = self.bound / x.reshape(self.n, self.pools)
            of_bound = of_x.reshape(self.n, self.pools)
            pull = np.column_stack([a[:, :-1] - bound * of_bound, a[:, -1], of_time, of_wait, c.cone])
            alone = (inverse @ pull[:, :, None])[:, :, 0]
            met = meet @ (np.append(of_pool, b) - np.einsum("jae,ja->e", edge, alone))
            found = alone - spread @ met
            y, rest = found[:, : self.pools + 1], found[:, self.pools + 1 :]
            less = -bound * y[:, :-1] - of_bound
            flat = np.concatenate([less.ravel(), rest[:, 0], met[:-1], rest[:, 1]])
            return y, float(met[-1]), _Vector(flat, rest[:, 2:])

        def find(a: Matrix, b: float, c: _Vector) -> tuple[Matrix, float, _Vector]:
            """Roughly, then what is still missing."""
            c = scaling.over(c)
            y, ratio, z = roughly(a, b, c)
            for _ in range(REFINED):
                by, by_ratio = self.back(scaling.over(z))
                dy, dr, dz = roughly(a - by, b - by_ratio, c - scaling.over(self.forth(y, ratio)) + z)
                y, ratio, z = y + dy, ratio + dr, z + dz
            return y, ratio, scaling.over(z)

        return find

    def _part(self, x: Matrix, time: Floats, wait: Floats, scaling: _Scaling) -> Cube:
        """The equations of each job: of its fractions and u, of its time, of its ratio, of its cone."""
        own = self.pools + 1  # variables
        part = np.zeros((self.n, PART + self.pools, PART + self.pools))
        at = np.arange(self.pools)
        part[:, at, at] = (self.bound / x) ** 2
        part[:, own, : self.pools] = self.time / time[:, None]
        part[:, own + 1, own - 1] = self.wait / wait
        for k in range(own):
            part[:, own + 2 :, k] = -scaling.over_cones(self.lead[:, :, k])
        part[:, :own, own:] = part[:, own:, :own].transpose(0, 2, 1)
        rows = np.arange(own, PART + self.pools)
        part[:, rows, rows] = -1.0
        return part

    def start(self) -> _ConeMove:
        """The smallest slacks and the smallest prices that fulfil their equations, lifted into the cones."""
        one = _Vector(np.ones(len(self.limit.flat)), np.repeat([[1.0, 0.0, 0.0]], self.n, axis=0))
        find = self.solver(_Scaling(one, one))
        nothing = self.limit * 0.0
        y, ratio, less = find(np.zeros((self.n, self.pools + 1)), 0.0, self.limit)
        _, _, z = find(np.zeros((self.n, self.pools + 1)), -self.cost, nothing)
        return _ConeMove(y, ratio, (less * -1.0).lifted(), z.lifted(), 1.0, 1.0)

    def off(self, at: _ConeMove) -> tuple[Matrix, float, _Vector, float]:
        """What is missing in the equations of variables, of the ratio, of rows, and of the gap."""
        y, ratio = self.back(at.z)
        rows = self.limit * at.tau - self.forth(at.y, at.ratio) - at.s
        return -y, -ratio - self.cost * at.tau, rows, -at.kappa - self.cost * at.ratio - self.limit.dot(at.z)

    def ahead(self, at: _ConeMove) -> _ConeMove:
        """One step: straight ahead to see how far that goes, then with so much centring, and the error corrected."""
        off_y, off_r, off_z, off_t = self.off(at)
        scaling = _Scaling(at.s, at.z)
        find, middle = self.solver(scaling), scaling.middle
        y1, r1, z1 = find(np.zeros_like(at.y), -self.cost, self.limit)
        turn = at.kappa / at.tau - self.cost * r1 - self.limit.dot(z1)

        def towards(share: float, aim: _Vector, aim_t: float) -> _ConeMove:
            pull = middle.under(aim)
            y2, r2, z2 = find(share * off_y, share * off_r, off_z * share - scaling.times(pull))
            tau = (aim_t / at.tau - share * off_t + self.cost * r2 + self.limit.dot(z2)) / turn
            y, ratio = y2 + tau * y1, r2 + tau * r1
            s = off_z * share + self.limit * tau - self.forth(y, ratio)  # by rows: W has numbers of all sizes
            return _ConeMove(y, ratio, s, z2 + z1 * tau, tau, (aim_t - at.kappa * tau) / at.tau)

        product, product_t = middle.circle(middle), at.kappa * at.tau
        first = towards(1.0, product * -1.0, -product_t)
        centring = max(LEAST_CENTRING, (1.0 - at.longest(first)) ** 3)
        mean = centring * (at.s.dot(at.z) + product_t) / (self.degree + 1.0)
        more = scaling.over(first.s).circle(scaling.times(first.z))
        one = _Vector(np.full(len(product.flat), mean), np.repeat([[mean, 0.0, 0.0]], self.n, axis=0))
        step = towards(1.0 - centring, one - product - more, mean - product_t - first.kappa * first.tau)
        return at.by(step, NEARLY * at.longest(step))

    def follow(self) -> Matrix:
        """From the starting point until equations and gap are within the tolerance, or numbers no longer tell."""
        here = best = self.start()
        least, since = np.inf, 0
        of_limit = max(1.0, np.sqrt(self.limit.dot(self.limit)))
        for at in range(STEPS):
            off_y, off_r, off_z, _ = self.off(here)
            gap = here.s.dot(here.z) / here.tau / max(here.tau, abs(self.cost * here.ratio))
            off = max(np.sqrt(off_z.dot(off_z)) / of_limit, np.sqrt((off_y**2).sum() + off_r**2)) / here.tau
            if max(off, gap) < least:
                best, least, since = here, max(off, gap), at
            if least <= TOLERANCE or at - since > PATIENCE:
                break
            try:
                with np.errstate(divide="ignore", invalid="ignore"):
                    here = self.ahead(here)
            except np.linalg.LinAlgError:
                break
            if not np.isfinite(here.tau):
                break
        return np.asarray(best.y[:, :-1] / best.tau / self.column)


def finish_time(problem: Problem, fair_s: Floats) -> Matrix:
    """Fractions with the smallest largest ratio of finish times, where the solver stops."""
    return _ConePath(problem, fair_s).follow()
