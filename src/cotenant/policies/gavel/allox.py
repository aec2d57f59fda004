"""AlloX (EuroSys'20) as in the Gavel comparison: a matching of jobs to (GPU, place from the end of its line)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from cotenant import solvers
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.policies.base import Context
from cotenant.policies.rounds.problem import Problem, Targets
from cotenant.policies.rounds.rounds import RoundPolicy
from cotenant.policies.rounds.standing import Standing

_NOBODY: Ints = np.zeros(0, np.int64)


class Allox(RoundPolicy):
    """Least average completion time by matching jobs to (GPU type, position); who was granted a GPU keeps it.

    Whoever runs on idle GPUs for the sake of work alone was granted nothing, and is matched like those who wait.

    The paper has single-GPU jobs. A gang is matched like one job, and granted, oldest first, where it fits.
    """

    name = "allox"
    source = "AlloX, Le et al., EuroSys'20, as in Gavel, OSDI'20"
    defaults: ClassVar[dict[str, Value]] = {"alpha": 0.2}

    def begin(self, context: Context) -> None:
        """Grants are remembered from solve to solve."""
        self._granted: dict[int, int] = {}
        self._matched, self._lines = _NOBODY, solvers.Lines(_NOBODY, _NOBODY, 0.0)  # by row, at the last solve
        super().begin(context)

    def told(self) -> Callable[[int], str]:
        """Its place in the matching."""
        return partial(_place, self._matched, self._lines, self._types)

    def recalled(self, standing: Standing) -> None:
        """Who was granted GPUs has all the time there."""
        self._types = standing.pool_types
        granted = np.flatnonzero(standing.target.max(axis=1, initial=0.0) == 1.0)
        self._granted = {int(standing.ids[at]): int(standing.target[at].argmax()) for at in granted.tolist()}

    def targets(self, problem: Problem, view: View) -> Targets:
        """X = 1 for whoever runs first in its line."""
        x = np.zeros_like(problem.rates)
        room = problem.capacity.copy()
        ids = view.rows.tolist()
        for job, row in enumerate(ids):
            pool = self._granted.get(row, -1)
            if pool >= 0 and problem.rates[job, pool] > 0 and problem.gangs[job] <= room[pool]:
                x[job, pool] = 1.0
                room[pool] -= problem.gangs[job]
        self._granted = {ids[job]: int(x[job].argmax()) for job in np.flatnonzero(x.any(axis=1)).tolist()}
        free = int(room.sum())
        waiting = np.flatnonzero(~x.any(axis=1))
        oldest = waiting[: max(int(self.number("alpha") * len(problem)), free)]
        self._matched, self._types = _NOBODY, view.pool_types
        if free <= 0 or not len(oldest):
            return Targets(x)
        able = problem.rates[oldest] > 0
        seconds = np.where(able, problem.left_s[oldest, None] / np.where(able, problem.rates[oldest], 1.0), np.inf)
        lines = solvers.shortest_total(seconds, room.astype(np.int64))
        self._matched, self._lines = view.rows[oldest], lines
        first = first_in_lines(lines)
        where = lines.type_[first]
        for job, pool in sorted(zip(oldest[first].tolist(), where.tolist(), strict=True)):
            if problem.rates[job, pool] > 0 and problem.gangs[job] <= room[pool]:
                x[job, pool] = 1.0
                room[pool] -= problem.gangs[job]
                self._granted[ids[job]] = pool
        return Targets(x)


def first_in_lines(lines: solvers.Lines) -> Ints:
    """Jobs that run first, one per GPU that got any: places count from the end of a line, so the largest is first.

    As many lines are exactly p long as there are more jobs at place p than at p + 1; the oldest of them go first.
    """
    first: list[int] = []
    for kind in np.unique(lines.type_[lines.type_ >= 0]).tolist():
        begun = 0
        of_type = lines.type_ == kind
        for place in range(int(lines.place[of_type].max()), 0, -1):
            here = np.flatnonzero(of_type & (lines.place == place))
            first += here[: len(here) - begun].tolist()
            begun = max(begun, len(here))
    return np.array(sorted(first), np.int64)


def _place(matched: Ints, lines: solvers.Lines, types: Sequence[str], row: int) -> str:
    """Where a job is in the matching, in words."""
    at = np.flatnonzero(matched == row)
    if not len(at) or lines.type_[at[0]] < 0:
        return f"it is not among the {len(matched)} jobs that were matched: the oldest come first"
    line = f"a line of {types[lines.type_[at[0]]]} GPUs"
    return f"in the matching it is number {lines.place[at[0]]} from the end of {line}, and who is first runs"
