"""Step time, memory and utilisation of a model that has never run, from its graph (Horus, HotCloud'20 and TPDS'22)."""

from cotenant.workload.predictor.graph import GraphFeatures, of_onnx, of_torch
from cotenant.workload.predictor.model import Prediction, evaluate, predict

__all__ = ["GraphFeatures", "Prediction", "evaluate", "of_onnx", "of_torch", "predict"]
