"""A small modelling layer over HiGHS: blocks of columns and rows, sparse entries, one `solve`.

highspy takes 0.3 s to import, so that happens at the first solve. A `Program` stays alive between solves: bounds and
costs may change, rows may be added, and the next solve starts from the last basis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers.answer import Floats, Ints
from cotenant.solvers.errors import Infeasible, OutOfTime, SolverBudget, SolverError

INF = float("inf")


@dataclass(frozen=True, slots=True)
class Solution:
    """Optimal point of a program. Duals are 0 for programs with integer columns."""

    x: Floats
    value: float
    row_duals: Floats
    rows: Floats
    """Activity of each row."""


@dataclass(frozen=True, slots=True)
class IntegerPoint:
    """A feasible point of a program with integer columns, and whether it is proved best (within the gap)."""

    x: Floats
    value: float
    optimal: bool


class Program:
    """Collect columns and rows, then solve; afterwards change and solve again."""

    def __init__(self, *, maximise: bool = True) -> None:
        self.maximise = maximise
        self.presolve = True  # it may find a program without room to spare infeasible by rounding
        self._lower: list[Floats] = []
        self._upper: list[Floats] = []
        self._cost: list[Floats] = []
        self._integer: list[Any] = []
        self._row_lower: list[Floats] = []
        self._row_upper: list[Floats] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self.columns = 0
        self.rows = 0
        self._highs: Any = None
        self._warm = False

    def add_columns(
        self,
        count: int,
        *,
        lower: ArrayLike = 0.0,
        upper: ArrayLike = INF,
        cost: ArrayLike = 0.0,
        integer: bool = False,
    ) -> Ints:
        """Append columns; gives their numbers."""
        if self._highs is not None:
            raise SolverError("columns cannot be added after the first solve")
        for kept, given in ((self._lower, lower), (self._upper, upper), (self._cost, cost)):
            kept.append(_wide(given, count))
        self._integer.append(np.full(count, integer))
        first, self.columns = self.columns, self.columns + count
        return np.arange(first, self.columns, dtype=np.int64)

    def add_rows(self, count: int, *, lower: ArrayLike = -INF, upper: ArrayLike = INF) -> Ints:
        """Append rows (empty until `add_entries`); gives their numbers."""
        if self._highs is not None:
            raise SolverError("use add_row after the first solve")
        for kept, given in ((self._row_lower, lower), (self._row_upper, upper)):
            kept.append(_wide(given, count))
        first, self.rows = self.rows, self.rows + count
        return np.arange(first, self.rows, dtype=np.int64)

    def add_entries(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> None:
        """Add values to the matrix; the three are broadcast against each other."""
        r, c, v = np.broadcast_arrays(np.asarray(rows), np.asarray(columns), np.asarray(values, dtype=np.float64))
        self._entries.append((r.ravel().astype(np.int64), c.ravel().astype(np.int64), v.ravel()))

    def add_row(self, columns: Ints, values: Floats, *, lower: float = -INF, upper: float = INF) -> int:
        """Append one row, also after a solve (the next solve starts from the last basis)."""
        if self._highs is None:
            row = self.add_rows(1, lower=lower, upper=upper)
            self.add_entries(row[0], columns, values)
            return int(row[0])
        self._highs.addRow(lower, upper, len(columns), np.asarray(columns, dtype=np.int32), values)
        self.rows += 1
        return self.rows - 1

    def set_cost(self, columns: Ints, cost: ArrayLike) -> None:
        """Change the objective of some columns after a solve."""
        self._highs.changeColsCost(len(columns), columns.astype(np.int32), _wide(cost, len(columns)))

    def set_column_bounds(self, columns: Ints, lower: ArrayLike, upper: ArrayLike) -> None:
        """Change the bounds of some columns after a solve."""
        count = len(columns)
        self._highs.changeColsBounds(count, columns.astype(np.int32), _wide(lower, count), _wide(upper, count))

    def set_row_bounds(self, rows: Ints, lower: ArrayLike, upper: ArrayLike) -> None:
        """Change the bounds of some rows after a solve."""
        count = len(rows)
        self._highs.changeRowsBounds(count, rows.astype(np.int32), _wide(lower, count), _wide(upper, count))

    def set_entry(self, row: int, column: int, value: float) -> None:
        """Change one value of the matrix after a solve."""
        self._highs.changeCoeff(int(row), int(column), float(value))

    def solve(self, budget: SolverBudget | None = None, *, method: str = "choose", gap: float = 0.0) -> Solution:
        """Optimal solution, or `Infeasible`, `OutOfTime`, `SolverError`. `method`: choose, simplex, ipm."""
        if self.columns == 0:
            if (_joined(self._row_lower) > 0.0).any() or (_joined(self._row_upper) < 0.0).any():
                raise Infeasible("the program has no solution")
            return Solution(np.zeros(0), 0.0, np.zeros(self.rows), np.zeros(self.rows))
        highs = self.build()
        if budget is not None and budget.budget_s != INF:
            budget.check("linear program")
            highs.setOptionValue("time_limit", float(highs.getRunTime() + budget.left_s))
        highs.setOptionValue("solver", method)
        highs.setOptionValue("mip_rel_gap", gap)
        highs.run()
        if self._warm and not self._settled(highs):  # an old basis can lead astray: once more from the start
            highs.clearSolver()
            highs.run()
        self._raise_for_status(highs, budget)
        self._warm = True
        found = highs.getSolution()
        duals = np.array(found.row_dual) if found.dual_valid else np.zeros(self.rows)
        return Solution(np.array(found.col_value), highs.getObjectiveValue(), duals, np.array(found.row_value))

    def solve_integer(
        self, budget: SolverBudget, *, start: Floats | None = None, gap: float = 0.0
    ) -> IntegerPoint | None:
        """Best point within the time, from a feasible `start` where given; None if the time brought none at all.

        `gap` is how much less than the best value is good enough, in units of the objective.
        """
        if self.columns == 0:
            return IntegerPoint(np.zeros(0), 0.0, True)
        import highspy

        highs = self.build()
        if budget.budget_s != INF:
            highs.setOptionValue("time_limit", float(highs.getRunTime() + budget.left_s))
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", max(gap, 1e-9))
        if start is not None:
            point = highspy.HighsSolution()
            point.col_value = np.asarray(start, np.float64).tolist()
            highs.setSolution(point)
        highs.run()
        status, states = highs.getModelStatus(), highspy.HighsModelStatus
        if status == states.kInfeasible:
            raise Infeasible("the program has no solution")
        found = highs.getSolution()
        if not found.value_valid or highs.getInfo().primal_solution_status != 2:
            return None
        return IntegerPoint(np.array(found.col_value), highs.getObjectiveValue(), status == states.kOptimal)

    def _settled(self, highs: Any) -> bool:
        import highspy

        states = highspy.HighsModelStatus
        return highs.getModelStatus() in (states.kOptimal, states.kTimeLimit, states.kInterrupt)

    def _raise_for_status(self, highs: Any, budget: SolverBudget | None) -> None:
        import highspy

        status = highs.getModelStatus()
        states = highspy.HighsModelStatus
        if status == states.kOptimal:
            return
        if status == states.kInfeasible:
            raise Infeasible("the program has no solution")
        if status in (states.kTimeLimit, states.kInterrupt):
            raise OutOfTime(f"linear program: no answer within {budget.budget_s if budget else INF:g} s")
        raise SolverError(f"HiGHS stopped: {highs.modelStatusToString(status)}")

    def build(self) -> Any:
        """Hand the program to HiGHS; from now on it can be changed but not extended by columns."""
        if self._highs is not None:
            return self._highs
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, self.rows
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = (_joined(v) for v in (self._cost, self._lower, self._upper))
        lp.row_lower_, lp.row_upper_ = _joined(self._row_lower), _joined(self._row_upper)
        lp.sense_ = highspy.ObjSense.kMaximize if self.maximise else highspy.ObjSense.kMinimize
        integer = np.concatenate(self._integer) if self._integer else np.zeros(0, dtype=bool)
        if integer.any():
            kinds = highspy.HighsVarType
            lp.integrality_ = [kinds.kInteger if one else kinds.kContinuous for one in integer]
        start, index, value = self._by_columns()
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, index, value
        new: Any = highspy.Highs
        highs = new()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("presolve", "choose" if self.presolve else "off")
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            highs.setOptionValue(name, 1e-9)
        if highs.passModel(lp) == highspy.HighsStatus.kError:
            raise SolverError("HiGHS does not accept the program")
        self._highs = highs
        self._entries, self._integer = [], []
        return highs

    def _by_columns(self) -> tuple[Any, Any, Floats]:
        rows = _joined_ints([e[0] for e in self._entries])
        columns = _joined_ints([e[1] for e in self._entries])
        values = _joined([e[2] for e in self._entries])
        kept = values != 0.0
        cells, values = columns[kept] * self.rows + rows[kept], values[kept]
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], values[order]
        new = np.append(True, cells[1:] != cells[:-1])[: len(cells)]
        if not new.all():
            values = np.add.reduceat(values, np.flatnonzero(new))
            cells = cells[new]
        columns, rows = np.divmod(cells, max(self.rows, 1))
        start = np.zeros(self.columns + 1, dtype=np.int32)
        np.cumsum(np.bincount(columns, minlength=self.columns), out=start[1:])
        return start, rows.astype(np.int32), values


def _wide(values: ArrayLike, count: int) -> Floats:
    """So many numbers, an array of one's own."""
    return np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)).copy()


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)


def _joined_ints(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
