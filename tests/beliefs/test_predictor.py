"""The predictor beats the mean on models that it has not seen; features come from real graphs; own tables import."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.predictor import GraphFeatures, evaluate, of_torch, predict, predict_known
from cotenant.beliefs.predictor.model import _ridge, _table
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.profiles import load_profile
from cotenant.workload.profiles.own_pairs import read_pairs
from cotenant.workload.profiles.together import fitted, formula


def test_leave_one_model_out_beats_the_mean() -> None:
    for row in evaluate():
        assert row["rmsle"] <= 0.6 * row["rmsle_of_mean"] + 0.01


def test_what_ships_is_better_than_lightgbm() -> None:
    pytest.importorskip("lightgbm")
    rows = evaluate()
    assert [row["predicts"] for row in rows] == ["step time", "memory", "utilisation"]
    for row in rows:
        assert row["rmsle"] < row["rmsle_lightgbm"] < row["rmsle_of_mean"]


def test_a_known_model_is_predicted_without_itself() -> None:
    """Changing what was measured of a model changes nothing in its own prediction."""
    table, answers, models = _table()
    asked = table[models.index("gpt2")]
    kept = np.array([model != "gpt2" for model in models])
    expected = np.exp(_ridge(table[kept], answers[kept])(asked[None, :]))[0]
    found = predict_known("gpt2 (batch size 2)")
    assert found is not None
    assert (found.step_s, found.memory_mib) == pytest.approx(expected[:2].tolist())
    assert predict_known("unheard of") is None


def test_more_work_takes_longer_and_more_memory() -> None:
    small, large = (predict(GraphFeatures(1e12 * k, 25e6, 32 * k, 50)) for k in (1, 8))
    assert small.step_s < large.step_s
    assert small.memory_mib < large.memory_mib
    assert 0.25 <= small.utilisation <= 1


@pytest.mark.slow
def test_features_of_a_torch_module() -> None:
    torch = pytest.importorskip("torch")
    found = of_torch(torch.nn.Linear(128, 256, bias=False), torch.zeros(32, 128))
    assert found.flops == 3 * 2 * 32 * 128 * 256
    assert (found.parameters, found.batch, found.operators) == (128 * 256, 32, 1)


def test_own_pairs(tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    table.write_text(
        "model_a,model_b,a_ratio,b_ratio,a_gib,b_gib,gpu_gib\nA,B,0.9,0.8,10,20,24\nA,A,0.6,0.6,10,10,24\n"
    )
    made = tmp_path / "pairs.json"
    made.write_text(json.dumps(read_pairs(table)))
    work = make_workload("w", np.zeros(2), np.array([1, 2]), np.ones(2), model=Codes(np.arange(2), ("a", "b")))
    together = load_profile(made, work, ("gpu",)).together
    assert together is not None
    assert together.ratio[:, :, 0].tolist() == [[0.6, 0.9], [0.8, 0.0]]
    assert together.memory_gib[:, 0].tolist() == [10, 20]
    table.write_text("model_a,model_b,a_ratio,b_ratio\nA,B,x,0.8\n")
    with pytest.raises(InputError, match="line 2: a_ratio"):
        read_pairs(table)
    assert together.guess is not None
    assert (together.guess > 0).tolist() == (together.ratio > 0).tolist()
    table.write_text("model_a,model_b\nA,B\n")
    with pytest.raises(InputError, match="a_ratio"):
        read_pairs(table)


def test_own_models_alone(tmp_path: Path) -> None:
    """Pairs follow from the formula; two of 20 GiB do not fit in 24."""
    table = tmp_path / "alone.csv"
    table.write_text("model,busy,gib,gpu_gib\nA,0.5,4,24\nB,1.0,20,24\n")
    made = tmp_path / "alone.json"
    made.write_text(json.dumps(read_pairs(table)))
    work = make_workload("w", np.zeros(2), np.array([1, 2]), np.ones(2), model=Codes(np.arange(2), ("a", "b")))
    together = load_profile(made, work, ("gpu",)).together
    assert together is not None
    expected = [[1 / formula(0.5, 0.5, fitted("mps")), 1 / formula(0.5, 1.0, fitted("mps"))]] * 2
    expected[1] = [expected[0][1], 0.0]
    assert together.ratio[:, :, 0] == pytest.approx(np.array(expected))
    assert together.busy.tolist() == [0.5, 1.0]
    for line, says in (("A,2", "line 2: a model needs"), ("A,x", "line 2: busy is 'x'"), ("", "no models")):
        table.write_text(f"model,busy\n{line}\n")
        with pytest.raises(InputError, match=says):
            read_pairs(table)
