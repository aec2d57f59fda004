"""Largest total value with a least rate for some jobs (deadlines that must be kept).

Rates that cannot all be had are given up one by one, the most demanding first, until the rest can: then one job does
not cost the others theirs. How many must go is found by halving, each question answered by prices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers import lp_reference, prices
from cotenant.solvers.answer import Answer, Floats, Instance, check_feasible, column, instance
from cotenant.solvers.errors import Infeasible, SolverBudget
from cotenant.solvers.need import Need


def max_sum_with_floors(
    values: ArrayLike,
    rates: ArrayLike,
    needed: ArrayLike,
    gangs: ArrayLike,
    capacity: ArrayLike,
    *,
    budget_s: float = float("inf"),
) -> Answer:
    """Raise the sum of values * fractions, with rate >= needed for as many as possible; `note` says how many not."""
    budget = SolverBudget(budget_s)
    inst = instance(rates, gangs, capacity)
    least = column(needed, len(inst.gangs), "needed")
    asked = int((least > 0.0).sum())
    least = np.where(least <= inst.best * (1.0 + 1e-9), np.minimum(least, inst.best), 0.0)
    wanted = np.flatnonzero(least > 0.0)
    demand = inst.gangs[wanted] * least[wanted] / inst.best[wanted]
    order = wanted[np.argsort(-demand, kind="stable")]
    gone = _to_give_up(inst, least, order, budget)
    worth = np.asarray(values, dtype=np.float64)
    while True:
        kept = least.copy()
        kept[order[:gone]] = 0.0
        try:
            found = lp_reference.solve_sum(inst, worth, required=kept * (1.0 - 1e-9), budget=budget)
            break
        except Infeasible:  # on the edge: rounding decides
            gone += 1
    lost = asked - int((kept > 0.0).sum())
    method = f"lp, {lost} of {asked} least rates given up" if lost else "lp"
    return check_feasible(replace(found, method=method, seconds=budget.spent_s), inst)


def _to_give_up(
    inst: Instance, least: Floats, order: np.ndarray[tuple[int], np.dtype[np.int64]], budget: SolverBudget
) -> int:
    """How many of the most demanding must go until the rest can be had."""

    def can(gone: int) -> bool:
        kept = least.copy()
        kept[order[:gone]] = 0.0
        try:
            found = prices.solve(inst, Need(kept), tol=1e-7, budget=budget)
        except prices.NotCertified:
            found = lp_reference.solve_need(inst, Need(kept), budget=budget)
        return found.bound >= 1.0 - 1e-9

    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if can(middle) else (middle + 1, high)
    return low
