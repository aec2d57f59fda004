from __future__ import annotations

import numpy as np
from synthetic_outcomes import outcome

from cotenant.core.outcome import Segments
from cotenant.report.curves import MAX_POINTS, cdf, over_time, rounded, size_class
from cotenant.report.gantt import MAX_BARS, lay_out


def test_cdf_of_a_few_values_is_exact() -> None:
    x, y = cdf(np.array([3.0, 1.0, 1.0, np.nan]))
    assert x.tolist() == [1, 1, 3]
    assert np.allclose(y, [0, 2 / 3, 1])


def test_cdf_lifts_zeros_to_the_floor() -> None:
    x, y = cdf(np.array([0.0, 0.0, 0.5, 100.0]), floor=1.0)
    assert x.tolist() == [1, 100]
    assert y.tolist() == [0.75, 1]
    assert [len(part) for part in cdf(np.array([np.nan]))] == [0, 0]


def test_cdf_of_many_values_is_thin_and_true() -> None:
    values = np.random.default_rng(1).lognormal(8, 2, 100_000)
    x, y = cdf(values)
    assert len(x) <= MAX_POINTS
    assert (x[-1], y[-1]) == (values.max(), 1.0)
    assert np.all(np.diff(x) >= 0)
    assert np.all(np.diff(y) >= 0)
    exact = np.searchsorted(np.sort(values), x[1:], "right") / len(values)
    assert np.allclose(y[1:], exact)
    assert np.diff(y).max() < 0.005


def test_thinned_series_keeps_its_area() -> None:
    rng = np.random.default_rng(2)
    time, value = np.sort(rng.random(5000)) * 1000, rng.random(5000)
    x, y = over_time(time, value, points=100)
    assert len(x) == 100
    assert np.isclose(np.dot(y[:-1], np.diff(x)), np.dot(value[:-1], np.diff(time)))
    same, _ = over_time(time[:10], value[:10])
    assert len(same) == 10
    assert len(over_time(np.full(500, 3.0), np.arange(500.0), points=10)[0]) == 1


def test_classes_and_rounding() -> None:
    assert size_class(np.array([1, 2, 4, 5, 8, 9, 512])).tolist() == [0, 1, 1, 2, 2, 3, 3]
    assert rounded(np.array([1.0, 123456.7, 0.00123456])) == [1, 123460, 0.0012346]


def test_bars_never_overlap_and_keep_every_gpu() -> None:
    run = outcome(jobs=300)
    chart = lay_out([run])
    assert chart is not None
    assert chart.rows == 64
    bars = chart.bars[0]
    held = np.dot(run.segments.gpus, run.segments.end_s - run.segments.start_s)
    assert np.isclose(np.dot(bars.height, bars.end_s - bars.start_s), held)
    for slot in range(chart.rows):
        on = np.flatnonzero(np.abs(bars.row - slot - 0.5) < bars.height / 2)
        order = on[np.argsort(bars.start_s[on], kind="stable")]
        assert np.all(bars.end_s[order][:-1] <= bars.start_s[order][1:] + 1e-6)


def test_a_crowded_window_is_shortened() -> None:
    run = outcome(jobs=9000)
    chart = lay_out([run, run])
    assert chart is not None
    assert chart.end_s - chart.start_s < run.segments.end_s.max() - run.segments.start_s.min()
    shown = [int(((run.segments.end_s > chart.start_s) & (run.segments.start_s < chart.end_s)).sum())] * 2
    assert 0 < sum(shown) <= MAX_BARS
    asked = lay_out([run], (20_000.0, 30_000.0))
    assert asked is not None
    assert (asked.start_s, asked.end_s) == (20_000, 30_000)


def test_no_segments_no_chart() -> None:
    none = np.zeros(0, np.int64)
    empty = Segments(none, none, none, np.zeros(0), np.zeros(0))
    run = outcome(jobs=5)
    object.__setattr__(run, "segments", empty)
    assert lay_out([run]) is None
