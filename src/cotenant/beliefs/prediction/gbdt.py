"""The estimator `gbdt`: a rolling estimate P_R and a learned one P_M, each as of the job's submission. Seconds.

P_R is renewed whenever a job ends. P_M comes from gradient-boosted trees that are trained anew whenever the ended jobs
have grown by `every` or by a tenth, whichever is more, so that training costs what the log is long; on the latest
`window` of them. Until 100 jobs have ended P_R stands alone. Source: Helios, SC'21, section 4.2.2, where
the model is trained once.

Two losses, because "how long" has two answers when a few jobs last a thousand times as long as most:

* `median` (default): the trees correct, in logs and by absolute error, what the user's jobs lasted of late. Right by
  factors for the usual job.
* `mean`: the trees fit the expected duration (gamma deviance), of which lambda parts P_R and the rest P_M are
  believed, as in the paper. What an order by expected service wants, and what `qssf` takes.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cotenant.beliefs.prediction.features import Features, make_features
from cotenant.beliefs.prediction.past import known_since
from cotenant.core.errors import InputError, unknown
from cotenant.core.workload import Floats, Workload
from cotenant.learning.boosting import Boosting, fit

LOSSES = ("median", "mean")
_FIRST = 100  # ended jobs before the first training
_GROWTH = 0.1  # share of new ended jobs, if more than `every`, before the model is trained again
_LEAST_S = 1.0  # no job is believed to last less: a prediction of 0 would jump every queue


@dataclass(frozen=True, slots=True)
class Gbdt:
    """Parameters of the estimator."""

    loss: str = "median"
    share: float = 0.1  # lambda; for the mean only
    every: int = 250
    window: int = 50_000
    rounds: int = 100
    decay: float = 0.5
    prior_s: float = 3600.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise unknown("loss of estimator 'gbdt'", self.loss, LOSSES)
        checks = (
            (0 <= self.share <= 1, f"lambda={self.share:g} must lie between 0 and 1"),
            (self.every >= 10, f"every={self.every} must be at least 10 ended jobs"),
            (self.window >= self.every, f"window={self.window} must not be below every={self.every}"),
            (1 <= self.rounds <= 10_000, f"rounds={self.rounds} must lie between 1 and 10000 trees"),
            (0 < self.decay <= 1, f"decay={self.decay:g} must be above 0 and at most 1"),
            (0 < self.prior_s < np.inf, f"prior={self.prior_s:g} must be a positive number of seconds"),
        )
        for holds, what in checks:
            if not holds:
                raise InputError(f"estimator 'gbdt': {what}")


@dataclass(frozen=True, slots=True)
class PredictedDurations:
    """Beliefs in seconds, how often the model was trained, and the seconds that it took."""

    belief_s: Floats
    trainings: int
    training_s: float


def predict(work: Workload, how: Gbdt) -> PredictedDurations:
    """Believed durations, each from jobs that had ended before its submission."""
    ended = known_since(work)
    features = make_features(work, ended, how.decay, how.prior_s)
    told = time.perf_counter()
    order = np.argsort(ended, kind="stable")
    known = np.searchsorted(ended[order], work.submit_s, side="left")  # jobs ended before each submission
    belief = features.rolling_s.copy()
    batches = _batches(known, how.every)
    for first, last in batches:
        rows = order[max(known[first] - how.window, 0) : known[first]]
        learned_s = _learn(features, rows, work, slice(first, last), how)
        share = how.share if how.loss == "mean" else 0.0
        belief[first:last] = mix(features.rolling_s[first:last], learned_s, share)
    return PredictedDurations(np.maximum(belief, _LEAST_S), len(batches), time.perf_counter() - told)


def _batches(known: np.ndarray, every: int) -> list[tuple[int, int]]:
    """Rows [first, last) that one model predicts: it is trained when row `first` is submitted."""
    starts, need = [], _FIRST
    while True:
        first = int(np.searchsorted(known, need, side="left"))
        if first >= len(known):
            break
        starts.append(first)
        need = int(known[first]) + max(every, int(_GROWTH * known[first]))
    return list(pairwise([*starts, len(known)]))


def _learn(features: Features, rows: np.ndarray, work: Workload, wanted: slice, how: Gbdt) -> Floats:
    """P_M of the wanted rows after training on `rows`, s."""
    trees = Boosting(rounds=how.rounds, leaves=15, min_rows=30, seed=how.seed)
    table, duration_s = features.table, work.duration_s[rows]
    if how.loss == "mean":
        hours = np.maximum(duration_s, _LEAST_S) / 3600
        model = fit(table[rows], hours, replace(trees, objective="gamma"), features.categorical)
        return model.predict(table[wanted]) * 3600
    usual = features.usual
    target = np.log1p(duration_s) - usual[rows]
    model = fit(table[rows], target, replace(trees, objective="l1"), features.categorical)
    return np.expm1(model.predict(table[wanted]) + usual[wanted])


def mix(rolling_s: Floats, learned_s: Floats, share: float) -> Floats:
    """`share` (lambda) of P_R and the rest of P_M; P_R alone where P_M is not above 0."""
    return np.where(learned_s > 0, share * rolling_s + (1 - share) * learned_s, rolling_s)


_remembered: dict[bytes, PredictedDurations] = {}
_REMEMBER = 4


def predict_once(work: Workload, how: Gbdt) -> PredictedDurations:
    """`predict`, but the latest few answers are kept: comparing policies on one log trains once per process."""
    digest = hashlib.blake2b(repr((how, work.model.names)).encode(), digest_size=16)
    for column in (work.submit_s, work.duration_s, known_since(work), work.gpus, work.cpus):
        digest.update(column.tobytes())
    for codes in (work.user, work.tenant, work.model):
        digest.update(codes.code.tobytes())
    key = digest.digest()
    if key not in _remembered:
        if len(_remembered) >= _REMEMBER:
            del _remembered[next(iter(_remembered))]
        _remembered[key] = predict(work, how)
    return _remembered[key]
