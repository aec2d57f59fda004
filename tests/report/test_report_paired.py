"""Paired differences, by hand and against what is known of random numbers."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic_outcomes import outcome

from cotenant.report.bootstrap_t import reach
from cotenant.report.differences import print_differences, text_of
from cotenant.report.paired import block_bootstrap, block_length, differences, doubts, lopsided, over_jobs, over_seeds
from cotenant.report.table import columns_of, comparison_rows


def rows(**of: list[float]) -> list[dict[str, object]]:
    return [
        {"policy": policy, "seed": seed, "avg_jct_s": value}
        for policy, values in of.items()
        for seed, value in enumerate(values)
    ]


def test_differences_over_seeds_by_hand() -> None:
    """-1, -2, -3: mean -2, s = 1, t(0.975, 2) = 4.302653, over sqrt(3). Apart, the means are 10 +- 25 and 8 +- 22."""
    made = over_seeds(rows(a=[0, 10, 20], b=[-1, 8, 17]), "a", "avg_jct_s")["b"]
    assert (made.mean, made.baseline, made.n) == (-2, 10, 3)
    assert made.half_width == pytest.approx(4.302653 / 3**0.5, abs=1e-5)
    assert made.change == -0.2
    assert made.method == "paired t over 3 seeds"


def test_the_same_factor_each_time_is_certain() -> None:
    made = over_seeds(rows(a=[10, 100, 1000], b=[5, 50, 500]), "a", "avg_jct_s")["b"]
    assert made.change == -0.5
    assert made.change_half == pytest.approx(0.0, abs=1e-9)
    assert made.clear
    assert not made.low <= 0 <= made.high or made.half_width is not None


def test_a_lopsided_sample_reaches_further_on_its_long_side() -> None:
    """Symmetric samples of few values reach about as far as Student's t, on both sides; one outlier stretches one."""
    plain = np.array([-3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    half = 2.364624 * plain.std(ddof=1) / 8**0.5
    below, above = reach(plain)
    assert below == pytest.approx(half, rel=0.3)
    assert above == pytest.approx(half, rel=0.3)
    below, above = reach(np.array([0.0, 1.0, 0.0, 1.0, 0.5, 0.2, 0.8, 20.0]))
    assert above > 3 * below
    mirrored = reach(-np.array([0.0, 1.0, 0.0, 1.0, 0.5, 0.2, 0.8, 20.0]))
    assert mirrored[0] > 3 * mirrored[1]
    assert reach(np.array([1.0, 2.0, 4.0]))[0] == reach(np.array([1.0, 2.0, 4.0]))[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_intervals_hold_their_mean_whatever_the_sample(values: list[float]) -> None:
    below, above = reach(np.array(values))
    assert below >= 0
    assert above >= 0
    assert np.isfinite([below, above]).all()


def test_identical_seeds_have_no_interval() -> None:
    made = over_seeds(rows(a=[10, 10], b=[5, 5]), "a", "avg_jct_s")["b"]
    assert (made.half_width, made.change_half, made.clear) == (None, None, False)


def test_lopsided_differences_are_called_so() -> None:
    assert lopsided([0, 0, 0, 0, 0, 0, 0, 0, 100])
    assert not lopsided([1, 2, 3, 4, 5, 6])
    assert not lopsided([0, 0, 9])
    assert "lopsided" in over_seeds(rows(a=[1] * 8 + [2], b=[1] * 8 + [99]), "a", "avg_jct_s")["b"].method


def test_blocks_are_longer_where_neighbours_are_alike() -> None:
    rng = np.random.default_rng(0)
    alone = rng.normal(size=2000)
    alike = np.repeat(rng.normal(size=20), 100)
    assert block_length(alone) == 45
    assert block_length(alike) > 100


def test_the_bootstrap_knows_the_mean_of_independent_numbers() -> None:
    """Half the width is about 1.96 / sqrt(n); with 36 blocks of 28 t is 2.03."""
    mean, half, length = block_bootstrap(np.random.default_rng(1).normal(size=1000))
    assert abs(mean) < 0.1
    assert length == 32
    assert half == pytest.approx(2.04 / 1000**0.5, rel=0.25)


def test_too_few_jobs_have_no_interval() -> None:
    assert block_bootstrap(np.arange(10.0))[1] is None
    assert block_bootstrap(np.ones(100))[1] is None


def test_a_log_gets_intervals_over_its_jobs() -> None:
    slow, quick = outcome("slow", 400, delay=4.0), outcome("quick", 400, delay=0.5)
    made = over_jobs(quick, slow)
    assert made is not None
    assert made.clear
    assert made.mean < 0
    assert "moving block bootstrap over 400 jobs" in made.method


def test_best_is_marked_only_where_it_can_be_told() -> None:
    near = [outcome("a", 300, delay=1.0, seed=1), outcome("b", 300, delay=1.0, seed=2)]
    near[1].summary["seed"] = 1  # two runs of one log
    for runs, marked in ((near, 0), ([outcome("a", 300, delay=4.0), outcome("b", 300, delay=0.5)], 1)):
        table = comparison_rows(runs)
        column = next(
            column for column in columns_of(table, doubts(table, runs, {"avg_jct_s": -1})) if column.key == "avg_jct_s"
        )
        assert sum(column.best) == marked
    assert differences(comparison_rows(near), near, "a")[0]["policy"] == "b"


def test_differences_are_whole_on_a_narrow_screen() -> None:
    """Several tables below each other, and nothing is cut off."""
    runs = [outcome("slow", 400, delay=4.0), outcome("quick", 400, delay=0.5)]
    lines = differences(comparison_rows(runs), runs, "slow")
    screen = Console(width=60, force_terminal=True, color_system=None, file=StringIO(), _environ={})
    print_differences(lines, screen)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert text.count("against slow") > 1
    assert text_of(lines[0]["avg_queue_s"]) in text
