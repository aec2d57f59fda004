"""`cotenant profiles predict`, `cotenant estimator evaluate`: what they print, and one line for a bad file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import cotenant


def test_evaluate_prints_both_models_beside_the_mean() -> None:
    pytest.importorskip("lightgbm")
    ran = cotenant("estimator", "evaluate")
    assert ran.code == 0
    for word in ("ridge (ships)", "LightGBM", "the mean", "step time", "memory", "utilisation"):
        assert word in ran.out
    rows = json.loads(cotenant("profiles", "evaluate", "--json").out)
    assert {row["predicts"]: row["rmsle"] < row["rmsle_of_mean"] for row in rows} == {
        "step time": True, "memory": True, "utilisation": True,
    }  # fmt: skip


def test_predict_reads_a_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in "xy")
    w = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], [0.0] * 4096)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [x], [y], [w])
    onnx.save(helper.make_model(graph), str(tmp_path / "net.onnx"))
    ran = cotenant("profiles", "predict", tmp_path / "net.onnx", "--batch", "32", "--json")
    found = json.loads(ran.out)
    assert [found[name] for name in ("flops", "parameters", "batch", "operators")] == [3 * 2 * 32 * 4096, 4096, 32, 1]
    assert "ms per step" in cotenant("profiles", "predict", tmp_path / "net.onnx").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("none.onnx",), "none.onnx: No such file"),
        (("bad.onnx",), "bad.onnx: not an ONNX model"),
        (("bad.onnx", "--dim", "seq"), "--dim seq: write NAME=SIZE"),
        (("bad.onnx", "--batch", "-1"), "--batch -1 must be"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "bad.onnx").write_text("no")
    ran = cotenant("profiles", "predict", *words, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert len(ran.err.strip().splitlines()) == 1
