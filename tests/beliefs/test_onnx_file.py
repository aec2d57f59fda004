"""Real ONNX files: operators, FLOPs and parameters exactly as worked out by hand; bad files are one line."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.predictor import GraphFeatures, of_onnx, of_torch
from cotenant.core.errors import InputError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    weights: list[onnx.TensorProto],
    rank: int = 2,
    checked: bool = True,
) -> Path:
    """A file with these operators; what the last one gives, of this many dimensions, comes out."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    out = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [f"out{k}" for k in range(rank)])
    graph = helper.make_graph(nodes, "net", values, [out], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)])
    if checked:
        onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def conv_net(path: Path, batch: int | str) -> Path:
    """3x8x8 -> Conv 3x3 to 8 channels (6x6) -> batch norm -> grouped Conv to 16 (4x4) -> flatten -> Gemm to 10."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], kernel_shape=[3, 3], group=2),
        helper.make_node("Flatten", ["c2"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["y"], transB=1),
    ]
    weights = [
        weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("scale", 8), weight("shift", 8), weight("mean", 8),
        weight("var", 8), weight("w2", 16, 4, 3, 3), weight("w3", 10, 256), weight("b3", 10),
    ]  # fmt: skip
    return save(path, nodes, {"x": [batch, 3, 8, 8]}, weights)


CONV_FORWARD = 2 * (8 * 36 * 27 + 16 * 16 * 36 + 10 * 256)  # multiply-adds of one sample: outputs x kernel
CONV_PARAMETERS = 8 * 27 + 8 + 8 + 8 + 16 * 36 + 10 * 256 + 10  # without the running mean and variance


@pytest.mark.parametrize(("batch", "asked", "own"), [(4, None, 4), ("N", 4, 4), (2, 4, 4), ("N", None, 1)])
def test_convolutions(batch: int | str, asked: int | None, own: int, tmp_path: Path) -> None:
    """Fixed, open and scaled batches; a second convolution in groups; a transposed matrix."""
    found = of_onnx(conv_net(tmp_path / "net.onnx", batch), asked)
    assert found == GraphFeatures(3.0 * own * CONV_FORWARD, CONV_PARAMETERS, own, 3)


def attention(path: Path, batch: int | str, seq: int | str) -> Path:
    """One transformer block of width 16, two heads, inner width 64, without norms."""
    shape = numpy_helper.from_array(np.array([0, 0, 2, 8], np.int64), "heads")
    join = numpy_helper.from_array(np.array([0, 0, 16], np.int64), "joined")
    nodes = []
    for name, perm in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items():
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}1"]),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probs"], axis=-1),
        helper.make_node("MatMul", ["probs", "v3"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "joined"], ["one"]),
        helper.make_node("MatMul", ["one", "wo"], ["attended"]),
        helper.make_node("Add", ["x", "attended"], ["sum"]),
        helper.make_node("MatMul", ["sum", "up"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["gated"]),
        helper.make_node("MatMul", ["gated", "down"], ["y"]),
    ]
    weights = [weight(f"w{name}", 16, 16) for name in "qkvo"]
    weights += [weight("up", 16, 64), weight("down", 64, 16), shape, join]
    return save(path, nodes, {"x": [batch, seq, 16]}, weights, rank=3)


def block_forward(batch: int, seq: int) -> int:
    return 2 * batch * (seq * (4 * 16 * 16 + 2 * 16 * 64) + 2 * seq * seq * 16)


def test_a_transformer_block(tmp_path: Path) -> None:
    """Eight products; attention grows with the square of the length; integers are no parameters."""
    parameters = 4 * 16 * 16 + 2 * 16 * 64
    fixed = attention(tmp_path / "fixed.onnx", 2, 10)
    assert of_onnx(fixed) == GraphFeatures(3.0 * block_forward(2, 10), parameters, 2, 8)
    opened = attention(tmp_path / "open.onnx", "batch", "seq")
    assert of_onnx(opened, 4, {"seq": 32}) == GraphFeatures(3.0 * block_forward(4, 32), parameters, 4, 8)
    with pytest.raises(InputError, match=r"open\.onnx: input 'x' leaves dimension seq open.*--dim seq="):
        of_onnx(opened, 4)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_count_as_two_linear_layers(kind: str, gates: int, tmp_path: Path) -> None:
    nodes = [helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=6, layout=0)]
    weights = [weight("w", 1, gates * 6, 5), weight("r", 1, gates * 6, 6)]
    found = of_onnx(save(tmp_path / "rnn.onnx", nodes, {"x": [3, 7, 5]}, weights, rank=4))
    assert found.flops == 3 * 2 * 3 * 7 * gates * 6 * (5 + 6)
    assert (found.operators, found.parameters) == (2, gates * 6 * 11)


def test_transposes_and_deconvolutions(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], transA=1),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
        helper.make_node("ConvTranspose", ["b", "k"], ["y"], kernel_shape=[2], strides=[2]),
    ]
    weights = [weight("w", 4, 12), weight("k", 2, 3, 2), numpy_helper.from_array(np.array([5, 2, 6]), "shape")]
    found = of_onnx(save(tmp_path / "net.onnx", nodes, {"x": [4, 5]}, weights, rank=3))
    assert found.flops == 3 * (2 * 5 * 12 * 4 + 2 * 5 * 2 * 6 * 3 * 2)
    assert (found.operators, found.parameters) == (2, 48 + 12)


def test_parameters_agree_with_the_package(tmp_path: Path) -> None:
    model = onnx.load(str(attention(tmp_path / "net.onnx", 1, 8)))
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    floats = sum(prod(array.shape) for array in arrays if array.dtype.kind == "f")
    assert of_onnx(tmp_path / "net.onnx").parameters == floats


def test_weights_may_lie_elsewhere_and_be_missing(tmp_path: Path) -> None:
    model = onnx.load(str(conv_net(tmp_path / "net.onnx", 1)))
    onnx.save(model, str(tmp_path / "far.onnx"), save_as_external_data=True, location="far.bin", size_threshold=0)
    (tmp_path / "far.bin").unlink()
    assert of_onnx(tmp_path / "far.onnx") == of_onnx(tmp_path / "net.onnx")


def test_own_functions_are_looked_into(tmp_path: Path) -> None:
    body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "Linear", ["a", "b"], ["c"], body, ops[:1])
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5])
    nodes = [helper.make_node("Linear", ["x", "w"], ["y"], domain="mine")]
    graph = helper.make_graph(nodes, "net", values, [out], [weight("w", 4, 5)])
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=ops), str(tmp_path / "net.onnx"))
    assert of_onnx(tmp_path / "net.onnx").flops == 3 * 2 * 3 * 4 * 5


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    for content in (b"", b"no", b"\x00" * 100, conv_net(tmp_path / "good.onnx", 1).read_bytes()[:-40]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.onnx: not an ONNX model"):
            of_onnx(bad)
    with pytest.raises(InputError, match=r"none\.onnx: .*name an ONNX file"):
        of_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="batch 0"):
        of_onnx(tmp_path / "good.onnx", 0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="first")]
    save(bad, nodes, {"x": [2, 3]}, [weight("w", 4, 5)], checked=False)
    with pytest.raises(InputError, match=r"bad\.onnx: "):
        of_onnx(bad)
    odd = helper.make_node("Odd", ["x"], ["o"], domain="mine")
    save(
        bad,
        [odd, helper.make_node("MatMul", ["o", "w"], ["y"], name="it")],
        {"x": [2, 4]},
        [weight("w", 4, 5)],
        checked=False,
    )
    with pytest.raises(InputError, match=r"bad\.onnx: the shape of 'o' at operator MatMul 'it' cannot be worked out"):
        of_onnx(bad)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_torch_and_its_export_agree(tmp_path: Path) -> None:
    """A convolution, recurrent layers and attention: the same numbers from the module and from its file."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(6, 16, 3, padding=1)
            self.lstm = torch.nn.LSTM(16, 16, 2, batch_first=True)
            self.head = torch.nn.Linear(16, 5)

        def forward(self, x):  # type: ignore[no-untyped-def]
            x = self.lstm(self.conv(x).transpose(1, 2))[0]
            return self.head(torch.nn.functional.scaled_dot_product_attention(x, x, x))

    net, x = Net().eval(), torch.zeros(4, 6, 10)
    found = of_torch(net, x)
    forward = 2 * 4 * 10 * (16 * 18 + 2 * 4 * 16 * 32 + 2 * 10 * 16 + 16 * 5)
    assert found == GraphFeatures(3.0 * forward, sum(w.numel() for w in net.parameters()), 4, 1 + 4 + 2 + 1)
    torch.onnx.export(net, (x,), str(tmp_path / "net.onnx"), dynamo=False)
    assert of_onnx(tmp_path / "net.onnx") == found


@pytest.mark.slow
def test_torch_encoder_layers_hide_nothing() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    found = of_torch(layer, torch.zeros(2, 8, 32))
    assert found.flops == 3 * 2 * (2 * 8 * 32 * (4 * 32 + 2 * 64) + 2 * 2 * 8 * 8 * 32)
    assert found.operators == 6
    assert torch.backends.mha.get_fastpath_enabled()
