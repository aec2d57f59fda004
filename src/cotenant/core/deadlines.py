"""What finishing on time is worth: falling steps of value per job, and how much of it a run earned.

A job with a deadline is worth its first step if it ends by then, the next step if it ends by that one, and nothing
after the last (Chronus, SoCC'21). A strict deadline is one step. Jobs without any are best effort and stay out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats, Workload

STRICT_VALUE = 10.0  # what a job with one deadline and no value of its own is worth


@dataclass(frozen=True, slots=True)
class Steps:
    """Jobs x steps: moments in seconds, rising, and what ending by then is worth, falling; NaN and 0 where no step."""

    time_s: np.ndarray
    value: np.ndarray

    def earned(self, finish_s: Floats) -> Floats:
        """Value of each job at its end; 0 when late, unfinished (NaN) or best effort."""
        reached = np.asarray(finish_s, np.float64)[:, None] <= self.time_s + 1e-6
        return np.asarray(np.where(reached, self.value, 0.0).max(axis=1, initial=0.0))

    @property
    def most(self) -> Floats:
        """What each job is worth at best; 0 for best effort."""
        return np.asarray(self.value.max(axis=1, initial=0.0))

    @property
    def last_s(self) -> Floats:
        """After this moment a job is worth nothing; NaN for best effort."""
        known = ~np.isnan(self.time_s)
        return np.where(known.any(axis=1), np.where(known, self.time_s, -np.inf).max(axis=1, initial=-np.inf), np.nan)

    def take(self, rows: np.ndarray) -> Steps:
        """Some of the jobs."""
        return Steps(self.time_s[rows], self.value[rows])


def strict_steps(deadline_s: Floats) -> Steps:
    """One step for whoever has a deadline."""
    times = np.asarray(deadline_s, np.float64)[:, None]
    return Steps(times, np.where(np.isnan(times), 0.0, STRICT_VALUE))


def steps_of(work: Workload) -> Steps:
    """The steps of a workload: those of its source where it has them, else its deadlines as strict ones."""
    lists, values = work.extra.get("expect_time_s"), work.extra.get("expect_value")
    if lists is None:
        return strict_steps(work.deadline_s)
    width = max((len(steps) for steps in lists.tolist()), default=1)
    times, worth = np.full((len(work), width), np.nan), np.zeros((len(work), width))
    for row, (after_s, deadline_s) in enumerate(zip(lists.tolist(), work.deadline_s.tolist(), strict=True)):
        if np.isnan(deadline_s):
            continue
        given = [STRICT_VALUE] * len(after_s) if values is None else values[row]
        count = min(len(after_s), len(given))
        times[row, :count] = work.submit_s[row] + np.array(after_s[:count])
        worth[row, :count] = given[:count]
    return Steps(times, worth)


def deadline_metrics(steps: Steps, finish_s: Floats, now_s: float) -> dict[str, float | int | None]:
    """Weighted deadline miss rate (mean of 1 - value / best value) and value earned, over jobs whose end is known.

    A job that has not ended counts once its last step has passed; before that nobody knows.
    """
    most = steps.most
    known = (most > 0) & (np.isfinite(finish_s) | (steps.last_s < now_s))
    if not known.any():
        return {"wdmr": None, "deadline_jobs": int((most > 0).sum()), "deadlines_missed": None, "value_earned": None}
    earned = steps.earned(finish_s)[known]
    return {
        "wdmr": float((1.0 - earned / most[known]).mean()),
        "deadline_jobs": int((most > 0).sum()),
        "deadlines_missed": int((earned <= 0).sum()),
        "value_earned": float(earned.sum()),
    }
