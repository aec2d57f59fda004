"""Matching by kinds loses nothing that matters against matching thing by thing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.solvers.pairing import pair_kinds


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    kinds = draw(st.integers(1, 6))
    draws = np.random.default_rng(draw(st.integers(0, 10_000)))
    half = np.round(draws.random((kinds, kinds)), 3) * (draws.random((kinds, kinds)) < 0.8)
    return np.triu(half) + np.triu(half, 1).T, draws.integers(0, 25, kinds)


@given(instances())
@settings(max_examples=60, deadline=None)
def test_as_heavy_as_exact(instance: tuple[np.ndarray, np.ndarray]) -> None:
    weight, counts = instance
    exact = pair_kinds(weight, counts, exact_up_to=10**9)
    quick = pair_kinds(weight, counts, exact_up_to=0)
    for pairs in (exact, quick):
        assert (pairs.sum(axis=0) + pairs.sum(axis=1) <= counts).all()
        assert (weight[pairs > 0] > 0).all()
    best = float((weight * exact).sum())
    assert 0.99 * best <= float((weight * quick).sum()) <= best * (1 + 1e-9)


def test_a_triangle_keeps_one_out() -> None:
    weight = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    assert pair_kinds(weight, np.array([1, 1, 1])).sum() == 1
    assert pair_kinds(weight, np.array([101, 101, 101]), exact_up_to=0).sum() == 151


def test_pairs_that_are_worth_nothing_are_not_made() -> None:
    assert pair_kinds(np.zeros((2, 2)), np.array([5, 5])).sum() == 0
