"""The learned estimate: no look-ahead, the same bytes every time, better than guessing; and its errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.beliefs.estimators import estimate
from cotenant.beliefs.prediction.evaluate import errors_of, evaluate, spearman
from cotenant.beliefs.prediction.gbdt import Gbdt, predict
from cotenant.beliefs.prediction.past import known_since
from cotenant.core.errors import InputError
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.workload.readers import read

pytest.importorskip("lightgbm")
QUICK = "every=100,rounds=10"


def _log(jobs: int = 800, seed: int = 0) -> Workload:
    """Users whose jobs differ in length by factors, so that there is something to learn."""
    draw = np.random.default_rng(seed)
    user = draw.integers(0, 8, jobs)
    gpus = 2 ** draw.integers(0, 4, jobs)
    duration = 20.0 * 3.0**user * gpus**0.5 * np.exp(0.3 * draw.standard_normal(jobs))
    return make_workload(
        "made",
        np.cumsum(draw.exponential(60, jobs)),
        gpus,
        np.round(duration),
        user=Codes(user, tuple(f"u{i}" for i in range(8))),
        tenant=Codes(user % 3, ("x", "y", "z")),
        model=Codes(user % 4, ("", "train_1", "train_22", "eval")),
    )


@pytest.mark.parametrize("name", [f"gbdt:{QUICK}", f"gbdt:loss=mean,{QUICK}", "rolling", "user-median", "mean"])
def test_no_look_ahead(name: str) -> None:
    """Durations of jobs that had not ended when a job was submitted do not change what is believed of it."""
    work = _log()
    for row in (90, 300, 555, 799):
        now = work.submit_s[row]
        later = known_since(work) >= now
        assert later[row]
        duration = np.where(later, work.duration_s * 7 + 1e6, work.duration_s)
        changed = replace(work, duration_s=duration)
        np.testing.assert_array_equal(estimate(name, changed)[: row + 1], estimate(name, work)[: row + 1])
        cut = work.take(np.arange(row + 1))
        np.testing.assert_array_equal(estimate(name, cut), estimate(name, work)[: row + 1])


@settings(max_examples=8, deadline=None)
@given(row=st.integers(0, 399), seed=st.integers(0, 3), factor=st.sampled_from([1.5, 1e3, 1e6]))
def test_no_look_ahead_anywhere(row: int, seed: int, factor: float) -> None:
    work = _log(400, seed)
    later = known_since(work) >= work.submit_s[row]
    changed = replace(work, duration_s=np.where(later, work.duration_s * factor, work.duration_s))
    name = f"gbdt:{QUICK}"
    np.testing.assert_array_equal(estimate(name, changed)[: row + 1], estimate(name, work)[: row + 1])


def test_the_past_does_change_it() -> None:
    """The check above could not fail if nothing were learned."""
    work = _log()
    ended = known_since(work) < work.submit_s[555]
    changed = replace(work, duration_s=np.where(ended, work.duration_s / 3, work.duration_s))
    assert estimate(f"gbdt:{QUICK}", changed)[555] < estimate(f"gbdt:{QUICK}", work)[555]


def test_ends_of_the_log_are_believed() -> None:
    work = _log()
    never = replace(work, extra={"ended_s": np.full(len(work), np.inf)})
    np.testing.assert_array_equal(estimate(f"gbdt:{QUICK},prior=77", never), np.full(len(work), 77.0))


@pytest.mark.parametrize("loss", ["median", "mean"])
def test_same_bytes_and_better_than_the_mean(loss: str) -> None:
    work = _log()
    how = Gbdt(loss=loss, every=100, rounds=30)
    first, again = predict(work, how), predict(work, how)
    assert first.belief_s.tobytes() == again.belief_s.tobytes()
    assert first.trainings == again.trainings >= 5
    assert (first.belief_s >= 1).all()
    learned = errors_of("gbdt", work, first.belief_s)
    simple = errors_of("mean", work, estimate("mean", work))
    assert learned.log_error < 0.7 * simple.log_error
    assert learned.rank_correlation > simple.rank_correlation


def test_edges() -> None:
    few = _log(3)
    assert (estimate("gbdt", few) > 0).all()
    equal = replace(_log(300), duration_s=np.full(300, 5.0))
    np.testing.assert_allclose(estimate(f"gbdt:{QUICK}", equal)[150:], 5.0, rtol=1e-6)
    nothing = replace(_log(300), duration_s=np.zeros(300))
    assert (estimate(f"gbdt:loss=mean,{QUICK}", nothing)[150:] <= 2).all()
    for text, message in (
        ("gbdt:loss=l3", "unknown loss of estimator 'gbdt' 'l3'"),
        ("gbdt:lambda=2", "lambda=2 must lie between 0 and 1"),
        ("gbdt:every=1", "every=1 must be at least 10"),
        ("gbdt:window=20", "window=20 must not be below every=250"),
        ("gbdt:rounds=0", "rounds=0 must lie"),
        ("gbdt:decay=0", "decay=0 must be above 0"),
        ("gbdt:prior=inf", "prior=inf must be a positive"),
        ("rolling:decay=2", "decay=2 must be above 0"),
        ("user-median:prior=0", "prior=0 must be"),
    ):
        with pytest.raises(InputError, match=message):
            estimate(text, few)


def test_errors() -> None:
    work = make_workload("x", np.arange(4.0), np.ones(4, np.int64), np.array([10.0, 20, 40, 0]))
    row = errors_of("e", work, np.array([20.0, 20, 10, 1]))
    assert row.mape == pytest.approx((1 + 0 + 0.75 + 0) / 4)
    assert row.median_relative == pytest.approx(0.375)
    assert row.log_error == pytest.approx((np.log(2) + np.log(4)) / 4)
    assert row.within_2x == 0.75
    assert spearman(np.array([1.0, 2, 3]), np.array([3.0, 2, 1])) == -1
    assert spearman(np.array([1.0, 1, 2]), np.array([5.0, 5, 9])) == pytest.approx(1)
    assert np.isnan(spearman(np.ones(3), np.arange(3.0)))
    rows = evaluate(f"gbdt:{QUICK}", _log())
    assert [row.estimator for row in rows] == [f"gbdt:{QUICK}", "mean", "user-median", "rolling", "oracle"]
    assert rows[0].trainings > 0
    assert rows[-1].log_error == 0
    with pytest.raises(InputError, match="no jobs"):
        evaluate("mean", _log(0))


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    from cotenant.cli.main import make_app

    app = make_app(["estimator"])
    trace = "philly-like:jobs=300,seed=1,load=0.9"
    app(["estimator", "evaluate", trace, "--estimator", f"gbdt:{QUICK}", "--json"], standalone_mode=False)
    rows = json.loads(capsys.readouterr().out)
    assert [row["estimator"] for row in rows][1:] == ["mean", "user-median", "rolling", "oracle"]
    app(["estimator", "evaluate", trace, "--estimator", "rolling"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "user-median" in shown
    assert "rolling" in shown


@pytest.mark.data
@pytest.mark.slow
def test_venus_is_predicted_better_than_by_the_users_median(data_dir: Path) -> None:
    work = read(data_dir / "helios/venus_september.csv.gz")
    learned = errors_of("gbdt", work, estimate("gbdt", work))
    simple = errors_of("user-median", work, estimate("user-median", work))
    assert learned.log_error < 1.45 < simple.log_error
    assert learned.rank_correlation > simple.rank_correlation + 0.05
    assert learned.within_2x > 0.47
