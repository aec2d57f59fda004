"""The pair test: golden examples, a direct simulation of two jobs, and that no start in between is better."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.policies.bsbf.pair_test import pays, shared_mean, waiting_mean

GOLDEN = [
    (100, 300, 1.2, 1.2, 220.0, 350.0, True),
    (100, 150, 2.0, 2.0, 225.0, 200.0, False),
    (100, 250, 2.0, 2.0, 275.0, 300.0, True),
    (400, 100, 1.4, 1.3, 283.5714, 300.0, True),
    (400, 100, 1.1, 2.2, 320.0, 300.0, False),
    (100, 100, 1.5, 1.5, 150.0, 150.0, False),
    (600, 3600, 2.5, 1.6, 2831.25, 3900.0, True),
]


@pytest.mark.parametrize(("l_a", "l_b", "xi_a", "xi_b", "shared", "waiting", "share"), GOLDEN)
def test_golden(l_a: float, l_b: float, xi_a: float, xi_b: float, shared: float, waiting: float, share: bool) -> None:
    assert shared_mean(l_a, l_b, xi_a, xi_b) == pytest.approx(shared, abs=1e-4)
    assert waiting_mean(l_a, l_b) == pytest.approx(waiting)
    assert pays(l_a, l_b, xi_a, xi_b) is share


def _played(l_a: float, l_b: float, xi_a: float, xi_b: float, start: float) -> float:
    """Mean completion time of two jobs when a starts after `start` seconds of b alone."""
    b = l_b - start
    h_a, h_b = l_a * xi_a, b * xi_b
    if h_a >= h_b:
        end_b = start + h_b
        end_a = end_b + (l_a - h_b / xi_a)
    else:
        end_a = start + h_a
        end_b = end_a + (b - h_a / xi_b)
    return (end_a + end_b) / 2


lengths = st.floats(1, 1e5)
slowdowns = st.floats(1, 5)


@given(lengths, lengths, slowdowns, slowdowns)
def test_closed_form_is_the_simulation(l_a: float, l_b: float, xi_a: float, xi_b: float) -> None:
    assert shared_mean(l_a, l_b, xi_a, xi_b) == pytest.approx(_played(l_a, l_b, xi_a, xi_b, 0.0), rel=1e-9)
    assert waiting_mean(l_a, l_b) == pytest.approx(_played(l_a, l_b, xi_a, xi_b, l_b), rel=1e-9)


@given(lengths, lengths, slowdowns, slowdowns)
def test_no_start_in_between_is_better(l_a: float, l_b: float, xi_a: float, xi_b: float) -> None:
    best = min(shared_mean(l_a, l_b, xi_a, xi_b), waiting_mean(l_a, l_b))
    between = [_played(l_a, l_b, xi_a, xi_b, k) for k in np.linspace(0, l_b, 21)]
    assert min(between) >= best * (1 - 1e-9)


@given(lengths, lengths, slowdowns, slowdowns)
def test_cheap_rules_agree(l_a: float, l_b: float, xi_a: float, xi_b: float) -> None:
    if xi_a * l_a >= xi_b * l_b:
        gain = 2 * xi_a - xi_b * (2 * xi_a - 1)
        scale = 2 * xi_a
    else:
        gain = l_b - l_a * (2 * xi_a - xi_a / xi_b - 1)
        scale = l_b
    if abs(gain) > 1e-6 * scale:
        assert pays(l_a, l_b, xi_a, xi_b) is (gain > 0)
