"""Finish-time fairness beyond its worst job.

One job that is already at full speed may set the largest ratio; every division that does not slow it down is then
optimal, also one that leaves GPUs without a target. Such jobs get their fastest GPUs whole, and the ratio is made
small among the others, so that fractions say something about everybody (lexicographic min-max, first level that the
capacity sets).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant import solvers
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.rounds.problem import Problem

TRIES = 12
SLACK = 0.02  # good enough: nobody could gain more by another try
TOLERANCE = 1e-6  # of the objective itself
ROUGHLY = 1e-3  # of what comes after it


@dataclass(slots=True)
class Memory:
    """Where the last solve ended: how many jobs were at full speed, and prices. The next one starts there."""

    first: int = 0
    prices: solvers.Answer | None = None


def fair_finish(problem: Problem, fair_s: Floats, budget_s: float, memory: Memory) -> Matrix:
    """Fractions; whoever cannot be helped by others gets its fastest GPUs first."""
    rates, gangs, age_s, left_s = problem.rates, problem.gangs, problem.age_s, problem.left_s
    fastest = rates.argmax(axis=1)
    best = rates.max(axis=1)
    full_s, due = age_s + left_s / np.where(best > 0, best, 1.0), fair_s > 0
    least = np.where(due, full_s / np.where(due, fair_s, 1.0), np.where(full_s > 0, np.inf, 0.0))  # ratio at full speed
    order = np.argsort(-least, kind="stable")
    whole = np.zeros((len(problem) + 1, len(problem.capacity)))
    np.add.at(whole, (np.arange(1, len(problem) + 1), fastest[order]), gangs[order])
    used = np.cumsum(whole, axis=0)
    low, high = 0, int((used <= problem.capacity).all(axis=1).sum()) - 1
    first = min(memory.first, high)
    for tries in range(TRIES + 1):
        if tries == TRIES:
            first = 0  # no number fits: the plain optimum
        ahead, rest = order[:first], order[first:]
        x = np.zeros_like(rates)
        x[ahead, fastest[ahead]] = 1.0
        if not len(rest):
            break
        found = solvers.finish_time(
            rates[rest], gangs[rest], problem.capacity - used[first], work=left_s[rest], elapsed=age_s[rest],
            fair=fair_s[rest], tol=ROUGHLY if first else TOLERANCE, budget_s=budget_s, warm=memory.prices,
        )  # fmt: skip
        x[rest], memory.prices = found.x, found
        worst, last = least[order[0]], least[order[max(first - 1, 0)]]
        if first and (len(found.left_out) or found.value > worst or last < found.value * (1 - SLACK)):
            high = first - 1  # somebody at full speed is better off than the others, or leaves one no room
        elif least[rest[0]] >= found.value * (1 - ROUGHLY) and (gangs @ x < problem.capacity * (1 - SLACK)).all():
            low = first + int((least[rest] >= found.value * (1 - SLACK)).sum())  # more are at full speed
            if low > high:
                break
        else:
            break
        low = min(low, high)
        first = (low + high) // 2 if high < first else min(max(low, first + first // 2), high)
    memory.first = first
    return x
