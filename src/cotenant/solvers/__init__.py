"""Programs over time fractions, as pure functions of NumPy arrays; this room knows no jobs and no policies.

    max_min(rates, gangs, capacity, weights)                  largest min_i (rate_i / weight_i)
    makespan(rates, gangs, capacity, work)                    smallest max_i (work_i / rate_i)
    finish_time(rates, gangs, capacity, work, elapsed, fair)  smallest max_i (elapsed_i + work_i / rate_i) / fair_i
    max_sum(rates, gangs, capacity, values)                   largest sum of values[i, j] * x[i, j] (default: rates)
    max_sum_with_floors(values, rates, needed, gangs, capacity)
                                                              the same; least rates that cannot be had are given up
    hierarchical(rates, gangs, capacity, weights, entity, entity_weights, inner="fairness" or "fifo")
                                                              water-filling to the end; without entities flat
    packed_max_min(rates, gangs, capacity, kind, pair, scale=)
    packed_makespan(..., work=), packed_finish_time(..., work=, elapsed=, fair=)
                                                              with space sharing: Answer.pairs and Answer.pair_x
    shortest_total(times, gpus)                               AlloX: type and place in line of each job (`Lines`)

where rate_i = sum_j rates[i, j] * x[i, j] is what job i gets on average; rates[i, j] is the whole gang's rate on type
j (0: cannot run there, and never gets it), gangs[i] its GPUs, capacity[j] the GPUs of the type. Each gives an `Answer`:
fractions x (n x K), the value they attain, a bound that nothing beats, prices per GPU, and the gap between the two; it
has passed `check_feasible`. Common options:

    tol       certified relative gap (1e-6); a method that misses it hands over to the plain linear program
    budget_s  wall seconds; `OutOfTime` beyond (its `.best` may hold a feasible answer with a wider gap). The caller
              keeps its last good answer: `except SolverError`.
    warm      an earlier Answer (any number of jobs, same types): its prices are where the search starts
    counts    how many equal jobs each row stands for; each of them gets the fractions of the row. `kinds.classes`
              groups equal rows: c = classes(kind, weight); max_min(rates[c.first], ..., counts=c.counts).x[c.of]
"""

from __future__ import annotations

from math import inf
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers import lp_reference, prices, sum_prices
from cotenant.solvers.answer import Answer, Instance, check_feasible, column, instance
from cotenant.solvers.errors import Infeasible, OutOfTime, SolverBudget, SolverError
from cotenant.solvers.floors import max_sum_with_floors
from cotenant.solvers.matching import Lines, shortest_total
from cotenant.solvers.need import Need, late_need
from cotenant.solvers.sharing import inverted, packed_finish_time, packed_makespan, packed_max_min, solve_packed
from cotenant.solvers.waterfill import hierarchical

__all__ = [
    "Answer", "Infeasible", "Instance", "Lines", "Need", "OutOfTime", "SolverBudget", "SolverError", "check_feasible",
    "finish_time", "hierarchical", "instance", "makespan", "max_min", "max_sum", "max_sum_with_floors",
    "packed_finish_time", "packed_makespan", "packed_max_min", "shortest_total", "solve_need", "solve_packed",
]  # fmt: skip


class SolveOptions(TypedDict, total=False):
    """The common options, as said above."""

    counts: ArrayLike | None
    tol: float
    budget_s: float
    warm: Answer | None


def solve_need(inst: Instance, need: Need, **options: Unpack[SolveOptions]) -> Answer:
    """Best level at which every job gets its required rate: by prices, by the plain program if these do not end."""
    budget, warm, counts = SolverBudget(options.get("budget_s", inf)), options.get("warm"), options.get("counts")
    times = None if counts is None else column(counts, len(inst.gangs), "counts")
    whole = inst if times is None else Instance(inst.rates, inst.gangs * times, inst.capacity, inst.best)
    start = None if warm is None else warm.prices
    try:
        found = prices.solve(inst, need, counts=times, tol=options.get("tol", 1e-6), budget=budget, warm=start)
    except prices.NotCertified:
        found = lp_reference.solve_need(whole, need, budget=budget)
    return check_feasible(found, whole)


def max_min(
    rates: ArrayLike,
    gangs: ArrayLike,
    capacity: ArrayLike,
    weights: ArrayLike | None = None,
    **options: Unpack[SolveOptions],
) -> Answer:
    """Raise the smallest rate / weight. Jobs of weight 0, or that can run nowhere, get nothing."""
    inst = instance(rates, gangs, capacity)
    return solve_need(inst, Need(column(weights, len(inst.gangs), "weights")), **options)


def makespan(
    rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike, work: ArrayLike, **options: Unpack[SolveOptions]
) -> Answer:
    """Finish everything soonest: value and bound are times."""
    inst = instance(rates, gangs, capacity)
    return inverted(solve_need(inst, Need(column(work, len(inst.gangs), "work")), **options))


def finish_time(
    rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike, work: ArrayLike, elapsed: ArrayLike, fair: ArrayLike,
    **options: Unpack[SolveOptions],
) -> Answer:  # fmt: skip
    """Finish-time fairness: lower the largest (elapsed + work / rate) / fair finish time."""
    inst = instance(rates, gangs, capacity)
    return solve_need(inst, late_need(len(inst.gangs), work, elapsed, fair), **options)


def max_sum(
    rates: ArrayLike,
    gangs: ArrayLike,
    capacity: ArrayLike,
    values: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    budget_s: float = inf,
    warm: Answer | None = None,
) -> Answer:
    """Raise the total value; `values[i, j]` (default: the rates) is earned by job i on type j all the time."""
    inst = instance(rates, gangs, capacity)
    worth = inst.rates if values is None else np.asarray(values, dtype=np.float64)
    budget = SolverBudget(budget_s)
    try:
        found = sum_prices.solve(inst, worth, tol=tol, budget=budget, warm=None if warm is None else warm.prices)
    except prices.NotCertified:
        found = lp_reference.solve_sum(inst, worth, budget=budget)
    return check_feasible(found, inst)
