"""Max-min and its relatives by prices instead of a program.

At prices p >= 0 per GPU with p . capacity = 1, let C(theta, p) be what it costs to give every job its required rate
r_i(theta), each job in its cheapest way. theta can be had if and only if C(theta, p) <= 1 at all prices, so every p
with C > 1 proves a bound. Required rates are `work * theta` (theta wanted large: max-min, deadlines, makespan by
its inverse) or `work / (span * theta - elapsed)` (theta wanted small: finish-time fairness). In both cases C is convex
along theta on the side that cannot be had, so Newton's steps from there never overshoot: every iterate is a bound.

The answers found at past prices are kept as columns (GPUs used per type). A column found at a bound that has been
tightened since still meets every requirement, shrunk in proportion where requirements are linear. Mixing columns so
that the fullest type is least full (`small_lp.play`) gives z: the mix divided by max(1, z) is feasible and within
z - 1 of the bound. That is the certificate, and it costs nothing per job. Where to ask next: the centroid of the
prices not yet excluded (one to three types), or the prices of the mixing program, half-way from the best known
(four and more).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cotenant.solvers.answer import Answer, Floats, Instance, relative_gap
from cotenant.solvers.compiled import worth_compiling
from cotenant.solvers.errors import OutOfTime, SolverBudget, SolverError
from cotenant.solvers.need import Need
from cotenant.solvers.polygon import Polygon
from cotenant.solvers.price_kernels import responder
from cotenant.solvers.small_lp import play

MOST_STEPS = 400
KEPT_COLUMNS = 60
_NEAR = 0.02


class NotCertified(SolverError):
    """The search ended before its certificate was within the tolerance."""


def solve(
    inst: Instance, need: Need, *, counts: Floats | None = None, tol: float = 1e-6, budget: SolverBudget | None = None,
    warm: Floats | None = None,
) -> Answer:  # fmt: skip
    """Best theta with its certificate. `counts`: how many equal jobs a row stands for; `warm`: earlier prices."""
    budget = budget or SolverBudget()
    search = _Search(inst, need, counts)
    budget.forgive(search.compile_s)
    if not len(search.rows) or not search.types.any():
        return Answer.nothing(inst, need.idle, "prices", budget.spent_s)
    certified = search.run(tol, budget, warm)
    answer = search.answer(budget)
    if not certified and answer.gap > tol:
        if budget.over:
            raise OutOfTime(f"prices: gap {answer.gap:.1e} after {budget.budget_s:g} s", answer)
        raise NotCertified(f"prices: gap {answer.gap:.1e} after {search.steps} steps")
    return answer


@dataclass(slots=True)
class _Columns:
    """Answers at past prices."""

    price: list[Floats] = field(default_factory=list)
    theta: list[float] = field(default_factory=list)
    usage: list[Floats] = field(default_factory=list)
    mix: Floats = field(default_factory=lambda: np.zeros(0))

    def add(self, q: Floats, theta: float, usage: Floats) -> None:
        self.price.append(q)
        self.theta.append(theta)
        self.usage.append(usage)

    def drop_old(self) -> None:
        """Forget the oldest ones that the last mix did not use."""
        over = len(self.price) - KEPT_COLUMNS
        if over <= 0:
            return
        unused = [k for k in range(len(self.price)) if k >= len(self.mix) or self.mix[k] <= 0.0][:over]
        for k in reversed(unused):
            del self.price[k], self.theta[k], self.usage[k]
        self.mix = np.delete(self.mix, [k for k in unused if k < len(self.mix)])


def bound_with_sharing(inst: Instance, need: Need, shared: Floats, *, tol: float = 1e-4) -> float:
    """A theta that no space sharing can beat: as if each job found its best partner everywhere.

    `shared[i, j]` is the best rate of job i beside anybody on type j; two that share pay half the GPUs each.
    """
    both = Instance(
        np.hstack([inst.rates, shared]),
        inst.gangs,
        inst.capacity,
        np.maximum(inst.best, shared.max(axis=1, initial=0.0)),
    )
    search = _Search(both, need, None, halves=True)
    if len(search.rows) and search.types.any():
        search.run(tol, SolverBudget(), None)
    return search.theta


class _Search:
    """One search over prices. With `halves` the second half of the rates is for half of the GPUs."""

    def __init__(self, inst: Instance, need: Need, counts: Floats | None, *, halves: bool = False) -> None:
        self.inst = inst
        self.need = need
        self.rows = np.flatnonzero((need.work > 0.0) & (inst.best > 0.0))
        self.halves = halves
        wanted = inst.rates[self.rows].max(axis=0, initial=0.0) > 0.0
        if halves:
            wanted = wanted[: len(inst.capacity)] | wanted[len(inst.capacity) :]
        self.types = (inst.capacity > 0.0) & wanted
        columns = np.tile(self.types, 2) if halves else self.types
        whole = len(self.rows) == len(need.work) and columns.all()
        self.a = inst.rates if whole else np.ascontiguousarray(inst.rates[np.ix_(self.rows, columns)])
        self.capacity = inst.capacity[self.types]
        mass = inst.gangs if counts is None else inst.gangs * counts
        self.mass = mass[self.rows]
        self.top = inst.best[self.rows]
        self.work = need.work[self.rows]
        self.active = need.take(self.rows)
        self.span = self.work if self.active.span is None else self.active.span
        self.elapsed = self.work if self.active.elapsed is None else self.active.elapsed
        self.theta = self.active.attained(self.top)  # the bound set by the jobs alone, all GPUs for each
        self.columns = _Columns()
        self.steps = 0
        self.best_price = np.zeros(len(self.capacity))
        self.z = np.inf
        began = time.perf_counter()
        self.respond = responder(worth_compiling(self.a.size))
        self.compile_s = time.perf_counter() - began
        self._sums = np.zeros(2)

    def evaluate(self, theta: float, q: Floats, x: Floats | None = None) -> tuple[float, float, Floats]:
        """Cost and its derivative at prices q / capacity, and the share of each type in use."""
        p = q / self.capacity
        if self.halves:
            p = np.concatenate([p, p / 2.0])
        usage = np.zeros(len(p))
        self.respond(
            self.a, self.mass, self.top, self.work, self.span, self.elapsed, self.need.falling, theta, p, usage,
            self._sums, np.zeros((0, len(p))) if x is None else x,
        )  # fmt: skip
        if self.halves:
            usage = usage[: len(q)] + usage[len(q) :] / 2.0
        return float(self._sums[0]), float(self._sums[1]), usage / self.capacity

    def step(self, q: Floats, precision: float) -> None:
        """Ask at prices q: tighten the bound if they prove a better one, and keep the answer as a column."""
        self.steps += 1
        cost, slope, usage = self.evaluate(self.theta, q)
        improved = False
        for _ in range(60):
            if cost <= 1.0 + precision or slope == 0.0:
                break
            theta = self.theta - (cost - 1.0) / slope
            if theta == self.theta:
                break
            self.theta = theta
            improved = True
            cost, slope, usage = self.evaluate(theta, q)
        if improved or not self.columns.price:
            self.best_price = q
        self.columns.add(q, self.theta, usage)

    def known(self) -> Floats:
        """Usage (types x columns) of the kept answers at today's bound."""
        usage = np.array(self.columns.usage).T
        if not self.need.falling:
            usage = usage * (self.theta / np.array(self.columns.theta))
        return usage

    def certify(self) -> Floats:
        """Mix the columns; gives the prices at which the mix is dearest."""
        self.columns.drop_old()
        self.z, self.columns.mix, q = play(self.known())
        return q

    def run(self, tol: float, budget: SolverBudget, warm: Floats | None) -> bool:
        """Search until the certificate is within `tol`; whether it is."""
        precision = min(tol * 0.05, 1e-4)
        start = self._starts(warm)
        for q in start:
            self.step(q, precision)
            if self.certify() is not None and self.z <= 1.0 + tol:
                return True
            if budget.over:
                return False
        ask = self._polygon if len(self.capacity) in (2, 3) else self._kelley
        for q in ask(tol):
            self.step(q, precision)
            if budget.over or self.steps >= MOST_STEPS:
                break
        self.certify()
        return self.z <= 1.0 + tol

    def _starts(self, warm: Floats | None) -> list[Floats]:
        types = len(self.capacity)
        even = np.full(types, 1.0 / types)
        if warm is None or len(warm) != len(self.inst.capacity):
            return [even]
        q = np.maximum(warm[self.types] * self.capacity, 0.0)
        if types == 1 or not np.isfinite(q).all() or q.sum() <= 0.0:
            return [even]
        q = q / q.sum()
        return [q] + [(1.0 - _NEAR) * q + _NEAR * corner for corner in np.eye(types)]

    def _polygon(self, tol: float) -> Iterator[Floats]:
        """Centroids of the prices that could still improve the bound."""
        while True:
            self.certify()
            if self.z <= 1.0 + tol:
                return
            region = Polygon(len(self.capacity))
            for g in self.known().T - 1.0:
                region.cut(g)
            q = region.centroid()
            if q is None:
                q = self.certify()
            yield q

    def _kelley(self, tol: float) -> Iterator[Floats]:
        """Prices of the mixing program, half-way from the kept price at which the bound is dearest."""
        before = np.inf
        while True:
            q = self.certify()
            if self.z <= 1.0 + tol:
                return
            yield q if self.z >= before else 0.5 * (q + self.best_price)
            before = self.z

    def answer(self, budget: SolverBudget) -> Answer:
        """The mix as fractions, divided by what it exceeds the capacity."""
        part = np.zeros(self.a.shape)
        one = np.zeros(self.a.shape)
        total = np.zeros(self.a.shape)
        for k in np.flatnonzero(self.columns.mix > 0.0):
            theta = self.columns.theta[k]
            self.evaluate(theta, self.columns.price[k], one)
            scale = 1.0 if self.need.falling else self.theta / theta
            np.multiply(one, self.columns.mix[k] * scale, out=part)
            total += part
        total /= max(1.0, self.z)
        value = self.active.attained(np.einsum("ij,ij->i", self.a, total))
        x = np.zeros(self.inst.rates.shape)
        x[np.ix_(self.rows, self.types)] = total
        bound = self.theta
        if (value > bound) != self.need.falling:
            if relative_gap(value, bound) > 1e-9:
                raise NotCertified(f"prices: bound {bound:.9g} is beaten by {value:.9g}")
            bound = value  # rounding
        gap = relative_gap(value, bound)
        return Answer(x, value, bound, self.prices(), "prices", budget.spent_s, gap, self.inst.left_out)

    def prices(self) -> Floats:
        """Per GPU of each type of the whole instance."""
        out = np.zeros(len(self.inst.capacity))
        out[self.types] = self.best_price / self.capacity
        return out
