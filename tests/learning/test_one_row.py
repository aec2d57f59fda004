"""One row at a time, many models at once: what LightGBM says, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.learning.boosting import Boosting, fit
from cotenant.learning.one_row import OneRow

pytest.importorskip("lightgbm")


@pytest.mark.parametrize("leaves", [2, 5, 15, 40])
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_the_same_bits_as_lightgbm(leaves: int, gaps: float) -> None:
    draw = np.random.default_rng(leaves)
    table = np.round(draw.normal(size=(600, 4)), 2)
    table[draw.random(table.shape) < gaps] = np.nan
    target = np.nan_to_num(table[:, 0]) * 3 + np.nan_to_num(table[:, 1]) ** 2 + draw.normal(size=600)
    hows = [Boosting(rounds=rounds, leaves=leaves, min_rows=5, seed=rounds) for rounds in (1, 7, 30)]
    models = [fit(table, target, how) for how in hows]
    asked = OneRow(models)
    unseen = np.round(draw.normal(size=(60, 4)) * 2, 2)
    unseen[draw.random(unseen.shape) < 0.3] = np.nan  # also where the models have seen no gap
    rows = np.concatenate([unseen, table[:60], np.zeros((1, 4)), np.full((1, 4), np.nan)])
    wanted = np.column_stack([model.predict(rows) for model in models])
    assert np.array([asked.predict(row) for row in rows]).tobytes() == wanted.tobytes()


def test_trees_without_a_split() -> None:
    model = fit(np.ones((40, 2)), np.full(40, 2.5), Boosting(rounds=3))
    assert OneRow([model]).predict(np.ones(2)).tolist() == model.predict(np.ones((1, 2))).tolist() == [2.5]


def test_what_it_cannot_walk_is_refused() -> None:
    draw = np.random.default_rng(0)
    code, target = draw.integers(0, 6, 600).astype(np.float64), draw.normal(size=600)
    with pytest.raises(ValueError, match="codes"):
        OneRow([fit(code[:, None], target + 9 * (code == 3), Boosting(rounds=2), [0])])
    with pytest.raises(ValueError, match="more than 62"):
        OneRow([fit(draw.normal(size=(600, 1)), target, Boosting(rounds=1, leaves=100, min_rows=1))])
