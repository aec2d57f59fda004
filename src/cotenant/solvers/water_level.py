"""One level of water-filling: raise some jobs together until somebody cannot rise, and find out who.

A job is fixed when it alone cannot be raised while all others keep what they have. That is decided exactly, without
large constants: jobs whose row has a positive dual are fixed; for the rest one program lifts as many as it can by a
little. If each of some jobs can be raised alone, the average of those answers raises all of them together, so a job
that is still on the ground when no program can lift any more cannot rise. Floors only go up: whoever cannot rise now
never will.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.solvers.answer import Floats, Instance, excess
from cotenant.solvers.errors import SolverBudget
from cotenant.solvers.lp_reference import model
from cotenant.solvers.program import Solution

Mask = NDArray[np.bool_]

LIFTED = 1e-7  # levels nearer than this are equal
_LIFT = 1e-3


@dataclass(frozen=True, slots=True)
class Level:
    """Where a rise ended: fractions, the floors that they keep, who is fixed by it, and how far it went."""

    x: Floats
    floor: Floats
    fixed: Mask
    step: float


class Water:
    """The program of some jobs, whose rates are levels; solved again and again from where it stands."""

    def __init__(self, inst: Instance, budget: SolverBudget, *, presolve: bool = True) -> None:
        self._budget = budget
        self._built = model(inst)
        program, rows = self._built.program, self._built.rate_rows
        program.presolve = presolve
        self._rise = program.add_columns(1)
        self._lift = program.add_columns(len(rows), upper=0.0)
        program.add_entries(rows, self._lift, -1.0)
        program.add_entries(rows, int(self._rise[0]), -1.0)  # set in every rise
        program.build()
        self._speed = np.full(len(rows), np.nan)

    def rise(self, speed: Floats, floor: Floats, fixed: Mask, *, enough: bool = False) -> Level:
        """Raise all by `speed` per unit, as far as they can together above what they have.

        With `enough` nobody asks for more who are fixed once there is one: the next rise, which is short, tells.
        """
        program, rows = self._built.program, self._built.rate_rows
        for i in np.flatnonzero(speed != self._speed):
            program.set_entry(rows[i], int(self._rise[0]), -speed[i])
        self._speed = speed
        program.set_row_bounds(rows, _eased(floor), np.inf)
        program.set_column_bounds(self._rise, 0.0, np.inf)
        program.set_column_bounds(self._lift, 0.0, 0.0)
        program.set_cost(self._rise, 1.0)
        program.set_cost(self._lift, 0.0)
        solution = program.solve(self._budget)
        step = max(float(solution.x[self._rise[0]]), 0.0)
        x = self._inside(solution)
        level = np.einsum("ij,ij->i", self._built.inst.rates, x)
        floor = np.minimum(floor + step * speed, level)  # what x keeps, the next program can keep
        tight = (np.abs(solution.row_duals[rows]) > LIFTED) & (speed > 0.0) & ~fixed
        if enough and tight.any():
            return Level(x, floor, tight, step)
        asked = ~fixed & ~tight
        if step * float(speed.max()) > LIFTED:  # while others rise, nobody asks about those whose turn has not come
            asked &= speed > 0.0
        stuck, x = self.stuck(floor, asked, x)
        return Level(x, floor, tight | stuck, step)

    def stuck(self, floor: Floats, asked: Mask, x: Floats) -> tuple[Mask, Floats]:
        """Which of the jobs asked for cannot be raised above their floor; and fractions that keep all floors."""
        program = self._built.program
        program.set_row_bounds(self._built.rate_rows, _eased(floor), np.inf)
        program.set_column_bounds(self._rise, 0.0, 0.0)
        program.set_cost(self._rise, 0.0)
        asked = asked.copy()
        while asked.any():
            program.set_column_bounds(self._lift, 0.0, np.where(asked, _LIFT, 0.0))
            program.set_cost(self._lift, np.where(asked, 1.0, 0.0))
            solution = program.solve(self._budget)
            x = self._inside(solution)
            lifted = asked & (solution.x[self._lift] > LIFTED)
            if not lifted.any():
                break
            asked &= ~lifted
        return asked, x

    def _inside(self, solution: Solution) -> Floats:
        """Fractions of a solution, drawn in by what rounding let them exceed."""
        x, inst = self._built.read(solution)[0], self._built.inst
        return np.asarray(x / (1.0 + max(0.0, *excess(x, inst.gangs, inst.capacity))))


def _eased(floor: Floats) -> Floats:
    """Floors that rounding cannot make unreachable."""
    return np.asarray(floor - 1e-12 * (1.0 + floor))
