"""How wrong is an estimator? Errors of beliefs against the durations of the log, beside simple baselines.

MAPE is dominated by short jobs believed to be long; the median relative error and the log error say more. Relative
errors are |belief - duration| / duration with durations of at least 1 s; the log error is the mean of
|ln(belief / duration)|, so that 0.69 is a factor of two either way; the rank correlation is Spearman's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from cotenant.beliefs.estimators import ESTIMATORS, estimate, gbdt_of
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, typed_params
from cotenant.core.workload import Floats, Workload

BASELINES = ("mean", "user-median", "rolling", "oracle")
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Errors:
    """One row of the table. `wall_s` is the time that the beliefs of the whole log took, training included."""

    estimator: str
    jobs: int
    mape: float
    median_relative: float
    log_error: float
    rank_correlation: float
    within_2x: float
    gpu_time_rank_correlation: float
    wall_s: float
    trainings: int = 0
    training_s: float = 0.0


def errors_of(name: str, work: Workload, belief_s: Floats, wall_s: float = 0.0) -> Errors:
    """Compare beliefs with durations."""
    truth, belief = np.maximum(work.duration_s, _LEAST_S), np.maximum(belief_s, _LEAST_S)
    relative = np.abs(belief - truth) / truth
    logs = np.abs(np.log(belief / truth))
    return Errors(
        estimator=name,
        jobs=len(work),
        mape=float(relative.mean()),
        median_relative=float(np.median(relative)),
        log_error=float(logs.mean()),
        rank_correlation=spearman(belief, truth),
        within_2x=float((logs <= np.log(2) + 1e-12).mean()),
        gpu_time_rank_correlation=spearman(belief * work.gpus, truth * work.gpus),
        wall_s=wall_s,
    )


def evaluate(estimator: str, work: Workload, seed: int = 0) -> list[Errors]:
    """The estimator first, then the baselines that it is not itself."""
    if not len(work):
        raise InputError(f"{work.source}: no jobs to evaluate an estimator on")
    names = [estimator, *(name for name in BASELINES if name != estimator)]
    return [_timed(name, work, seed) for name in names]


def _timed(name: str, work: Workload, seed: int) -> Errors:
    began = time.perf_counter()
    spec = Spec.parse(name)
    if spec.name != "gbdt":
        belief_s = estimate(name, work, seed)
        return errors_of(name, work, belief_s, time.perf_counter() - began)
    from cotenant.beliefs.prediction.gbdt import predict

    found = predict(work, gbdt_of(typed_params(spec, ESTIMATORS["gbdt"].defaults, "estimator"), seed))
    row = errors_of(name, work, found.belief_s, time.perf_counter() - began)
    return replace(row, trainings=found.trainings, training_s=found.training_s)


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation with mean ranks on ties; NaN where one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else float("nan")


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse.reshape(-1)], np.float64)
