"""Step time, memory and utilisation of a model that has never run, from its graph (Horus, HotCloud'20 and TPDS'22)."""

from cotenant.beliefs.predictor.graph import GraphFeatures
from cotenant.beliefs.predictor.model import Prediction, evaluate, predict, predict_known, predicted_of
from cotenant.beliefs.predictor.onnx_file import of_onnx
from cotenant.beliefs.predictor.torch_module import of_torch

__all__ = ["GraphFeatures", "Prediction", "evaluate", "of_onnx", "of_torch", "predict", "predict_known", "predicted_of"]
