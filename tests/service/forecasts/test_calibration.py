"""How wide intervals have to be is learned from past errors, and how right forecasts were is worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from cotenant.service.forecasts.background import Allowance
from cotenant.service.forecasts.calibration import Calibration
from cotenant.service.forecasts.evaluate import Comparison, evaluate
from cotenant.service.forecasts.foretold import ForecastRecord, Foretold

Z = 1.645


def record(at_s: float, median_s: float, sigma: float, scale: float) -> ForecastRecord:
    told = Foretold(at_s + median_s, at_s + median_s * math.exp(-Z * sigma), at_s + median_s * math.exp(Z * sigma))
    told = told.widened(at_s, scale)
    assert told.low_s is not None
    assert told.high_s is not None
    return ForecastRecord(at_s, "fifo", told.end_s, told.low_s, told.high_s, told.scale)


@pytest.mark.parametrize("believed", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_intervals_become_as_wide_as_the_world_is_uncertain(believed: float, seed: int) -> None:
    """Whatever spread is believed, 9 of 10 ends lie inside once some errors were seen."""
    chance, calibration, inside = random.Random(seed), Calibration(), []
    for number in range(500):
        told = record(1000.0 * number, 300.0, believed, calibration.scales["submit"])
        ended_s = told.at_s + 300.0 * math.exp(chance.gauss(0.0, 0.3))
        inside.append(told.low_s <= ended_s <= told.high_s)
        calibration.add("submit", told, ended_s)
    assert 0.80 <= sum(inside[50:]) / len(inside[50:]) <= 0.97
    assert calibration.scales["submit"] == pytest.approx(0.3 / believed, rel=0.3)
    assert calibration.scales["start"] == 1.0, "moments are learned one by one"
    assert Calibration(calibration.rows()).scales == calibration.scales


def test_a_few_errors_change_little() -> None:
    calibration = Calibration()
    calibration.add("half", record(0.0, 100.0, 0.1, 1.0), 1000.0)
    assert 1.0 < calibration.scales["half"] < 1.3
    assert Foretold(10.0).widened(0.0, 5.0) == Foretold(10.0), "without an interval there is nothing to stretch"
    sure = Foretold(1000.0, 1000.0, 1000.0).widened(0.0, 1.0)
    assert (sure.low_s, sure.high_s) == (980.0, 1020.0), "nobody knows it to better than 2 %"


def test_the_errors_of_three_forecasts() -> None:
    """100 s foretold within 50 to 200 s, and it took 80, 120 and 250 s."""
    points = [
        Comparison(str(job), "start", "srtf", float(job), 100.0, 50.0, 200.0, took_s)
        for job, took_s in enumerate((80.0, 120.0, 250.0))
    ]
    found = evaluate(points, {"start": 1.0})
    (row,) = found["errors"]
    assert (row["at"], row["policy"], row["forecasts"]) == ("start", "srtf", 3)
    assert row["error_s"] == pytest.approx((20 - 20 - 150) / 3)
    assert row["relative"] == pytest.approx((20 / 80 + 20 / 120 + 150 / 250) / 3)
    assert row["bias"] == pytest.approx(-150 / 450)
    assert row["inside"] == pytest.approx(2 / 3)
    lows, medians = 0.05 * (30 + 70 + 200), 0.5 * (20 + 20 + 150)
    highs = 0.05 * (120 + 80) + 0.95 * 50
    assert row["pinball_s"] == pytest.approx((lows + medians + highs) / 9)
    below = {row["quantile"]: row["below"] for row in found["calibration"]}
    assert (below[0.05], below[0.5], below[0.95]) == pytest.approx((0.0, 1 / 3, 2 / 3))
    assert points[0].quantile_s(0.95) == pytest.approx(200.0)
    assert points[0].quantile_s(0.05) == pytest.approx(50.0)
    assert len(found["forecasts"]) == 3


def test_nothing_to_evaluate() -> None:
    assert evaluate([], {}) == {"errors": [], "calibration": [], "scales": {}, "forecasts": []}


def test_forecasts_may_use_a_few_per_cent_of_a_core() -> None:
    """Five seconds at once are saved up; then a forecast of a second comes every 20 s."""
    allowance, now_s, waits = Allowance(), 1000.0, []
    for _ in range(12):
        waits.append(allowance.spend(1.0, 2.0, now_s))
        now_s += waits[-1]
    assert waits[:5] == [2.0] * 5
    assert waits[-1] == pytest.approx(20.0, abs=0.1)
    assert Allowance().spend(50.0, 2.0, 1000.0) == pytest.approx(900.0)
