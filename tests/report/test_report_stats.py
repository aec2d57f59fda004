from __future__ import annotations

import math

import pytest

from cotenant.report.stats import Estimate, aggregate, estimate, t_quantile_975


def test_interval_by_hand() -> None:
    # 10, 12, 14: mean 12, s = 2, n = 3, t(0.975, 2) = 4.302653 -> 4.302653 * 2 / sqrt(3)
    made = estimate([10, 12, 14])
    assert made is not None
    assert made.mean == 12
    assert made.half_width == pytest.approx(4.968276, abs=1e-6)
    assert made.n == 3


def test_one_value_has_no_interval_and_none_no_estimate() -> None:
    assert estimate([5, None, float("nan")]) == Estimate(5.0, None, 1)
    assert estimate([None]) is None
    assert estimate([3.0, 3.0]) == Estimate(3.0, 0.0, 2)


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.706205), (4, 2.776445), (30, 2.042272), (31, 2.039513), (60, 2.000298), (1000, 1.962339)],
)
def test_quantile_against_published_values(degrees: int, value: float) -> None:
    assert t_quantile_975(degrees) == pytest.approx(value, abs=2e-6)


def test_quantile_falls_to_the_normal_one() -> None:
    values = [t_quantile_975(n) for n in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert t_quantile_975(10**9) == pytest.approx(1.9599640, abs=1e-6)
    with pytest.raises(ValueError, match="degree"):
        t_quantile_975(0)


def test_groups_by_load_policy_and_placement() -> None:
    rows = [
        {"policy": policy, "placement": "count", "load": load, "seed": seed, "avg_jct_s": base * load + seed}
        for load in (1.0, 0.7)
        for seed in (0, 1, 2)
        for policy, base in (("srsf", 100.0), ("fifo", 400.0))
    ]
    made = aggregate(rows)
    assert [(row["load"], row["policy"], row["runs"]) for row in made] == [
        (0.7, "srsf", 3),
        (0.7, "fifo", 3),
        (1.0, "srsf", 3),
        (1.0, "fifo", 3),
    ]
    srsf = made[0]["avg_jct_s"]
    assert srsf.mean == pytest.approx(71.0)
    assert srsf.half_width == pytest.approx(4.302653 * 1 / math.sqrt(3))
    assert made[1]["jct_ratio"] == pytest.approx(281 / 71)
    assert made[2]["jct_ratio"] == 1
    assert made[0]["p50_jct_s"] is None


def test_order_does_not_depend_on_which_seed_came_first() -> None:
    rows = [{"policy": p, "placement": "count", "avg_jct_s": s} for p in "ba" for s in (1, 2)]
    assert [row["policy"] for row in aggregate(rows)] == ["b", "a"]
    assert aggregate(rows)[0]["load"] is None
    assert aggregate([]) == []
