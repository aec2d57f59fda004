"""Hierarchical water-filling: raise everybody by weight until somebody cannot rise, fix that one, go on.

Gavel (OSDI'20), section 4.3. Entities (tenants) have weights; inside one, jobs share by their own weights
("fairness") or the first unfinished job by number takes all ("fifo"). The level of a job is its rate over the one it
would have if it ran on every type in proportion to its size, and weights count per GPU of the gang.

A job is fixed when it alone cannot be raised while all others keep what they have. That is decided exactly, without
large constants: jobs whose row has a positive dual are fixed; for the rest one program lifts as many as it can by a
little. If each of some jobs can be raised alone, the average of those answers raises all of them together, so a job
that is still on the ground when no program can lift any more cannot rise. Floors only go up: whoever cannot rise now
never will, also if it is not its turn yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cotenant.solvers.answer import Answer, Floats, Instance, Ints, check_feasible, column, excess, instance
from cotenant.solvers.errors import Budget, SolverError
from cotenant.solvers.kinds import classes
from cotenant.solvers.lp_reference import Model, model
from cotenant.solvers.program import Solution

Mask = NDArray[np.bool_]

_LIFT = 1e-3
_LIFTED = 1e-7


@dataclass(frozen=True, slots=True)
class Levels:
    """Who is raised how fast."""

    weights: Floats
    entity: Ints
    entity_weights: Floats
    fifo: bool
    gangs: Floats
    counts: Floats

    def speeds(self, fixed: Mask) -> Floats:
        """Rise of each job per unit of the common level."""
        open_ = np.where(fixed, 0.0, self.weights)
        if self.fifo:
            speed = np.zeros(len(open_))
            waiting = np.flatnonzero(open_ > 0.0)
            _, first = np.unique(self.entity[waiting], return_index=True)
            head = waiting[first]
            speed[head] = self.entity_weights[self.entity[head]]
        elif len(self.entity_weights):
            total = np.bincount(self.entity, open_ * self.counts, len(self.entity_weights))
            share = np.where(total > 0.0, self.entity_weights / np.where(total > 0.0, total, 1.0), 0.0)
            speed = open_ * share[self.entity]
        else:
            speed = open_
        return np.asarray(speed / self.gangs)


def hierarchical(
    rates: ArrayLike,
    gangs: ArrayLike,
    capacity: ArrayLike,
    weights: ArrayLike | None = None,
    entity: ArrayLike | None = None,
    entity_weights: ArrayLike | None = None,
    *,
    inner: str = "fairness",
    budget_s: float = float("inf"),
) -> Answer:
    """Water-filling to the end. Without `entity` all jobs stand side by side. `value` is the smallest level."""
    budget = Budget(budget_s)
    if inner not in ("fairness", "fifo"):
        raise SolverError(f"inner policy '{inner}': use fairness or fifo")
    inst = instance(rates, gangs, capacity)
    n = len(inst.gangs)
    weight = np.where(inst.best > 0.0, column(weights, n, "weights"), 0.0)
    if entity is None and inner == "fifo":
        entity = np.zeros(n, dtype=np.int64)
    group = np.zeros(n, dtype=np.int64) if entity is None else np.asarray(entity, dtype=np.int64)
    if entity_weights is not None:
        between = column(entity_weights, np.size(entity_weights), "entity_weights")
    else:
        between = np.ones(0 if entity is None else int(group.max(initial=-1)) + 1)
    if not (weight > 0.0).any():
        return Answer(np.zeros(inst.rates.shape), 0.0, 0.0, np.zeros(len(inst.capacity)), "water-filling", 0.0, 0.0)
    fifo = inner == "fifo"
    own = np.arange(n) if fifo else np.zeros(n)
    alike = classes(own, group, weight, inst.gangs, inst.rates)
    first = alike.first
    part = Instance(inst.rates[first], inst.gangs[first] * alike.counts, inst.capacity, inst.best[first])
    levels = Levels(weight[first], group[first], between, fifo, inst.gangs[first], alike.counts)
    x, level, rounds = _fill(part, levels, budget)
    smallest = float(level[weight[first] > 0.0].min())
    found = Answer(
        x[alike.of],
        smallest,
        smallest,
        np.zeros(len(inst.capacity)),
        f"water-filling in {rounds} levels",
        budget.spent_s,
        0.0,
        inst.left_out,
    )
    return check_feasible(found, inst)


def _fill(inst: Instance, levels: Levels, budget: Budget) -> tuple[Floats, Floats, int]:
    """Fractions, final levels and the number of rounds."""
    total = float(inst.capacity.sum())
    even = inst.rates @ (inst.capacity / total)
    scaled = Instance(inst.rates / np.where(even > 0.0, even, 1.0)[:, None], inst.gangs, inst.capacity, inst.best)
    n = len(even)
    built = model(scaled)
    program = built.program
    rise = int(program.add_columns(1)[0])
    lift = program.add_columns(n, upper=0.0)
    program.add_entries(built.rate_rows, lift, -1.0)
    program.add_entries(built.rate_rows, rise, -1.0)  # set in every round
    program.build()
    fixed = levels.weights <= 0.0
    floor = np.zeros(n)
    before = np.full(n, np.nan)
    rounds = 0
    x = np.zeros(inst.rates.shape)
    while not fixed.all():
        rounds += 1
        speed = levels.speeds(fixed)
        if not (speed > 0.0).any():  # entities without weight
            break
        for i in np.flatnonzero(speed != before):
            program.set_entry(built.rate_rows[i], rise, -speed[i])
        before = speed
        program.set_row_bounds(built.rate_rows, _eased(floor), np.inf)
        program.set_column_bounds(np.array([rise]), 0.0, np.inf)
        program.set_column_bounds(lift, 0.0, 0.0)
        program.set_cost(np.array([rise]), 1.0)
        program.set_cost(lift, 0.0)
        solution = program.solve(budget)
        step = max(float(solution.x[rise]), 0.0)
        x = _inside(built, solution)
        floor = np.minimum(floor + step * speed, _level_of(built, x))  # what x keeps, the next program can keep
        tight = (np.abs(solution.row_duals[built.rate_rows]) > 1e-7) & (speed > 0.0) & ~fixed
        asked = ~fixed & ~tight
        if step * float(speed.max()) > _LIFTED:  # while others rise, nobody asks about those whose turn has not come
            asked &= speed > 0.0
        stuck, x = _stuck(built, rise, lift, floor, asked, x, budget)
        newly = tight | stuck
        if not newly.any():
            raise SolverError("water-filling: a level raised nobody to the top")
        fixed = fixed | newly
    return x, floor, rounds


def _stuck(
    built: Model, rise: int, lift: Ints, floor: Floats, asked: Mask, x: Floats, budget: Budget
) -> tuple[Mask, Floats]:
    """Which of the jobs asked for cannot be raised above their floor; and fractions that keep all floors."""
    program = built.program
    program.set_row_bounds(built.rate_rows, _eased(floor), np.inf)
    program.set_column_bounds(np.array([rise]), 0.0, 0.0)
    program.set_cost(np.array([rise]), 0.0)
    asked = asked.copy()
    while asked.any():
        program.set_column_bounds(lift, 0.0, np.where(asked, _LIFT, 0.0))
        program.set_cost(lift, np.where(asked, 1.0, 0.0))
        solution = program.solve(budget)
        x = _inside(built, solution)
        lifted = asked & (solution.x[lift] > _LIFTED)
        if not lifted.any():
            break
        asked &= ~lifted
    return asked, x


def _inside(built: Model, solution: Solution) -> Floats:
    """Fractions of a solution, drawn in by what rounding let them exceed."""
    x = built.read(solution)[0]
    return np.asarray(x / (1.0 + max(0.0, *excess(x, built.inst.gangs, built.inst.capacity))))


def _level_of(built: Model, x: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", built.inst.rates, x))


def _eased(floor: Floats) -> Floats:
    """Floors that rounding cannot make unreachable."""
    return np.asarray(floor - 1e-12 * (1.0 + floor))
