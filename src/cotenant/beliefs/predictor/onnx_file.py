"""Graph features of an ONNX file, read and shaped by the package `onnx`.

The first dimension of the first input is the batch. Open dimensions get values, then shapes are inferred anew; a
multiplying operator whose shapes stay unknown is an error, not a zero. Weights need not be there: files whose data
lies elsewhere are read without it.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

from cotenant.beliefs.predictor.graph import PASSES, GraphFeatures
from cotenant.core.errors import InputError

_RECURRENT = ("LSTM", "GRU", "RNN")
_FLOAT_TYPES = (1, 10, 11, 16)  # TensorProto: float, float16, double, bfloat16
_STATISTICS = slice(3, 5)  # inputs of BatchNormalization that are no parameters: running mean and variance

Shapes = dict[str, list[int]]


def of_onnx(path: str | Path, batch: int | None = None, dims: dict[str, int] | None = None) -> GraphFeatures:
    """Features of an ONNX file at a batch size; `dims` gives values to other open dimensions by their names.

    A file with a fixed batch is scaled to the one asked for. Without `batch`: the file's own, or 1 where it is open.
    """
    if batch is not None and batch < 1:
        raise InputError(f"batch {batch} must be at least 1")
    model = _load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    own = _close(path, inputs, batch or 1, dims or {})
    shapes = _infer(path, model)
    flops, operators = 0.0, 0
    for node in model.graph.node:
        multiplied = _flops(path, node, shapes)
        flops += multiplied[0]
        operators += multiplied[1]
    wanted = batch or own
    return GraphFeatures(PASSES * flops * wanted / own, _parameters(model.graph), wanted, operators)


def _load(path: str | Path) -> Any:
    """The model, its own functions put in line."""
    try:
        import onnx
        import onnx.inliner
    except ImportError:
        raise InputError("reading ONNX files needs the package onnx: pip install 'cotenant[predict]'") from None
    try:
        model = onnx.load(str(path), load_external_data=False)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}; name an ONNX file") from None
    except Exception as error:  # protobuf and the inliner raise types of their own
        raise InputError(f"{path}: not an ONNX model ({type(error).__name__})") from None
    if not model.ir_version or not model.graph.node:
        raise InputError(f"{path}: not an ONNX model (it holds no operators)")
    return model


def _close(path: str | Path, inputs: list[Any], batch: int, dims: dict[str, int]) -> int:
    """Give open dimensions of the inputs values; the batch that the file then has."""
    values = dict(dims)
    own = 0
    for number, value in enumerate(inputs):
        for place, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.dim_value:
                if place == 0 and number == 0:
                    values.setdefault(dim.dim_param, batch)
                size = values.get(dim.dim_param, batch if place == 0 else 0) if dim.dim_param else batch
                if size < 1 or (place > 0 and not dim.dim_param):
                    name = dim.dim_param or f"number {place}"
                    raise InputError(
                        f"{path}: input '{value.name}' leaves dimension {name} open; give it a size: --dim {name}=128"
                    )
                dim.dim_value = size
            if place == 0 and not own:
                own = int(dim.dim_value)
    return own or batch


def _infer(path: str | Path, model: Any) -> Shapes:
    """Shapes of all tensors, worked out anew from the inputs; tensors of unknown shape are left out."""
    import onnx

    graph = model.graph
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:120]
        raise InputError(f"{path}: shapes do not fit together ({reason})") from None
    shapes: Shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    shapes[node.output[0]] = list(attribute.t.dims)
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes.setdefault(value.name, [dim.dim_value for dim in dims])
    return shapes


def _flops(path: str | Path, node: Any, shapes: Shapes) -> tuple[float, int]:
    """FLOPs of one forward pass through an operator, and as how many operators it counts."""
    kind = node.op_type
    if kind not in ("Conv", "ConvTranspose", "MatMul", "Gemm", *_RECURRENT):
        return 0.0, 0

    def shape(name: str) -> list[int]:
        if name not in shapes:
            raise InputError(f"{path}: the shape of '{name}' at operator {kind} '{node.name}' cannot be worked out")
        return shapes[name]

    first, second = shape(node.input[0]), shape(node.input[1])
    if kind in _RECURRENT:  # steps x batch, each with input and recurrent weights
        return 2.0 * prod(first[:2]) * (prod(second) + prod(shape(node.input[2]))), 2
    if kind == "ConvTranspose":  # every input element meets the kernel of every output channel of its group
        return 2.0 * prod(first) * prod(second[1:]), 1
    out = shape(node.output[0])
    if kind == "Conv":
        return 2.0 * prod(out) * prod(second[1:]), 1
    across = kind == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
    return 2.0 * prod(out) * first[-2 if across else -1], 1


def _parameters(graph: Any) -> float:
    """Elements of all weights: initial values that are floating point numbers and no running statistics."""
    statistics = {
        name for node in graph.node if node.op_type == "BatchNormalization" for name in node.input[_STATISTICS]
    }
    found = [(tensor.name, tensor) for tensor in graph.initializer]
    return float(sum(prod(t.dims) for name, t in found if t.data_type in _FLOAT_TYPES and name not in statistics))
