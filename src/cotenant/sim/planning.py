"""The smallest cluster or quota, or the largest load, that meets a goal: a search by halving, one simulation per look.

More nodes or quota are taken to help, and less load, which holds but for rare anomalies of packing: what is found meets
the goal and its neighbour does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import seconds_of
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Floats

_PER_JOB = ("queue", "jct")
_STATISTICS: dict[str, Callable[[Floats], float]] = {
    "avg": lambda values: float(values.mean()), "max": lambda values: float(values.max()),
    **{f"p{q}": lambda values, q=q: float(np.percentile(values, q)) for q in (50, 75, 90, 95, 99)},  # type: ignore[misc]
}  # fmt: skip
METRICS = (
    *(f"{how}_{what}" for what in _PER_JOB for how in _STATISTICS),
    "makespan",
    "utilization",
    "missed",
    "finished",
)


@dataclass(frozen=True, slots=True)
class Goal:
    """`p95_queue<1h`: a number of a run, and what it has to be. Times are seconds."""

    metric: str
    sign: str
    limit: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read it, or say what is wrong."""
        match = re.fullmatch(r"\s*(\w+?)(?:_s)?\s*(<=|>=|<|>)\s*(\S+)\s*", text)
        if match is None:
            raise InputError(f"--goal '{text}': write e.g. p95_queue<1h, avg_jct<2h or utilization>0.7")
        metric, sign, value = match.groups()
        if metric not in METRICS:
            raise unknown("metric in --goal", metric, METRICS)
        timed = metric.split("_")[-1] in _PER_JOB or metric == "makespan"
        try:
            limit = (
                seconds_of(value, f"--goal '{text}':")
                if timed
                else float(value.rstrip("%")) / (100 if "%" in value else 1)
            )
        except ValueError:
            raise InputError(f"--goal '{text}': '{value}' is not a number") from None
        return cls(metric, sign, limit, text.strip())

    def value(self, outcome: Outcome, of: NDArray[np.bool_] | None = None) -> float:
        """The number of a run, of these jobs only where they are given; jobs that did not finish waited for ever."""
        if self.metric == "makespan":
            return float(str(outcome.summary["makespan_s"]))
        if self.metric == "utilization":
            return float(str(outcome.summary["gpu_utilization"]))
        if self.metric == "missed":
            return float(str(outcome.summary.get("wdmr", 0.0)))
        asked = outcome.measured if of is None else outcome.measured & of
        if self.metric == "finished":
            return float((outcome.finished & asked).sum() / max(asked.sum(), 1))
        how, what = self.metric.split("_")
        column = outcome.queue_s if what == "queue" else outcome.jct_s
        values = np.where(outcome.finished, column, np.inf)[asked]
        return _STATISTICS[how](values)

    def met(self, value: float) -> bool:
        """Whether a number will do."""
        return {"<": value < self.limit, "<=": value <= self.limit, ">": value > self.limit, ">=": value >= self.limit}[
            self.sign
        ]


@dataclass(frozen=True, slots=True)
class Look:
    """One simulation of a search: what was tried, the number that came out (None: not playable), whether it will do."""

    tried: float
    value: float | None
    met: bool


def search(candidates: Sequence[float], look: Callable[[float], Look]) -> tuple[Look | None, list[Look]]:
    """The first candidate that meets the goal, given that all after it do too; and every look, in order."""
    looks: dict[int, Look] = {}

    def at(index: int) -> Look:
        if index not in looks:
            looks[index] = look(candidates[index])
        return looks[index]

    low, high = 0, len(candidates) - 1
    if not at(high).met:
        return None, list(looks.values())
    while low < high:
        middle = (low + high) // 2
        if at(middle).met:
            high = middle
        else:
            low = middle + 1
    return at(high), list(looks.values())
