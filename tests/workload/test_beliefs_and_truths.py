from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.estimators import ESTIMATORS, estimate
from cotenant.workload.generators import generate
from cotenant.workload.model_facts import FACTS, preemption_cost_s, preemption_costs_s, skew, spread_speed
from cotenant.workload.profiles import load_profile


def test_oracle_and_noise() -> None:
    work = generate(Spec.parse("philly-like:jobs=20000"), 128)
    np.testing.assert_array_equal(estimate("oracle", work, 0), work.duration_s)
    noisy = estimate("noisy:error=0.5", work, 1)
    np.testing.assert_array_equal(noisy, estimate("noisy:error=0.5", work, 1))
    assert not np.array_equal(noisy, estimate("noisy:error=0.5", work, 2))
    logs = np.log(noisy / work.duration_s)
    assert np.median(logs) == pytest.approx(0, abs=0.02)
    assert logs.std() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(estimate("noisy", work, 1)[:100], estimate("noisy", work.take(np.arange(100)), 1))
    np.testing.assert_array_equal(estimate("noisy:error=0", work, 1), work.duration_s)


def test_mean_sees_only_the_finished_past() -> None:
    work = make_workload(
        "x",
        np.array([0.0, 5.0, 20.0, 30.0, 200.0]),
        np.array([1, 2, 1, 2, 1]),
        np.array([10.0, 100, 30, 1, 7]),
    )
    # Row 2 knows row 0; row 3 (2 GPUs) knows no finished job of its size, so it takes all sizes: row 0.
    np.testing.assert_allclose(estimate("mean:prior=60", work, 0), [60, 60, 10, 10, 20])


def test_estimator_errors() -> None:
    work = generate(Spec.parse("gavel-like:jobs=5"), 8)
    assert set(ESTIMATORS) == {"oracle", "noisy", "mean"}
    for text, message in (
        ("oracel", "unknown estimator 'oracel': did you mean 'oracle'"),
        ("noisy:error=-1", "error=-1 must be"),
        ("oracle:error=1", "takes no parameters"),
        ("mean:prior=0", "prior=0 must be"),
    ):
        with pytest.raises(InputError, match=message):
            estimate(text, work, 0)


def test_model_facts() -> None:
    assert len(FACTS) == 10
    np.testing.assert_equal(skew(["VGG19", "resnet50", "mine"]), [0.715, 0.092, np.nan])
    assert spread_speed("VGG16") == 0.725
    assert spread_speed("mine") == 1
    np.testing.assert_allclose(preemption_cost_s("vgg19", np.array([1, 2, 5, 8, 64])), [20.7, 47.7, 49.7, 51.7, 51.7])
    assert np.isnan(preemption_cost_s("mine", np.array([1]))).all()
    work = make_workload(
        "x", np.zeros(2), np.array([1, 8]), np.ones(2), model=Codes(np.array([0, 1]), ("?", "AlexNet"))
    )
    np.testing.assert_equal(preemption_costs_s(work), [np.nan, 1.3 + 38])


@pytest.mark.data
def test_model_facts_are_those_of_the_paper(data: Path) -> None:
    import polars as pl

    for row in pl.read_csv(data / "figures/tiresias_models.csv").iter_rows(named=True):
        fact = FACTS[row["model"].lower()]
        assert fact.skew == row["largest_ratio"]
        assert fact.spread_speed == row["perf_random_vs_consolidated_8w"]
        assert fact.checkpoint_s == row["checkpoint_s"]
        assert fact.resume_s == (row["resume_1w_s"], row["resume_2w_s"], row["resume_8w_s"])


def test_profiles(tmp_path: Path) -> None:
    models, types = ["VGG19", "resnet50", "mine"], ["v100", "k80"]
    assert (load_profile("none", models, types).speed == 1).all()
    spread = load_profile("tiresias", models, types)
    np.testing.assert_array_equal(spread.speed[:, 0, 1], [0.71, 1.08, 1.0])
    np.testing.assert_array_equal(spread.speed[:, :, 0], np.ones((3, 2)))
    table = tmp_path / "p.csv"
    table.write_text("model,gpu_type,consolidated,spread\n*,k80,0.2,0.1\nvgg19,k80,0.3,\nresnet50,*,1,0.9\n")
    speed = load_profile(table, models, types).speed
    np.testing.assert_allclose(speed[:, 1], [[0.3, 0.3], [1, 0.9], [0.2, 0.1]])
    np.testing.assert_allclose(speed[:, 0], [[1, 1], [1, 0.9], [1, 1]])
    for name, text in (
        ("p.json", json.dumps([{"model": "vgg19", "gpu_type": "k80", "consolidated": 0.3}])),
        ("q.json", json.dumps({"vgg19": {"k80": {"consolidated": 0.3, "spread": 0.3}}})),
        ("p.yaml", "- {model: vgg19, gpu_type: k80, consolidated: 0.3, spread: 0.3}\n"),
    ):
        (tmp_path / name).write_text(text)
        np.testing.assert_allclose(load_profile(tmp_path / name, models, types).speed[0, 1], [0.3, 0.3])


def test_gavel_throughputs_as_a_profile(tmp_path: Path) -> None:
    def rates(single: float, double: float) -> dict[str, dict[str, float]]:
        return {"('LM', 1)": {"null": single}, "('LM', 2)": {"null": double}}

    tables = {"v100": rates(10, 18), "v100_unconsolidated": rates(10, 9), "k80": rates(2, 4)}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tables))
    speed = load_profile(path, ["LM"], ["v100", "k80"]).speed
    np.testing.assert_allclose(speed[0], [[1, 0.5], [0.2, 0.2]])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "model,gpu_type,consolidated,spread\na,b,fast,1\n", r"line 2: consolidated is 'fast'"),
        ("p.csv", "model,type,consolidated\na,b,1\n", r"line 2: unknown field 'type'"),
        ("p.csv", "model,gpu_type,consolidated\n", r"has no entries"),
        ("p.json", "{", r"broken JSON"),
        ("p.json", "[1]", r"a profile is a list of"),
        ("p.yaml", "a: [", r"broken YAML"),
    ],
)
def test_bad_profiles(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_profile(path, ["a"], ["b"])
    assert str(path) in str(caught.value)


def test_unknown_profile() -> None:
    with pytest.raises(InputError, match="unknown profile 'tiresia': did you mean 'tiresias'"):
        load_profile("tiresia", [], [])
