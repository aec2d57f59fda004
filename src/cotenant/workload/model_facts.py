"""Ten models measured by the Tiresias authors (NSDI'19): skew, cost of preemption, speed when spread.

Facts from the paper's table and figures; performance ratios and resume times are read off figures (about 3
%). `skew` is the share of the largest tensor in the model. Names are matched without regard to case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats, Ints, Workload


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model. Resume seconds for 1, 2 and 8 workers; spread speed with 8 workers against consolidated."""

    skew: float
    spread_speed: float
    checkpoint_s: float
    resume_s: tuple[float, float, float]


FACTS: dict[str, ModelFacts] = {
    "vgg19": ModelFacts(0.715, 0.71, 2.7, (18, 45, 49)),
    "vgg16": ModelFacts(0.743, 0.725, 2.3, (17.5, 43, 48.5)),
    "vgg11": ModelFacts(0.773, 0.76, 1.9, (15, 42, 46)),
    "alexnet": ModelFacts(0.610, 0.80, 1.3, (8, 36.5, 38)),
    "resnet152": ModelFacts(0.039, 1.035, 26.3, (64, 66.5, 68)),
    "resnet101": ModelFacts(0.053, 1.055, 17.8, (44.5, 45.5, 47)),
    "resnet50": ModelFacts(0.092, 1.08, 9.4, (25, 24.5, 26)),
    "inception4": ModelFacts(0.036, 1.02, 22.2, (57.5, 60, 61)),
    "inception3": ModelFacts(0.086, 1.055, 14.1, (37.5, 38, 39)),
    "googlenet": ModelFacts(0.146, 1.065, 5.7, (17, 16, 16.5)),
}
_WORKERS = np.array([1.0, 2.0, 8.0])


def facts_of(model: str) -> ModelFacts | None:
    """The facts of a model, or None."""
    return FACTS.get(model.strip().lower())


def skew(models: Sequence[str]) -> Floats:
    """Skew per model name; NaN where it is not known."""
    found = [facts_of(model) for model in models]
    return np.array([np.nan if fact is None else fact.skew for fact in found], np.float64)


def spread_speed(model: str) -> float:
    """Speed over more nodes than needed against consolidated; 1 where it is not known."""
    fact = facts_of(model)
    return 1.0 if fact is None else fact.spread_speed


def preemption_cost_s(model: str, gpus: Ints | int) -> Floats:
    """Checkpoint plus resume in seconds, linear between 1, 2 and 8 workers and flat above; NaN if unknown."""
    workers = np.asarray(gpus, np.float64)
    fact = facts_of(model)
    if fact is None:
        return np.full(workers.shape, np.nan)
    return np.asarray(fact.checkpoint_s + np.interp(workers, _WORKERS, np.array(fact.resume_s)), np.float64)


def preemption_costs_s(workload: Workload) -> Floats:
    """`preemption_cost_s` of every job; NaN where the model is not known."""
    cost = np.full(len(workload), np.nan)
    for code, name in enumerate(workload.model.names):
        if facts_of(name) is not None:
            rows = workload.model.code == code
            cost[rows] = preemption_cost_s(name, workload.gpus[rows])
    return cost
