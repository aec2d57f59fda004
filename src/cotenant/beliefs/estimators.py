"""Belief: what a policy thinks a job will last, as opposed to what the trace says.

Estimates are made once, at submission, and depend only on the job and on the past.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cotenant.beliefs.survey import surveyed
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Floats, Workload

if TYPE_CHECKING:
    from cotenant.beliefs.prediction.gbdt import Gbdt


@dataclass(frozen=True, slots=True)
class Estimator:
    """A named way to guess durations, as listed by the command line."""

    name: str
    about: str
    make: Callable[[Workload, int, dict[str, Value]], Floats]
    defaults: dict[str, Value] = field(default_factory=dict)


def _oracle(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    return workload.duration_s.copy()


def _noisy(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    """Duration times exp(error x N(0,1)): right in the median, off by a factor e^error one time in three.

    Row i takes the i-th draw of the stream, so a longer log keeps the noise of a shorter one.
    """
    error = float(params["error"])  # type: ignore[arg-type]
    if not 0 <= error < np.inf:
        raise InputError(f"estimator 'noisy': error={error:g} must be a number of at least 0")
    noise = np.random.default_rng(seed).standard_normal(len(workload))
    return np.asarray(workload.duration_s * np.exp(error * noise), np.float64)


def _survey(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    return surveyed(workload, seed)


def _mean(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    """Mean duration of the jobs with as many GPUs that could have finished before this one was submitted.

    "Could have": submit time plus duration, as if nobody had ever waited, so that the belief does not
    depend on the policy. Without such a job, the mean over all sizes; without any, `prior` seconds.
    """
    prior = float(params["prior"])  # type: ignore[arg-type]
    _positive("mean", prior)
    submit_s, duration_s = workload.submit_s, workload.duration_s
    everyone = np.ones(len(workload), np.bool_)
    belief = _mean_of_past(submit_s, duration_s, everyone, np.full(len(workload), prior))
    for size in np.unique(workload.gpus).tolist():
        rows = workload.gpus == size
        belief[rows] = _mean_of_past(submit_s, duration_s, rows, belief[rows])
    return belief


def _mean_of_past(submit_s: Floats, duration_s: Floats, rows: NDArray[np.bool_], fallback: Floats) -> Floats:
    submit, duration = submit_s[rows], duration_s[rows]
    order = np.argsort(submit + duration, kind="stable")
    ends = (submit + duration)[order]
    sums = np.concatenate([[0.0], np.cumsum(duration[order])])
    # A job of length 0 ends at its own submission; strictly earlier ends keep it out of its own estimate.
    count = np.searchsorted(ends, submit, side="left")
    return np.where(count > 0, sums[count] / np.maximum(count, 1), fallback)


def _rolling(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    from cotenant.beliefs.prediction.rolling import rolling

    decay, prior = float(params["decay"]), float(params["prior"])  # type: ignore[arg-type]
    if not 0 < decay <= 1:
        raise InputError(f"estimator 'rolling': decay={decay:g} must be above 0 and at most 1")
    return rolling(workload, decay, _positive("rolling", prior))


def _user_median(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    from cotenant.beliefs.prediction.rolling import user_median

    return user_median(workload, _positive("user-median", float(params["prior"])))  # type: ignore[arg-type]


def _gbdt(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    from cotenant.beliefs.prediction.gbdt import predict_once

    return predict_once(workload, gbdt_of(params, seed)).belief_s.copy()


def gbdt_of(params: dict[str, Value], seed: int) -> Gbdt:
    """The parameters of `gbdt` as an object, checked."""
    from cotenant.beliefs.prediction.gbdt import Gbdt

    renamed = {"lambda": "share", "prior": "prior_s"}
    return Gbdt(**{renamed.get(key, key): value for key, value in params.items()}, seed=seed)  # type: ignore[arg-type]


def _positive(name: str, prior: float) -> float:
    if not 0 < prior < np.inf:
        raise InputError(f"estimator '{name}': prior={prior:g} must be a positive number of seconds")
    return prior


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Estimator("oracle", "the duration of the trace itself", _oracle),
        Estimator("noisy", "the duration times a log-normal error of sigma `error`", _noisy, {"error": 0.5}),
        Estimator("survey", "the duration, wrong as often and as far as users say they are (Chronus)", _survey),
        Estimator("mean", "mean duration of earlier jobs with as many GPUs", _mean, {"prior": 3600.0}),
        Estimator("user-median", "median duration of the user's earlier jobs", _user_median, {"prior": 3600.0}),
        Estimator(
            "rolling",
            "earlier jobs of the same user, with a like name or as many GPUs (Helios)",
            _rolling,
            {"decay": 0.5, "prior": 3600.0},
        ),
        Estimator(
            "gbdt",
            "gradient-boosted trees on the log's own past, with the rolling estimate (Helios); loss=median or mean",
            _gbdt,
            {
                "loss": "median",
                "lambda": 0.1,
                "every": 250,
                "window": 50_000,
                "rounds": 100,
                "decay": 0.5,
                "prior": 3600.0,
            },
        ),
    )
}
"""Every estimator: name, about, defaults."""


def estimate(name: str, workload: Workload, seed: int = 0) -> Floats:
    """Believed durations in seconds; `name` may carry parameters: `noisy:error=0.5`."""
    spec = Spec.parse(name)
    if spec.name not in ESTIMATORS:
        raise unknown("estimator", spec.name, ESTIMATORS)
    chosen = ESTIMATORS[spec.name]
    return chosen.make(workload, seed, typed_params(spec, chosen.defaults, "estimator"))
