"""Space sharing: the max-min family where two jobs may hold the same GPUs.

Over classes of jobs (`kinds`) as long as these are few enough for one program, beyond that in parts (`pop`).
`kind[i]` names the row of job i in the pair table; `pair[a, b, k]` is the rate of a job of kind a beside one of kind b
on type k, 0 where the two cannot share. Only gangs of one size share.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers import pop
from cotenant.solvers.answer import Answer, Floats, Instance, Ints, check_feasible, column, instance
from cotenant.solvers.errors import SolverBudget, SolverError
from cotenant.solvers.need import Need, late_need


def packed_max_min(
    rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike, kind: ArrayLike, pair: ArrayLike, *,
    scale: ArrayLike | None = None, budget_s: float = inf,
) -> Answer:  # fmt: skip
    """Raise the smallest scale * rate (`scale` 0: the job gets nothing)."""
    inst = instance(rates, gangs, capacity)
    factor = column(scale, len(inst.gangs), "scale")
    work = np.where(factor > 0.0, 1.0 / np.where(factor > 0.0, factor, 1.0), 0.0)
    return solve_packed(inst, Need(work), kind, pair, budget_s=budget_s)


def packed_makespan(
    rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike, kind: ArrayLike, pair: ArrayLike, *,
    work: ArrayLike, budget_s: float = inf,
) -> Answer:  # fmt: skip
    """Finish everything soonest."""
    inst = instance(rates, gangs, capacity)
    return inverted(solve_packed(inst, Need(column(work, len(inst.gangs), "work")), kind, pair, budget_s=budget_s))


def packed_finish_time(
    rates: ArrayLike, gangs: ArrayLike, capacity: ArrayLike, kind: ArrayLike, pair: ArrayLike, *,
    work: ArrayLike, elapsed: ArrayLike, fair: ArrayLike, budget_s: float = inf,
) -> Answer:  # fmt: skip
    """Lower the largest (elapsed + work / rate) / fair."""
    inst = instance(rates, gangs, capacity)
    return solve_packed(inst, late_need(len(inst.gangs), work, elapsed, fair), kind, pair, budget_s=budget_s)


def solve_packed(
    inst: Instance, need: Need, kind: ArrayLike, pair: ArrayLike, *, parts: int | None = None, budget_s: float = inf
) -> Answer:
    """Best theta with space sharing; in `parts` (None: as many as the number of classes asks for)."""
    budget = SolverBudget(budget_s)
    of, table = checked_pairs(inst, kind, pair)
    count = pop.parts_for(inst, of) if parts is None else parts
    return check_feasible(pop.solve(inst, need, of, table, count, budget=budget), inst)


def checked_pairs(inst: Instance, kind: ArrayLike, pair: ArrayLike) -> tuple[Ints, Floats]:
    """Kinds and pair table with the right shapes."""
    of = np.asarray(kind, dtype=np.int64)
    table = np.asarray(pair, dtype=np.float64)
    if of.shape != inst.gangs.shape or table.ndim != 3 or table.shape[2] != len(inst.capacity):
        raise SolverError("pairs: one kind per job, and a table kinds x kinds x types")
    if table.shape[0] != table.shape[1] or (len(of) and not (of.min() >= 0 and of.max() < len(table))):
        raise SolverError("pairs: the table must be square and hold every kind")
    if not np.isfinite(table).all() or (table < 0.0).any():
        raise SolverError("pair rates must be finite and not negative")
    return of, table


def inverted(found: Answer) -> Answer:
    """The answer for 1 / theta: times instead of speeds."""
    return replace(found, value=_inverse(found.value), bound=_inverse(found.bound))


def _inverse(value: float) -> float:
    if value == 0.0:
        return np.inf
    return 0.0 if np.isinf(value) else 1.0 / value
