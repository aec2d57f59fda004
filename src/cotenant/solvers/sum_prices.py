"""Largest total value by prices: every job takes its best type at the price, or nothing.

D(p) = p . capacity + sum_i max(0, max_j v_ij - s_i p_j) bounds the total at any prices p >= 0. The answers at past
prices are mixed by a small program over the capacities, whose duals are the next prices (Dantzig and Wolfe); the
mix leaves at most as many jobs fractional as there are types.
"""

from __future__ import annotations

import numpy as np

from cotenant.solvers.answer import Answer, Floats, Instance, Ints, relative_gap
from cotenant.solvers.errors import OutOfTime, SolverBudget
from cotenant.solvers.prices import NotCertified
from cotenant.solvers.small_lp import pack

MOST_STEPS = 400


def solve(
    inst: Instance, values: Floats, *, tol: float = 1e-6, budget: SolverBudget | None = None, warm: Floats | None = None
) -> Answer:
    """Maximise sum values x fractions. `values[i, j]` counts only where the job can run."""
    budget = budget or SolverBudget()
    v = np.where(inst.rates > 0.0, values, 0.0)
    scale = float(v.max(axis=1, initial=0.0).sum())
    if scale <= 0.0:
        return Answer.nothing(inst, 0.0, "prices", budget.spent_s)
    v = v / scale
    price = np.zeros(v.shape[1]) if warm is None else np.maximum(warm, 0.0) / scale
    chosen: list[Ints] = []
    worth: list[float] = []
    usage: list[Floats] = []
    bound, best_price = np.inf, price
    seen: set[bytes] = set()
    while True:
        reduced, choice, value, used = _respond(v, inst, price)
        total = float(price @ inst.capacity) + reduced
        if total < bound:
            bound, best_price = total, price
        chosen.append(choice)
        worth.append(value)
        usage.append(used)
        mix, duals = _mix(np.array(worth), np.array(usage), inst.capacity)
        attained = float(mix @ np.array(worth))
        if bound - attained <= tol * bound:
            break
        price = duals
        if price.tobytes() in seen or len(worth) >= MOST_STEPS:
            raise NotCertified(f"max-sum: gap {relative_gap(attained, bound):.1e} after {len(worth)} steps")
        seen.add(price.tobytes())
        if budget.over:
            raise OutOfTime(f"max-sum: no answer within {budget.budget_s:g} s")
    x = np.zeros(v.shape)
    for k in np.flatnonzero(mix > 0.0):
        rows = np.flatnonzero(chosen[k] >= 0)
        x[rows, chosen[k][rows]] += mix[k]
    bound = max(bound, attained)
    return Answer(
        x, attained * scale, bound * scale, best_price * scale, "prices", budget.spent_s, relative_gap(attained, bound),
        inst.left_out,
    )  # fmt: skip


def _respond(v: Floats, inst: Instance, price: Floats) -> tuple[float, Ints, float, Floats]:
    """Sum of reduced values, the type of each job (-1: none), total value and GPUs used."""
    left = np.where(v > 0.0, v - inst.gangs[:, None] * price[None, :], -np.inf)
    choice = left.argmax(axis=1)
    rows = np.arange(len(v))
    gain = left[rows, choice]
    takes = gain > 0.0
    used: Floats = np.bincount(choice[takes], inst.gangs[takes], v.shape[1]).astype(np.float64)
    total = float(v[rows[takes], choice[takes]].sum())
    return float(gain[takes].sum()), np.where(takes, choice, -1), total, used


def _mix(worth: Floats, usage: Floats, capacity: Floats) -> tuple[Floats, Floats]:
    """Best mix of known answers (weights sum to at most 1) and the prices of the types."""
    scaled = usage / np.maximum(capacity, 1e-300)
    matrix = np.vstack([scaled.T, np.ones(len(worth))])
    mix, duals = pack(worth, matrix, np.ones(len(matrix)))
    excess = max(1.0, float((matrix @ mix).max()))
    return mix / excess, np.where(capacity > 0.0, duals[:-1] / np.maximum(capacity, 1e-300), 0.0)
