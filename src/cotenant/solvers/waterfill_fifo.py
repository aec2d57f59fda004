"""Water-filling in which the first unfinished job of each entity takes all: many small programs, none over all jobs.

Only the first jobs rise, and only those that have something set limits to them. Of these most are at their top: all the
time on the fastest type that is not yet full of such jobs. They have no other place, so they and their GPUs leave the
problem, and a type whose GPUs have all left is closed to the others. What remains is the first job of each entity and
those that stand in between, alike ones together. Once nobody rises any more, one probe per type finds out where no GPU
can be had, however the others move; jobs that can run only there are done without a program of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.solvers.answer import Floats, Instance, Ints
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.water_level import LIFTED, Mask, Water

_SAME = 1e-9
_ALIKE = 1e-7  # floors nearer than this are one


@dataclass(slots=True)
class _Rest:
    """What is still open: GPUs per type; of all jobs fractions and floors, who is fixed, and who has left."""

    inst: Instance
    room: Floats
    x: Floats
    floor: Floats
    fixed: Mask
    left: Mask
    kind: Ints  # equal for jobs with the same rates and gang

    def inside(self) -> Ints:
        """Jobs that have something to keep and could keep it elsewhere."""
        return np.flatnonzero((self.floor > 0.0) & ~self.left)

    def rates(self, jobs: Ints) -> Floats:
        """Levels per type, 0 on types without GPUs."""
        return np.where(self.room[None, :] > 0.0, self.inst.rates[jobs], 0.0)

    def alike(self, heads: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Who is in the program: all jobs, the group of each, the first job of each group, and how many it has.

        Fixed jobs of one kind with the same floor are one group, with fractions of their mean.
        """
        jobs = np.union1d(self.inside(), heads)
        own = np.where(self.fixed[jobs], -1, jobs)
        keys = np.stack([own, self.kind[jobs], np.round(self.floor[jobs] / _ALIKE).astype(np.int64)])
        _, first, of, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
        of = of.ravel()
        least = np.full(len(first), np.inf)
        np.minimum.at(least, of, self.floor[jobs])
        self.floor[jobs] = least[of]
        return jobs, of, jobs[first], counts

    def water(self, jobs: Ints, counts: Ints, budget: SolverBudget, probes: int = 0) -> Water:
        """The program of so many of these jobs, and of a probe for each type that asks for one GPU of it."""
        rates = np.concatenate([self.rates(jobs), np.eye(len(self.room))[:probes] * (self.room > 0.0)])
        gangs = np.concatenate([self.inst.gangs[jobs] * counts, np.ones(probes)])
        return Water(Instance(rates, gangs, self.room, rates.max(axis=1, initial=0.0)), budget, presolve=False)

    def keep(self, jobs: Ints, x: Floats, floor: Floats) -> None:
        """New fractions and floors, less what rounding took from the former: some may leave with theirs."""
        self.x[jobs] = x
        self.floor[jobs] = np.minimum(floor, np.einsum("ij,ij->i", self.inst.rates[jobs], x))

    def lead(self, heads: Ints, speed: Floats) -> bool:
        """Let these rise on the fastest type of each until one has all the time there, if the others leave the room.

        Nobody can rise further then, however the others move: that is the level that the program would find.
        """
        rates = self.rates(heads)
        best, top = rates.argmax(axis=1), rates.max(axis=1)
        floor = self.floor[heads] + speed * ((top - self.floor[heads]) / speed).min()
        x = np.zeros(rates.shape)
        x[np.arange(len(heads)), best] = np.minimum(floor / top, 1.0)
        others = np.setdiff1d(self.inside(), heads)
        if (self.inst.gangs[heads] @ x + self.inst.gangs[others] @ self.x[others] > self.room).any():
            return False
        self.keep(heads, x, floor)
        self.fixed[heads] |= floor >= top * (1 - _SAME)
        return True

    def leave(self) -> None:
        """Let those at their top leave, with what they have now, until nobody is."""
        while True:
            jobs = self.inside()
            jobs = jobs[self.fixed[jobs]]
            rates = self.rates(jobs)
            top = rates.max(axis=1, initial=0.0) * (1 - _SAME)
            gone = jobs[(self.floor[jobs] >= top) & ((rates >= top[:, None]).sum(axis=1) == 1)]
            if not len(gone):
                return
            best = self.rates(gone).argmax(axis=1)
            kept = self.x[gone, best]
            self.x[gone] = 0.0
            self.x[gone, best] = kept
            self.left[gone] = True
            np.subtract.at(self.room, best, self.inst.gangs[gone] * kept)
            self._shut(self.room <= _SAME * self.inst.capacity)

    def _shut(self, types: Mask) -> None:
        """Close types that have no more than rounding left; whoever has some of that gives it up."""
        self.room[types] = 0.0
        jobs = self.inside()
        self.keep(jobs, np.where(types[None, :], 0.0, self.x[jobs]), self.floor[jobs])


def fill_in_order(
    inst: Instance, able: Mask, entity: Ints, entity_weights: Floats, budget: SolverBudget
) -> tuple[Floats, Floats, int]:
    """Fractions, final levels and the number of rounds. `inst.rates` are levels; `able` says who takes part.

    Types that are the same to everybody are one, of which each has its part.
    """
    _, first, of = np.unique(inst.rates, axis=1, return_index=True, return_inverse=True)
    of = of.ravel()
    capacity: Floats = np.bincount(of, inst.capacity, len(first)).astype(np.float64)
    merged = Instance(inst.rates[:, first], inst.gangs, capacity, inst.best)
    x, floor, rounds = _fill(merged, able, entity, entity_weights, budget)
    return x[:, of] * (inst.capacity / np.where(capacity > 0.0, capacity, 1.0)[of]), floor, rounds


def _fill(
    inst: Instance, able: Mask, entity: Ints, entity_weights: Floats, budget: SolverBudget
) -> tuple[Floats, Floats, int]:
    n = len(inst.gangs)
    nobody = np.zeros(n, bool)
    kind = np.unique(np.column_stack([inst.rates, inst.gangs]), axis=0, return_inverse=True)[1].ravel()
    rest = _Rest(inst, inst.capacity.copy(), np.zeros(inst.rates.shape), np.zeros(n), ~able, nobody, kind)
    rest.fixed |= entity_weights[entity] <= 0.0
    rounds = 0
    while True:
        waiting = np.flatnonzero(~rest.fixed)
        waiting = waiting[rest.rates(waiting).max(axis=1, initial=0.0) > 0.0]
        if not len(waiting):
            return rest.x, rest.floor, rounds
        rounds += 1
        heads = waiting[np.unique(entity[waiting], return_index=True)[1]]
        if rest.lead(heads, entity_weights[entity[heads]] / inst.gangs[heads]):
            rest.leave()
            continue
        jobs, of, first, counts = rest.alike(heads)
        rises = ~rest.fixed[first]
        speed = np.where(rises, entity_weights[entity[first]] / inst.gangs[first], 0.0)
        level = rest.water(first, counts, budget).rise(speed, rest.floor[first], ~rises, enough=True)
        if not level.fixed.any():
            raise SolverError("water-filling: a level raised nobody to the top")
        rest.keep(jobs, level.x[of], level.floor[of])
        rest.fixed[first[level.fixed]] = True
        rest.fixed[heads] |= rest.floor[heads] >= rest.rates(heads).max(axis=1) * (1 - _SAME)
        if level.step * float(speed.max()) <= LIFTED:
            _close(rest, budget)
        rest.leave()


def _close(rest: _Rest, budget: SolverBudget) -> None:
    """Fix all who can run only where no GPU can be had while everybody keeps what it has."""
    jobs, of, first, counts = rest.alike(np.zeros(0, np.int64))
    types = len(rest.room)
    floor = np.concatenate([rest.floor[first], np.zeros(types)])
    probes = np.arange(len(floor)) >= len(first)
    stuck, x = rest.water(first, counts, budget, types).stuck(floor, probes, np.zeros((len(floor), types)))
    rest.keep(jobs, x[: len(first)][of], rest.floor[jobs])
    waiting = np.flatnonzero(~rest.fixed & (rest.floor == 0.0))
    open_ = rest.rates(waiting)[:, ~stuck[len(first) :]]
    rest.fixed[waiting[open_.max(axis=1, initial=0.0) <= 0.0]] = True
