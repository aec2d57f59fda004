"""Belief: what a policy thinks a job will last, as opposed to what the trace says.

Estimates are made once, at submission, and depend only on the job and on the past.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cotenant.beliefs.survey import surveyed
from cotenant.core.errors import InputError, unknown
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Floats, Workload

if TYPE_CHECKING:
    from cotenant.beliefs.prediction.gbdt import Gbdt
    from cotenant.beliefs.prediction.learners import PastTable
    from cotenant.beliefs.prediction.past import Learner


@dataclass(frozen=True, slots=True)
class Estimator:
    """A named way to guess durations, as listed by the command line."""

    name: str
    about: str
    make: Callable[[Workload, int, dict[str, Value]], Floats]
    defaults: dict[str, Value] = field(default_factory=dict)
    live: bool = False  # learns job by job: see `make_learner`


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


def _limit(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    """The time limit that its user gave; the duration where the log has none."""
    limit_s = np.asarray(workload.extra.get("time_limit_s", np.full(len(workload), np.nan)), np.float64)
    return np.where(np.isfinite(limit_s) & (limit_s > 0), np.maximum(limit_s, workload.duration_s), workload.duration_s)


def _survey(workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    return surveyed(workload, seed)


def _learned(name: str, workload: Workload, seed: int, params: dict[str, Value]) -> Floats:
    """Of every job what its learner says at its submission, from jobs that could have ended before.

    "Could have": submit time plus duration, as if nobody had ever waited, so that the belief does not depend on the
    policy.
    """
    from cotenant.beliefs.prediction.past import believed

    return believed(workload, _learner(name, params))


def _learner(name: str, params: dict[str, Value]) -> Learner:
    from cotenant.beliefs.prediction import learners
    from cotenant.beliefs.prediction.shrunk import Shrunk

    prior_s = _positive(name, float(params["prior"]))  # type: ignore[arg-type]
    if name == "shrunk":
        return Shrunk(prior_s)
    if name == "rolling":
        decay = float(params["decay"])  # type: ignore[arg-type]
        if not 0 < decay <= 1:
            raise InputError(f"estimator 'rolling': decay={decay:g} must be above 0 and at most 1")
        return learners.Learning(learners.RollingTable(decay, prior_s))
    tables: dict[str, Callable[[float], PastTable]] = {
        "constant": learners.Constant, "mean": learners.SizeMeans, "user-median": learners.UserMedians,
    }  # fmt: skip
    return learners.Learning(tables[name](prior_s))


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


def _live(name: str, about: str, **more: Value) -> Estimator:
    """One that learns job by job, and so in the service too."""
    return Estimator(name, about, partial(_learned, name), {**more, "prior": 3600.0}, live=True)


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Estimator("oracle", "the duration of the trace itself", _oracle),
        Estimator("noisy", "the duration times a log-normal error of sigma `error`", _noisy, {"error": 0.5}),
        Estimator("survey", "the duration, wrong as often and as far as users say they are (Chronus)", _survey),
        Estimator("limit", "the time limit that the user gave (Slurm); the duration where there is none", _limit),
        _live("constant", "`prior` seconds for everybody: an order by GPUs alone, for comparison"),
        _live("mean", "mean duration of earlier jobs with as many GPUs"),
        _live("user-median", "median duration of the user's earlier jobs"),
        _live("rolling", "earlier jobs of the same user, with a like name or as many GPUs (Helios)", decay=0.5),
        _live("shrunk", "means of ever narrower circles (size, user, name), each shrunk towards the wider one"),
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
    chosen, params = _chosen(name)
    return chosen.make(workload, seed, params)


def make_learner(name: str) -> Learner:
    """The same estimator for a service, which learns from its own finished jobs; not all of them can."""
    chosen, params = _chosen(name)
    if not chosen.live:
        able = ", ".join(one.name for one in ESTIMATORS.values() if one.live)
        raise InputError(f"estimator '{chosen.name}' needs a whole log; a service can learn by: {able}")
    return _learner(chosen.name, params)


def _chosen(name: str) -> tuple[Estimator, dict[str, Value]]:
    spec = Spec.parse(name)
    if spec.name not in ESTIMATORS:
        raise unknown("estimator", spec.name, ESTIMATORS)
    chosen = ESTIMATORS[spec.name]
    return chosen, typed_params(spec, chosen.defaults, "estimator")
