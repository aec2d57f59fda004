"""Gradient-boosted regression trees (LightGBM), the same bytes on every run.

One thread on purpose: OpenMP threads spin while they wait for each other, so that on a machine that is busy with
anything else two of them have been measured 100 times slower than one; and a process that never started
OpenMP threads may fork. LightGBM is loaded at the first fit, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Boosting:
    """How to grow the trees. `objective` is LightGBM's; fractions are drawn anew for every tree."""

    rounds: int = 100
    leaves: int = 31
    rate: float = 0.05
    min_rows: int = 20
    rows_fraction: float = 0.85
    columns_fraction: float = 0.8
    l2: float = 1.0
    objective: str = "l2"
    seed: int = 0


class BoostedTrees:
    """Fitted trees."""

    def __init__(self, booster: Any) -> None:
        self._booster = booster

    def predict(self, features: Floats) -> Floats:
        """One number per row."""
        if not len(features):
            return np.zeros(0)
        return np.asarray(self._booster.predict(features, num_threads=1), np.float64)

    def text(self) -> str:
        """The trees as LightGBM writes them down, every number exact."""
        return str(self._booster.model_to_string())


def fit(features: Floats, target: Floats, how: Boosting, categorical: Sequence[int] = ()) -> BoostedTrees:
    """Fit trees to rows of features; NaN is "not known". `categorical` columns hold codes, below 0 "not known"."""
    lightgbm = _load()
    params = {
        "objective": how.objective,
        "num_leaves": how.leaves,
        "learning_rate": how.rate,
        "min_data_in_leaf": min(how.min_rows, max(len(target) // 10, 1)),
        "bagging_fraction": how.rows_fraction,
        "bagging_freq": 1,
        "feature_fraction": how.columns_fraction,
        "lambda_l2": how.l2,
        "seed": how.seed,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    rows = lightgbm.Dataset(features, target, categorical_feature=list(categorical), params=params)
    return BoostedTrees(lightgbm.train(params, rows, how.rounds))


def _load() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise InputError("predictions need LightGBM: pip install 'cotenant[predict]'") from None
    except OSError as error:  # the wheel brings no OpenMP runtime of its own
        raise InputError(f"LightGBM does not load ({error}): install libgomp") from None
    return lightgbm
