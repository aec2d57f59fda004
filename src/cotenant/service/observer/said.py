"""The numbers of the newest reports, side by side: whoever needs those of thousands of jobs has them at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import repeat

import numpy as np

from cotenant.core.workload import Floats
from cotenant.service.observer.report import Report

TOTAL, SAVES, LEFT, MEAN, SPREAD = range(5)
"""Steps in all, -1 where that is not known; whether it saves; steps left, NaN while it is cold or in new company; what
they take on average, and how sure that is."""
_WIDTH, _NOBODY = 5, 0  # the first row is of those who never spoke


class Said:
    """One row of numbers per job, written when it speaks. Not for several threads at a time."""

    def __init__(self) -> None:
        self._numbers = array("d", [-1.0, 0.0, np.nan, np.nan, np.nan])
        self._at: dict[str, int] = {}
        self._free: list[int] = []

    def write(self, job: str, report: Report) -> None:
        """A job has spoken."""
        at = self._at.get(job)
        if at is None:
            at = self._at[job] = self._free.pop() if self._free else len(self._numbers) // _WIDTH
            if at * _WIDTH == len(self._numbers):
                self._numbers.extend(repeat(0.0, _WIDTH))
        numbers, first, total, speed = self._numbers, at * _WIDTH, report.total, report.speed
        numbers[first] = -1.0 if total is None else total
        numbers[first + SAVES] = report.saves
        if total and report.step is not None and speed.step_s is not None and speed.mean_s:
            numbers[first + LEFT] = total - report.step
            numbers[first + MEAN] = speed.mean_s
            numbers[first + SPREAD] = speed.spread
        else:
            numbers[first + LEFT] = np.nan

    def forget(self, job: str) -> None:
        """What it said no longer holds."""
        at = self._at.pop(job, None)
        if at is not None:
            self._free.append(at)

    def of(self, jobs: Iterable[str]) -> Floats:
        """One row per job."""
        rows = list(map(self._at.get, jobs, repeat(_NOBODY)))
        return np.frombuffer(self._numbers).reshape(-1, _WIDTH)[rows]
