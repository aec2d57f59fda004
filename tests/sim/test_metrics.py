"""Numbers over the jobs of a run."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cotenant.sim.metrics import percentiles


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40))
def test_percentiles_are_those_of_numpy(values: list[float]) -> None:
    shares = (0.5, 0.95, 0.99)
    assert percentiles(np.array(values), *shares) == np.percentile(values, [50, 95, 99]).tolist()
