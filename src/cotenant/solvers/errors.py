"""What can go wrong in a solve. A policy catches `SolverError` and keeps its last good answer."""

from __future__ import annotations

import time
from typing import Any

from cotenant.core.errors import CotenantError


class SolverError(CotenantError):
    """No usable answer: wrong input, a failed check, or a solver that gave up."""


class Infeasible(SolverError):
    """The program has no solution at all."""


class OutOfTime(SolverError):
    """The budget ended first. `best` is a feasible answer with a wider gap, where one was at hand."""

    def __init__(self, text: str, best: Any = None) -> None:
        super().__init__(text)
        self.best = best


class SolverBudget:
    """Wall seconds that a solve may still take."""

    def __init__(self, budget_s: float = float("inf")) -> None:
        self.began = time.perf_counter()
        self.budget_s = budget_s

    @property
    def spent_s(self) -> float:
        """Seconds since the solve began."""
        return time.perf_counter() - self.began

    @property
    def left_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.budget_s - self.spent_s)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.spent_s > self.budget_s

    def forgive(self, seconds: float) -> None:
        """Do not count these seconds (compiling a loop, once per process)."""
        self.began += seconds

    def check(self, what: str, best: Any = None) -> None:
        """Raise `OutOfTime` once the time is up."""
        if self.over:
            raise OutOfTime(f"{what}: no answer within {self.budget_s:g} s", best)
