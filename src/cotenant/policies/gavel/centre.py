"""Which of many optimal fractions the released Gavel code gets for finish-time fairness: the centre of all of them.

One job that is already at full speed often sets the largest ratio, and every division that does not slow it down is
then optimal. An interior-point solver ends at the analytic centre of these: where the product of all slacks is largest
(Boyd and Vandenberghe, Convex Optimization, 2004, chapter 11). The released code states the ratio of a job with rate E
as (age + left u) / fair with E u >= 1, a second-order cone, which counts half of what a linear slack counts; with the
best u inside, a job whose ratio may be m adds 1.5 log(E U - 1) - log E, where U = (m fair - age) / left.

A barrier method by Newton's steps. Jobs meet only in the pools and in m, so a step takes time linear in their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.rounds.problem import Problem

GAP = 1e-7  # relative, of the ratio
FASTER = 0.03  # by what the weight of the barrier falls from one centre to the next
NEARLY = 0.95  # of the way to where a slack reaches 0
STEPS = 200
ROUGH, SETTLED = 0.3, 1e-6  # what another step may gain at most, on the way and at the end
CONE = 1.5  # a linear slack, and half of one for the cone


@dataclass(frozen=True, slots=True)
class _Point:
    """Fractions and the largest ratio, with all slacks: all of them above 0."""

    x: Matrix
    ratio: float
    rate: Floats
    bound: Floats  # U
    spare: Floats  # time that a job is not served
    room: Floats  # GPUs that a pool has left

    @property
    def product(self) -> Floats:
        """E U - 1."""
        return self.rate * self.bound - 1.0

    def inside(self) -> bool:
        slacks = (self.x, self.bound, self.spare, self.room, self.product)
        return all(float(one.min()) > 0 for one in slacks)

    def barrier(self) -> float:
        """The less, the farther from all walls."""
        walls = np.log(self.x).sum() + np.log(self.spare).sum() + np.log(self.room).sum()
        return -float(walls + CONE * np.log(self.product).sum() - np.log(self.rate).sum())


class _Centre:
    def __init__(self, problem: Problem, fair_s: Floats) -> None:
        self.rates, self.gangs = problem.rates, problem.gangs.astype(np.float64)
        self.capacity, self.age_s, self.left_s, self.fair_s = problem.capacity, problem.age_s, problem.left_s, fair_s

    def at(self, x: Matrix, ratio: float) -> _Point:
        rate = (self.rates * x).sum(axis=1)
        bound = (ratio * self.fair_s - self.age_s) / self.left_s
        return _Point(x, ratio, rate, bound, 1.0 - x.sum(axis=1), self.capacity - self.gangs @ x)

    def start(self, x: Matrix) -> _Point:
        """Well inside: most of an even share, and twice the worst ratio there."""
        inside = 0.9 * x
        rate = (self.rates * inside).sum(axis=1)
        return self.at(inside, 2.0 * float(((self.age_s + self.left_s / rate) / self.fair_s).max()))

    def step(self, at: _Point, weight: float) -> tuple[Matrix, float, float]:
        """Newton's step for ratio / weight + barrier, and how much that gains at most."""
        product, slope = at.product, self.fair_s / self.left_s
        by_rate, by_ratio = CONE * at.bound / product - 1.0 / at.rate, CONE * at.rate * slope / product
        wall = -1.0 / at.x + 1.0 / at.spare[:, None] + self.gangs[:, None] / at.room[None, :]
        pull = -(wall - by_rate[:, None] * self.rates)
        pull_ratio = -(1.0 / weight - float(by_ratio.sum()))
        bend = CONE * (at.bound / product) ** 2 - 1.0 / at.rate**2
        part = self.rates * at.x  # in units of x, so that numbers of all sizes meet the same 1
        blocks = bend[:, None, None] * part[:, :, None] * part[:, None, :]
        blocks += (1.0 / at.spare**2)[:, None, None] * at.x[:, :, None] * at.x[:, None, :]
        blocks += np.eye(len(self.capacity))
        cross = (CONE * slope / product**2)[:, None] * self.rates
        inverse = np.linalg.inv(blocks) * at.x[:, :, None] * at.x[:, None, :]
        # columns: what is pulled, what the ratio pulls, and the pools, which tie the jobs together
        pulled, tied = (np.einsum("jab,jb->ja", inverse, one) for one in (pull, cross))
        used = inverse * self.gangs[:, None, None]  # [j, a, k]: answer to a pull by pool k
        meet = np.linalg.inv(np.diag(at.room**2) + np.einsum("j,jak->ak", self.gangs, used))
        pulled -= used @ (meet @ (self.gangs @ pulled))
        tied -= used @ (meet @ (self.gangs @ tied))
        own = float((CONE * (at.rate * slope / product) ** 2).sum()) - float((cross * tied).sum())
        ratio = (pull_ratio - float((cross * pulled).sum())) / own
        move = pulled - ratio * tied
        return move, ratio, float((pull * move).sum()) + pull_ratio * ratio

    def follow(self, at: _Point) -> Matrix:
        """Centre after centre, with less and less weight on the walls."""
        walls = at.x.size + len(at.room) + 3 * len(at.spare)
        weight, left = at.ratio / walls, STEPS
        while left:
            last = walls * weight < GAP * at.ratio
            at, left = self._settle(at, weight, left, SETTLED if last else ROUGH)
            if last:
                break
            weight *= FASTER
        return at.x

    def _settle(self, at: _Point, weight: float, left: int, enough: float) -> tuple[_Point, int]:
        """Newton's steps until another would gain next to nothing."""
        value = at.ratio / weight + at.barrier()
        while left:
            left -= 1
            try:
                move, ratio, gain = self.step(at, weight)
            except np.linalg.LinAlgError:  # numbers no longer tell
                return at, 0
            if not gain > enough:
                break
            length = 1.0
            while length > 1e-9:
                there = self.at(at.x + length * move, at.ratio + length * ratio)
                if there.inside() and (new := there.ratio / weight + there.barrier()) < value - 0.1 * length * gain:
                    at, value = there, new
                    break
                length *= 0.5
            else:
                break
        return at, left


def finish_time(problem: Problem, fair_s: Floats) -> Matrix:
    """Fractions with the smallest largest ratio of finish times, in the middle of all such fractions."""
    centre = _Centre(problem, fair_s)
    return centre.follow(centre.start(problem.isolated))
