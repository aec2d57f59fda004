"""Features of a model's graph: operators, floating point operations, parameters, batch.

Multiplications dominate, so FLOPs count matrix products and convolutions: two per multiply-add, three passes for
forward and backward. Both readers import their library only when called.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from cotenant.core.errors import InputError

_PASSES = 3  # forward, and backward to weights and to inputs


@dataclass(frozen=True, slots=True)
class GraphFeatures:
    """What the predictor looks at. `flops` are those of one training step on one GPU."""

    flops: float
    parameters: float
    batch: int
    operators: int = 0


def of_onnx(path: str | Path, batch: int = 1) -> GraphFeatures:
    """Features of an ONNX file whose first input dimension is the batch (or is left open: then `batch`)."""
    try:
        import onnx
    except ImportError:
        raise InputError("reading ONNX files needs the package onnx: pip install onnx") from None
    try:
        model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
    except Exception as error:
        raise InputError(f"{path}: not an ONNX model ({type(error).__name__})") from None
    graph = model.graph
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    parameters = float(sum(prod(dims) for dims in shapes.values()))
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        shapes.setdefault(value.name, [dim.dim_value or batch for dim in dims])
    flops = sum(_onnx_flops(node, shapes) for node in graph.node)
    return GraphFeatures(_PASSES * flops, parameters, batch, len(graph.node))


def _onnx_flops(node: Any, shapes: dict[str, list[int]]) -> float:
    out = shapes.get(node.output[0], []) if node.output else []
    weight = shapes.get(node.input[1], []) if len(node.input) > 1 else []
    if node.op_type == "Conv" and len(weight) > 2:
        return 2.0 * prod(out) * prod(weight[1:])
    if node.op_type in ("MatMul", "Gemm") and weight:
        inner = weight[-2] if len(weight) > 1 else weight[0]
        return 2.0 * prod(out) * inner
    return 0.0


def of_torch(module: Any, *inputs: Any) -> GraphFeatures:
    """Features of a PyTorch module, run once on example inputs whose first dimension is the batch."""
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        raise InputError("looking into PyTorch modules needs the package torch") from None
    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    parameters = float(sum(weight.numel() for weight in module.parameters()))
    batch = int(inputs[0].shape[0]) if inputs and inputs[0].dim() else 1
    operators = sum(1 for _ in module.modules())
    return GraphFeatures(_PASSES * float(counter.get_total_flops()), parameters, batch, operators)
