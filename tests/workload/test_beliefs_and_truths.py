from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotenant.beliefs.estimators import ESTIMATORS, estimate
from cotenant.core.errors import InputError
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, make_workload
from cotenant.workload.generators import generate
from cotenant.workload.model_facts import FACTS, preemption_cost_s, preemption_costs_s, skew, spread_speed


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
    learned = {"constant", "limit", "mean", "user-median", "rolling", "shrunk", "gbdt"}
    assert set(ESTIMATORS) == {"oracle", "noisy", "survey", *learned}
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
