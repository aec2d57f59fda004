"""Hierarchical water-filling: raise everybody by weight until somebody cannot rise, fix that one, go on.

Gavel (OSDI'20), section 4.3. Entities (tenants) have weights; inside one, jobs share by their own weights
("fairness") or the first unfinished job by number takes all ("fifo"). The level of a job is its rate over the one it
would have if it ran on every type in proportion to its size, and weights count per GPU of the gang.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers.answer import Answer, Floats, Instance, Ints, check_feasible, column, instance
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.kinds import classes
from cotenant.solvers.water_level import Mask, Water
from cotenant.solvers.waterfill_fifo import fill_in_order


@dataclass(frozen=True, slots=True)
class Levels:
    """Who is raised how fast."""

    weights: Floats
    entity: Ints
    entity_weights: Floats
    gangs: Floats
    counts: Floats

    def speeds(self, fixed: Mask) -> Floats:
        """Rise of each job per unit of the common level."""
        open_ = np.where(fixed, 0.0, self.weights)
        if len(self.entity_weights):
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
    budget = SolverBudget(budget_s)
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
        return Answer.nothing(inst, 0.0, "water-filling", 0.0, np.zeros(0, np.int64))
    if inner == "fifo":
        x, level, rounds = fill_in_order(_as_levels(inst), weight > 0.0, group, between, budget)
        level = level[weight > 0.0]
    else:
        alike = classes(np.zeros(n), group, weight, inst.gangs, inst.rates)
        first = alike.first
        part = Instance(inst.rates[first], inst.gangs[first] * alike.counts, inst.capacity, inst.best[first])
        levels = Levels(weight[first], group[first], between, inst.gangs[first], alike.counts)
        x, level, rounds = _fill(_as_levels(part), levels, budget)
        x, level = x[alike.of], level[weight[first] > 0.0]
    smallest = float(level.min())
    method, no_prices = f"water-filling in {rounds} levels", np.zeros(len(inst.capacity))
    found = Answer(x, smallest, smallest, no_prices, method, budget.spent_s, 0.0, inst.left_out)
    return check_feasible(found, inst)


def _fill(inst: Instance, levels: Levels, budget: SolverBudget) -> tuple[Floats, Floats, int]:
    """Fractions, final levels and the number of rounds. `inst.rates` are levels."""
    water = Water(inst, budget)
    fixed = levels.weights <= 0.0
    floor = np.zeros(len(fixed))
    x = np.zeros(inst.rates.shape)
    rounds = 0
    while not fixed.all():
        rounds += 1
        speed = levels.speeds(fixed)
        if not (speed > 0.0).any():  # entities without weight
            break
        level = water.rise(speed, floor, fixed)
        if not level.fixed.any():
            raise SolverError("water-filling: a level raised nobody to the top")
        x, floor, fixed = level.x, level.floor, fixed | level.fixed
    return x, floor, rounds


def _as_levels(inst: Instance) -> Instance:
    """Rates over those on every type in proportion to its size."""
    even = inst.rates @ (inst.capacity / float(inst.capacity.sum()))
    return Instance(inst.rates / np.where(even > 0.0, even, 1.0)[:, None], inst.gangs, inst.capacity, inst.best)
