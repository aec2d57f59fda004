"""The numbers of the newest reports, side by side: whoever needs those of thousands of jobs has them at once."""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import NamedTuple

import numpy as np

from cotenant.core.workload import Floats, Ints
from cotenant.service.observer.report import Report

TOTAL, SAVES, LEFT, MEAN, SPREAD, TENURE = range(6)
"""Steps in all, -1 where that is not known; whether it saves; steps left, NaN while it is cold or in new company; what
they take on average, and how sure that is; a number that is given to no other job, for rows are given again."""
_WIDTH = 6


class ReportNews(NamedTuple):
    """Rows of the jobs that have spoken, by their places, and the numbers in them; `names`: whose each place is."""

    places: Ints
    numbers: Floats
    names: list[str]


NO_NEWS = ReportNews(np.zeros(0, np.int64), np.zeros((0, _WIDTH)), [])


class ReportColumns:
    """One row of numbers per job, written when it speaks. Not for several threads at a time."""

    def __init__(self) -> None:
        self._numbers = array("d")
        self._spoke = bytearray()  # by row: whether it has, since it was asked last
        self._names: list[str] = []
        self._at: dict[str, int] = {}
        self._free: list[int] = []
        self._tenures = 0

    def write(self, job: str, report: Report, spoke: bool = True) -> None:
        """What a job says now; `spoke`: by a word of its own."""
        at = self._at.get(job)
        if at is None:
            at = self._enter(job)
        numbers, first, total, speed = self._numbers, at * _WIDTH, report.total, report.speed
        numbers[first] = -1.0 if total is None else total
        numbers[first + SAVES] = report.saves
        if total and report.step is not None and speed.step_s is not None and speed.mean_s:
            numbers[first + LEFT] = total - report.step
            numbers[first + MEAN] = speed.mean_s
            numbers[first + SPREAD] = speed.spread
        else:
            numbers[first + LEFT] = np.nan
        if spoke:
            self._spoke[at] = 1

    def _enter(self, job: str) -> int:
        if not self._free:
            self._free.append(len(self._names))
            self._names.append("")
            self._numbers.extend(repeat(0.0, _WIDTH))
            self._spoke.append(0)
        at = self._at[job] = self._free.pop()
        self._tenures += 1
        self._names[at], self._numbers[at * _WIDTH + TENURE] = job, self._tenures
        return at

    def forget(self, job: str) -> None:
        """What it said no longer holds."""
        at = self._at.pop(job, None)
        if at is not None:
            self._free.append(at)
            self._names[at], self._spoke[at] = "", 0

    def place(self, job: str) -> tuple[int, float] | None:
        """Where the row of a job is, and its tenure there; None while it has not spoken."""
        at = self._at.get(job)
        return None if at is None else (at, self._numbers[at * _WIDTH + TENURE])

    def news(self) -> ReportNews:
        """What those say who have spoken since this was asked last."""
        places = np.flatnonzero(np.frombuffer(self._spoke, np.uint8))
        self._spoke = bytearray(len(self._spoke))
        numbers = np.frombuffer(self._numbers).reshape(-1, _WIDTH)
        return ReportNews(places, numbers[places], self._names.copy())
