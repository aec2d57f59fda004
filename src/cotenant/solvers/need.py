"""Required rates as data: what each job must reach for a common level theta.

| policy | theta | required rate | work | span | elapsed |
|---|---|---|---|---|---|
| max-min, weighted | t, large | t * weight | weight | | |
| makespan T | 1/T, large | work / T | work left | | |
| finish-time fairness | rho, small | work / (rho * span - elapsed) | work left | alone on its share | so far |

So two families cover all: `work * theta`, and `work / (span * theta - elapsed)`. Jobs with work 0 need nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cotenant.solvers.answer import Floats, column
from cotenant.solvers.errors import SolverError


@dataclass(frozen=True, slots=True)
class Need:
    """The required rate of each job as a function of theta; with `span` small theta is wanted, else large."""

    work: Floats
    span: Floats | None = None
    elapsed: Floats | None = None

    def __post_init__(self) -> None:
        if self.span is not None and ((self.span <= 0.0) & (self.work > 0.0)).any():
            raise SolverError("the isolated finish time of a job with work left must be positive")

    @property
    def falling(self) -> bool:
        """Whether small theta is wanted."""
        return self.span is not None

    @property
    def idle(self) -> float:
        """The theta of nobody."""
        return 0.0 if self.falling else np.inf

    def take(self, rows: Floats | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Need:
        """The needs of some jobs."""
        span = None if self.span is None else self.span[rows]
        return Need(self.work[rows], span, None if self.elapsed is None else self.elapsed[rows])

    def rate(self, theta: float) -> Floats:
        """Required rates at theta."""
        if self.span is None or self.elapsed is None:
            return self.work * theta
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.work > 0.0, self.work / (self.span * theta - self.elapsed), 0.0)

    def slope(self, theta: float) -> Floats:
        """Their derivative by theta."""
        if self.span is None or self.elapsed is None:
            return self.work.copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            room = self.span * theta - self.elapsed
            return np.where(self.work > 0.0, -self.work * self.span / (room * room), 0.0)

    def attained(self, rate: Floats) -> float:
        """The theta that given rates deliver."""
        rows = self.work > 0.0
        if not rows.any():
            return self.idle
        with np.errstate(divide="ignore"):
            if self.span is None or self.elapsed is None:
                return float((rate[rows] / self.work[rows]).min())
            return float(((self.elapsed[rows] + self.work[rows] / rate[rows]) / self.span[rows]).max())


def late_need(jobs: int, work: ArrayLike, elapsed: ArrayLike, fair: ArrayLike) -> Need:
    """Finish-time fairness: small (elapsed + work / rate) / fair."""
    return Need(column(work, jobs, "work"), column(fair, jobs, "fair"), column(elapsed, jobs, "elapsed"))
