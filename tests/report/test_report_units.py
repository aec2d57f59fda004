from __future__ import annotations

import numpy as np
import pytest

from cotenant.report.units import count, duration, duration_column, number, percent, significant, unit_for


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.05, "0.0500 s"),
        (42, "42.0 s"),
        (119.99, "120 s"),
        (120, "2.00 min"),
        (204, "3.40 min"),
        (8840.4, "2.46 h"),
        (86400 * 12.34, "12.3 d"),
        (86400 * 1234.5, "1,234 d"),
        (None, "–"),
        (float("nan"), "–"),
        ("text", "–"),
        (np.float64(90), "90.0 s"),
    ],
)
def test_durations_read_well(seconds: object, text: str) -> None:
    assert duration(seconds) == text


def test_a_value_that_rounds_up_keeps_three_digits() -> None:
    assert significant(9.996) == "10.0"
    assert significant(0.9999) == "1.00"


def test_a_column_has_one_unit_where_it_can() -> None:
    assert duration_column([3600, 7200 * 3, None]) == ("h", ["1.00", "6.00", "–"])
    assert duration_column([1.0, 86400.0]) == ("", ["1.00 s", "24.0 h"])
    assert duration_column([0, 0]) == ("s", ["0", "0"])
    assert duration_column([]) == ("s", [])


def test_numbers_percentages_and_units() -> None:
    assert (count(1234567), count(None), percent(0.7345), percent(None)) == ("1,234,567", "–", "73.5 %", "–")
    assert number(True) is None
    assert number(float("inf")) is None
    assert [unit_for(s).name for s in (1, 119, 121, 7201, 172801)] == ["s", "s", "min", "h", "d"]
