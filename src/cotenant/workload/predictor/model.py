"""The predictor behind Horus: step time and memory from graph features, trained on our H200 measurements.

26 points of eight models are few: trees and boosting memorise models, so this is a ridge regression of logarithms on
log FLOPs, log parameters and log batch, three coefficients each. Utilisation is derived from the two (time that the
FLOPs need at 60 % of peak over the step time, at least a quarter) until it is measured. `evaluate` leaves each model
out in turn and prints the error beside that of predicting the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cotenant.core.workload import Floats
from cotenant.workload.predictor.graph import GraphFeatures
from cotenant.workload.profiles import measured
from cotenant.workload.profiles.roofline import EFFICIENCY, GPUS

_RIDGE = 10.0
_LEAST_BUSY = 0.25


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one step alone on one H200."""

    step_s: float
    memory_mib: float
    utilisation: float  # 0 to 1


def _table() -> tuple[Floats, Floats, list[str]]:
    """Logarithms of features, and of (step time, memory), for everything measured."""
    rows, answers, models = [], [], []
    for (model, batch), step in measured.steps().items():
        rows.append((step.flops, step.parameters, batch))
        answers.append((max(step.host_s, step.gpu_s), step.memory_mib))
        models.append(model)
    return np.log(np.array(rows)), np.log(np.array(answers)), models


def _fit(features: Floats, answers: Floats) -> tuple[Floats, Floats, Floats]:
    """Centre, mean answer and coefficients of a ridge regression."""
    centre, mean = features.mean(axis=0), answers.mean(axis=0)
    x = features - centre
    return centre, mean, np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ (answers - mean))


@lru_cache(maxsize=1)
def _trained() -> tuple[Floats, Floats, Floats]:
    features, answers, _ = _table()
    return _fit(features, answers)


def predict(graph: GraphFeatures) -> Prediction:
    """Step time, memory and utilisation of a model on an H200."""
    centre, mean, slope = _trained()
    x = np.log(np.maximum([graph.flops, graph.parameters, graph.batch], 1.0))
    step_s, memory = np.exp(mean + (x - centre) @ slope).tolist()
    needed_s = graph.flops / (EFFICIENCY * GPUS[measured.REFERENCE].flops)
    return Prediction(step_s, memory, float(np.clip(needed_s / step_s, _LEAST_BUSY, 1.0)))


def evaluate() -> list[dict[str, float | str]]:
    """Leave one model out: root mean square error of logarithms (RMSLE), ours and that of the mean, by answer."""
    features, answers, models = _table()
    ours, means = np.zeros_like(answers), np.zeros_like(answers)
    for name in dict.fromkeys(models):
        out = np.array([model == name for model in models])
        centre, mean, slope = _fit(features[~out], answers[~out])
        ours[out] = mean + (features[out] - centre) @ slope - answers[out]
        means[out] = mean - answers[out]
    return [
        {
            "predicts": name,
            "rmsle": float(np.sqrt((ours[:, k] ** 2).mean())),
            "rmsle_of_mean": float(np.sqrt((means[:, k] ** 2).mean())),
        }
        for k, name in enumerate(("step time", "memory"))
    ]
