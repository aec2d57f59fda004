"""Trees: the same bytes every time, gaps and codes allowed, and one clear line where LightGBM is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from cotenant.core.errors import InputError
from cotenant.learning.boosting import Boosting, fit


def test_fits_codes_and_gaps_the_same_every_time() -> None:
    pytest.importorskip("lightgbm")
    draw = np.random.default_rng(0)
    code, x = draw.integers(-1, 5, 400).astype(np.float64), draw.random(400)
    table = np.column_stack([code, np.where(x < 0.1, np.nan, x)])
    target = 10 * (code == 3) + x
    first, again = (
        fit(table, target, Boosting(rounds=200, columns_fraction=1.0), [0]).predict(table) for _ in range(2)
    )
    assert first.tobytes() == again.tobytes()
    assert np.abs(first - target).mean() < 0.6
    assert len(fit(table[:5], target[:5], Boosting(rounds=2)).predict(table[:0])) == 0


def test_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match="pip install 'cotenant\\[predict\\]'"):
        fit(np.zeros((2, 1)), np.zeros(2), Boosting())
