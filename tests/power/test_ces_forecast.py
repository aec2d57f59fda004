"""The forecast of busy nodes: of the past only, the same every time, better than "as now" on a daily rhythm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.errors import InputError
from cotenant.power import PRESETS, Ces, LearnedForecast, PerfectForecast
from cotenant.power.account import run
from cotenant.power.windows import DAY, features, features_now, mean_ahead, to_steps, trailing

pytest.importorskip("lightgbm")
ROOT = Path(__file__).resolve().parents[2]


def _days(days: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    step = np.arange(days * DAY)
    noise = np.random.default_rng(seed).normal(0, 2, len(step))
    return step * 600.0, np.round(100 + 30 * np.sin(2 * np.pi * step / DAY) + noise)


def _forecast(time_s: np.ndarray, used: np.ndarray, models: int = 1) -> LearnedForecast:
    forecast = LearnedForecast(12, rounds=30, models=models)
    forecast.learn(time_s, used)
    return forecast


def test_steps_take_the_largest_and_mark_gaps() -> None:
    time_s, used = to_steps(np.array([0.0, 60, 599, 600, 1800]), np.array([1.0, 5, 2, 3, 4]))
    np.testing.assert_array_equal(time_s, [0, 600, 1200, 1800])
    np.testing.assert_array_equal(used, [5, 3, np.nan, 4])


def test_windows() -> None:
    values = np.array([1.0, 3, np.nan, 5])
    mean, deviation = trailing(values, 2)
    np.testing.assert_array_equal(mean, [np.nan, 2, 3, 5])
    np.testing.assert_array_equal(deviation, [np.nan, 1, 0, 0])
    np.testing.assert_array_equal(mean_ahead(values, 2), [2, 3, 5, np.nan])
    assert np.isnan(trailing(values, 9)[0]).all()


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 5 * DAY), seed=st.integers(0, 5))
def test_features_are_of_the_past(cut: int, seed: int) -> None:
    time_s, used = _days(6, seed)
    changed = used.copy()
    changed[cut:] = 7
    np.testing.assert_array_equal(features(time_s, used, 12)[:cut], features(time_s, changed, 12)[:cut])


def test_learned_beats_as_now_and_repeats() -> None:
    time_s, used = _days(12)
    first = 10 * DAY
    runs = []
    for _ in range(2):
        forecast, said = _forecast(time_s[:first], used[:first]), []
        for at in range(first, len(used)):
            forecast.observe(time_s[at], used[at])
            said.append(forecast.means(12))
        runs.append(np.array(said))
    np.testing.assert_array_equal(runs[0], runs[1])
    for column, steps in enumerate((12, 24)):
        truth = mean_ahead(used, steps)[first:]
        known = np.isfinite(truth)
        error = np.abs(runs[0][:, column] - truth)[known].mean()
        assert error < 0.5 * np.abs(used[first:] - truth)[known].mean()


def test_too_little_history_is_as_now_and_gaps_do_no_harm() -> None:
    forecast = LearnedForecast(12)
    forecast.observe(0, 40)
    assert forecast.means(12) == (40, 40)
    time_s, used = _days(6)
    used[200:260] = np.nan
    used[300:310] = 0
    known = _forecast(time_s, used)
    known.observe(time_s[-1] + 600, 100)
    assert all(50 < mean < 150 for mean in known.means(12))
    assert known.trainings == 1
    with pytest.raises(InputError, match="made for 12 steps"):
        known.means(13)
    with pytest.raises(InputError, match="must be at least 1"):
        LearnedForecast(0)


def _philly(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import ces as bench

    monkeypatch.setenv("COTENANT_DATA", str(data_dir))
    time_s, used = bench.load()
    test = (time_s >= bench.seconds(bench.FIRST)) & (time_s < bench.seconds(bench.LAST))
    return time_s, used, test


@pytest.mark.data
def test_golden_philly_with_a_perfect_forecast(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_s, used, test = _philly(data_dir, monkeypatch)
    account, decisions = run(Ces(PRESETS["philly"], 420, PerfectForecast(used[test])), time_s[test], used[test])
    assert (account.steps, account.wakes, account.sleeps) == (2016, 10, 92)
    assert account.nodes_asleep == pytest.approx(108.15, abs=0.005)
    assert account.nodes_per_wake == pytest.approx(26.2, abs=0.05)
    assert 100 * account.utilization_before == pytest.approx(68.98, abs=0.005)
    assert 100 * account.utilization == pytest.approx(92.83, abs=0.005)
    wakes = [at for at, decision in enumerate(decisions) if decision.woken]
    assert (wakes[0], used[test][wakes[0]], decisions[wakes[0]].awake) == (3 * DAY + 110, 269, 289)
    largest = max(wakes, key=lambda at: decisions[at].woken)
    assert (largest, decisions[largest].woken) == (6 * DAY + 125, 44)


@pytest.mark.data
@pytest.mark.slow
def test_philly_with_a_learned_forecast(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_s, used, test = _philly(data_dir, monkeypatch)
    first = int(np.flatnonzero(test)[0])
    forecast = LearnedForecast(PRESETS["philly"].ahead)
    forecast.learn(time_s[:first], used[:first])
    account, _ = run(Ces(PRESETS["philly"], 420, forecast), time_s[test], used[test])
    assert 0.90 <= account.utilization <= 0.92
    assert account.wakes_per_day <= 0.75


@pytest.mark.parametrize("steps", [1, 5, 150, 1010, 1200])
def test_the_last_row_alone_is_the_last_row(steps: int) -> None:
    chance = np.random.default_rng(steps)
    used = np.where(chance.random(steps) < 0.1, np.nan, chance.integers(0, 40, steps).astype(np.float64))
    time_s = 600.0 * np.arange(steps) + 12_000
    np.testing.assert_array_equal(features_now(time_s, used, 18), features(time_s, used, 18)[-1:])
