"""The predictor behind Horus: step time, memory and utilisation from graph features, trained on our H200 measurements.

A ridge regression of logarithms on log FLOPs, log parameters, log batch and log operators. 26 points of eight models
are few: LightGBM on the same points is worse for every answer when a model is left out, so it is not what ships;
`evaluate` prints both beside the error of predicting the mean. Utilisation is the share of a step in which kernels were
at work (`measured.busy`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cotenant.beliefs.predictor.graph import GraphFeatures
from cotenant.core.together import Predicted
from cotenant.core.workload import Floats
from cotenant.workload.profiles import measured
from cotenant.workload.profiles.h200 import find
from cotenant.workload.profiles.roofline import CONTEXT_MIB

ANSWERS = ("step time", "memory", "utilisation")
_RIDGE = 10.0
_LEAST_BUSY = 0.05  # what the training data has at the least is 0.09
_TREES, _LEAVES, _LEAST_IN_LEAF = 60, 2, 3  # of LightGBM: the best of a small search by the error that is printed

Fit = Callable[[Floats, Floats], Callable[[Floats], Floats]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one step alone on one H200."""

    step_s: float
    memory_mib: float
    utilisation: float  # share of time in which the GPU is busy, 0 to 1


@lru_cache(maxsize=1)
def _table() -> tuple[Floats, Floats, tuple[str, ...]]:
    """Logarithms of features, and of the answers, for everything measured; and whose they are."""
    features, answers, models = [], [], []
    for (model, batch), step in measured.steps().items():
        step_s = max(step.host_s, step.gpu_s)
        features.append(_features(_known(model, batch)))
        answers.append((step_s, step.memory_mib, measured.busy()[model, batch]))
        models.append(model)
    return np.array(features), np.log(np.array(answers)), tuple(models)


def _known(model: str, batch: int) -> GraphFeatures:
    """Graph features of a measured model."""
    step = measured.steps()[model, batch]
    return GraphFeatures(step.flops, step.parameters, batch, measured.OPERATORS[model])


def _features(graph: GraphFeatures) -> Floats:
    raw = np.array([graph.flops, graph.parameters, graph.batch, graph.operators], np.float64)
    return np.log(np.maximum(raw, 1.0))


def _bounded(answers: Floats) -> Floats:
    """Logarithms of answers, with a utilisation that can be."""
    answers[:, 2] = np.clip(answers[:, 2], np.log(_LEAST_BUSY), 0.0)
    return answers


def _ridge(features: Floats, answers: Floats) -> Callable[[Floats], Floats]:
    centre, mean = features.mean(axis=0), answers.mean(axis=0)
    x = features - centre
    slope = np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ (answers - mean))
    return lambda asked: mean + (asked - centre) @ slope


def _mean(features: Floats, answers: Floats) -> Callable[[Floats], Floats]:
    return lambda asked: np.tile(answers.mean(axis=0), (len(asked), 1))


def _lightgbm(features: Floats, answers: Floats) -> Callable[[Floats], Floats]:
    import lightgbm

    params = {
        "objective": "regression", "num_leaves": _LEAVES, "min_data_in_leaf": _LEAST_IN_LEAF, "min_data_in_bin": 1,
        "learning_rate": 0.1, "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0,
    }  # fmt: skip
    trees = [lightgbm.train(params, lightgbm.Dataset(features, answer), _TREES) for answer in answers.T]
    return lambda asked: np.stack([tree.predict(asked) for tree in trees], axis=1)


@lru_cache(maxsize=16)
def _trained(without: str) -> Callable[[Floats], Floats]:
    """The predictor that ships, trained on all measured models but one ('': on all)."""
    features, answers, models = _table()
    kept = np.array([model != without for model in models])
    return _ridge(features[kept], answers[kept])


def predict(graph: GraphFeatures, without: str = "") -> Prediction:
    """Step time, memory and utilisation of a model on an H200; `without` names a model not to learn from."""
    answers = _bounded(_trained(without)(_features(graph)[None, :]))
    step_s, memory, utilisation = np.exp(answers[0]).tolist()
    return Prediction(step_s, memory, utilisation)


def predict_known(name: str) -> Prediction | None:
    """The prediction for a model that was measured, by a predictor that has not seen it; None for other models.

    For simulations: predicting a model from measurements of itself would be too easy.
    """
    key = find(name)
    return None if key is None else predict(_known(*key), without=key[0])


def predicted_of(kinds: Sequence[tuple[str, int]]) -> Predicted | None:
    """What a policy that predicts believes of kinds of jobs (model, GPUs); None where it knows none of them."""
    found = [predict_known(model) for model, _ in kinds]
    if not any(found):
        return None
    return Predicted(
        busy=np.array([np.nan if one is None else one.utilisation for one in found]),
        memory_gib=np.array([np.nan if one is None else (one.memory_mib + CONTEXT_MIB) / 1024 for one in found]),
    )


def evaluate() -> list[dict[str, float | str | None]]:
    """Leave one model out: root mean square error of logarithms (RMSLE) by answer, and that of the mean.

    `rmsle` is what ships, `rmsle_lightgbm` the alternative (None where the package is not installed).
    """
    errors: dict[str, Floats | None] = {"rmsle": _left_out(_ridge), "rmsle_of_mean": _left_out(_mean)}
    try:
        errors["rmsle_lightgbm"] = _left_out(_lightgbm)
    except ImportError:
        errors["rmsle_lightgbm"] = None
    return [
        {"predicts": name, **{kind: None if error is None else float(error[k]) for kind, error in errors.items()}}
        for k, name in enumerate(ANSWERS)
    ]


def _left_out(fit: Fit) -> Floats:
    """RMSLE of each answer when every model in turn is predicted from the others."""
    features, answers, models = _table()
    wrong = np.zeros_like(answers)
    for name in dict.fromkeys(models):
        out = np.array([model == name for model in models])
        wrong[out] = _bounded(fit(features[~out], answers[~out])(features[out])) - answers[out]
    return np.asarray(np.sqrt((wrong**2).mean(axis=0)))
