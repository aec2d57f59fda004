"""Learners that keep one table of what ended: the mean by size, the user's median, the rolling estimate, a constant.

Each is a table with two calls (what is said of a job, what came of it); `Learning` makes a learner of it, which also
keeps how far off it was.
"""

from __future__ import annotations

import math
from bisect import insort
from typing import Protocol

from cotenant.beliefs.duration import UNKNOWN_SPREAD, DurationGuess
from cotenant.beliefs.prediction.past import AskedJob, Kinds
from cotenant.beliefs.prediction.rolling import Mean, Rolling

_LEAST_S = 1.0
_AS_GOOD_AS = 10  # ended jobs that count as much as what was thought of the spread before
_LATEST = 0.002  # the least weight of the newest error


class Spread:
    """How far off a learner is: the standard deviation of the logarithm of what came over what was said."""

    def __init__(self) -> None:
        self._variance, self._count = UNKNOWN_SPREAD**2, 0

    @property
    def value(self) -> float:
        """As far as is known."""
        return math.sqrt(self._variance)

    def add(self, said_s: float, came_s: float) -> None:
        """One more job has ended."""
        self._count += 1
        off = math.log(max(came_s, _LEAST_S) / max(said_s, _LEAST_S))
        self._variance += max(1 / (self._count + _AS_GOOD_AS), _LATEST) * (off * off - self._variance)


class PastTable(Protocol):
    """What is known of ended jobs."""

    def estimate(self, asked: AskedJob) -> float:
        """Seconds that such a job is believed to last."""

    def add(self, asked: AskedJob, lasted_s: float) -> None:
        """One has ended."""


class Learning:
    """A table as a learner."""

    def __init__(self, table: PastTable) -> None:
        self._table, self._spread = table, Spread()
        self._said: dict[int, float] = {}

    def guess(self, asked: AskedJob) -> DurationGuess:
        """How long it would last."""
        return DurationGuess(max(self._table.estimate(asked), _LEAST_S), self._spread.value)

    def submit(self, job: int, asked: AskedJob) -> DurationGuess:
        """How long it will last."""
        self._said[job] = said_s = self._table.estimate(asked)
        return DurationGuess(said_s, self._spread.value)

    def end(self, job: int, asked: AskedJob, lasted_s: float) -> None:
        """It has ended."""
        said_s = self._said.pop(job, None)
        if said_s is not None:
            self._spread.add(said_s, lasted_s)
        self._table.add(asked, lasted_s)


class Constant:
    """The same of everybody: an order by it is an order by GPUs alone."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def estimate(self, asked: AskedJob) -> float:
        """Always the same."""
        return self._seconds

    def add(self, asked: AskedJob, lasted_s: float) -> None:
        """Nothing is learned."""


class SizeMeans:
    """The mean of jobs with as many GPUs, else of all, else the prior."""

    def __init__(self, prior_s: float) -> None:
        self._prior_s = prior_s
        self._of: dict[int, Mean] = {}

    def estimate(self, asked: AskedJob) -> float:
        """Mean of the narrowest that is known."""
        found = self._of.get(asked.gpus) or self._of.get(0)
        return found.value if found is not None else self._prior_s

    def add(self, asked: AskedJob, lasted_s: float) -> None:
        """One more."""
        for size in (asked.gpus, 0):
            self._of.setdefault(size, Mean()).add(lasted_s)


class UserMedians:
    """Median duration of the user's ended jobs, else of everybody's, else the prior."""

    def __init__(self, prior_s: float) -> None:
        self._prior_s = prior_s
        self._of: dict[str | None, list[float]] = {}

    def estimate(self, asked: AskedJob) -> float:
        """The median."""
        known = self._of.get(asked.user) or self._of.get(None) or [self._prior_s]
        return (known[len(known) // 2] + known[(len(known) - 1) // 2]) / 2

    def add(self, asked: AskedJob, lasted_s: float) -> None:
        """One more."""
        for who in (asked.user, None):
            insort(self._of.setdefault(who, []), lasted_s)


class RollingTable:
    """The rolling estimate by names instead of numbers."""

    def __init__(self, decay: float, prior_s: float) -> None:
        self._rolling, self._kinds, self._users = Rolling(decay, prior_s), Kinds(), dict[str, int]()

    def estimate(self, asked: AskedJob) -> float:
        """P_R."""
        return self._rolling.estimate(*self._key(asked))

    def add(self, asked: AskedJob, lasted_s: float) -> None:
        """One more."""
        self._rolling.add(*self._key(asked), lasted_s)

    def _key(self, asked: AskedJob) -> tuple[int, int, int]:
        return self._users.setdefault(asked.user, len(self._users)), self._kinds.of(asked.name), asked.gpus
