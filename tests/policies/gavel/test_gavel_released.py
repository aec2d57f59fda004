"""Gavel's programs where the released code's solver stops, and its FIFO: optima, symmetry, draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant import solvers
from cotenant.policies.base import Context
from cotenant.policies.gavel import released
from cotenant.policies.gavel.cone import finish_time
from cotenant.policies.gavel.levels import Memory, fair_finish
from cotenant.policies.gavel.ordered import Slots
from cotenant.policies.gavel.policy import Gavel
from cotenant.policies.rounds.problem import Problem, Targets

KINDS = 5


def problem(jobs: int, seed: int = 0, pairs: bool = True) -> Problem:
    """Jobs of a few kinds on three types, some of them twice as large as others."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.2, 1.0, (KINDS, 3))
    rates[0, 2] = 0.0  # cannot run there
    kind = rng.integers(0, KINDS, jobs)
    together = rng.uniform(0.4, 0.9, (KINDS, KINDS, 3)) * rates[:, None, :]
    together[0, :, 2] = together[:, 0, 2] = 0.0
    none = np.zeros(jobs)
    return Problem(
        0.0, rates[kind], np.where(kind == 1, 2, 1), np.ones(jobs), np.array([3.0, 4.0, 5.0]),
        rng.uniform(1e3, 1e5, jobs), none, none, none + 1, none * np.nan, none.astype(np.int64), np.ones(3), kind,
        ("v100", "p100", "k80"), together if pairs else None,
    )  # fmt: skip


def scale_of(seen: Problem) -> np.ndarray:
    return np.asarray(seen.gangs / seen.proportional)


def least(seen: Problem, found: Targets) -> float:
    """The smallest scaled rate, pairs included."""
    rate = (found.x * seen.rates).sum(axis=1)
    for (a, b), x in zip(found.pairs, found.pair_x, strict=True):
        assert seen.pair is not None
        rate[a] += x @ seen.pair[seen.kind[a], seen.kind[b]]
        rate[b] += x @ seen.pair[seen.kind[b], seen.kind[a]]
    return float((rate * scale_of(seen)).min())


@pytest.mark.parametrize("jobs", [4, 15, 40])
def test_fractions_are_optimal_and_inside(jobs: int) -> None:
    seen = problem(jobs, jobs)
    found = released.max_min(seen, scale_of(seen), sharing=False)
    best = solvers.max_min(seen.rates * scale_of(seen)[:, None], seen.gangs, seen.capacity, tol=1e-9, budget_s=9.0)
    assert least(seen, found) == pytest.approx(best.value, rel=1e-6)
    assert (seen.gangs @ found.x <= seen.capacity * (1 + 1e-6)).all()
    assert (found.x[seen.rates > 0] > 0).all()


@pytest.mark.parametrize("jobs", [6, 25])
def test_shared_fractions_are_optimal(jobs: int) -> None:
    seen = problem(jobs, jobs)
    found = released.max_min(seen, scale_of(seen), sharing=True)
    assert seen.pair is not None
    best = solvers.packed_max_min(
        seen.rates, seen.gangs, seen.capacity, seen.kind, seen.pair, scale=scale_of(seen), budget_s=9.0
    )
    theirs = least(seen, Targets(best.x, best.pairs, best.pair_x))
    assert least(seen, found) == pytest.approx(theirs, rel=1e-5)
    used = seen.gangs @ found.x + seen.gangs[found.pairs[:, 0]] @ found.pair_x
    assert (used <= seen.capacity * (1 + 1e-6)).all()


def test_one_of_each_kind_stands_for_all() -> None:
    """Told apart by number only, alike jobs and pairs get what they get as a class."""
    seen = problem(9, 3)
    apart = replace(seen, kind=np.arange(9), pair=seen.pair[np.ix_(seen.kind, seen.kind)])  # type: ignore[index]
    for sharing in (False, True):
        one, other = (released.max_min(each, scale_of(seen), sharing) for each in (seen, apart))
        assert one.x == pytest.approx(other.x, abs=2e-5)
        assert one.pair_x == pytest.approx(other.pair_x, abs=2e-5)


def test_makespan_ends_in_time_within_a_twentieth() -> None:
    seen = problem(20, 5, pairs=False)
    best = solvers.makespan(seen.rates, seen.gangs, seen.capacity, work=seen.left_s, tol=1e-9, budget_s=9.0)
    time_s = released.bisected(best.value)
    assert best.value <= time_s <= 1.05 * best.value
    found = released.makespan(seen, time_s)
    assert ((found.x * seen.rates).sum(axis=1) >= seen.left_s / time_s * (1 - 1e-6)).all()
    assert (seen.gangs @ found.x <= seen.capacity * (1 + 1e-6)).all()


def test_fifo_of_the_released_code() -> None:
    """Six jobs on 2 + 2 + 2: its slip gives all of them the last type; drawn properly, each type gets two."""
    seen = replace(problem(6, pairs=False), rates=np.ones((6, 3)), gangs=np.ones(6, np.int64), capacity=np.full(3, 2.0))
    stale = Slots(0, stale=True).targets(seen, np.arange(6)).x
    fixed = Slots(0, stale=False)
    first = fixed.targets(seen, np.arange(6)).x
    assert stale[:, 0].sum() > 2
    assert first.sum(axis=0).tolist() == [2, 2, 2]
    # job 0 has ended: whoever waits at the head inherits its type
    rows = np.array([1, 2, 3, 4, 5, 6])
    assert fixed.targets(seen, rows).x[5].tolist() == first[0].tolist()


def _ratios(seen: Problem, x: np.ndarray, fair_s: np.ndarray) -> np.ndarray:
    return np.asarray((seen.age_s + seen.left_s / (x * seen.rates).sum(axis=1)) / fair_s)


def test_finish_time_fairness_ends_where_the_released_solver_does() -> None:
    """The fourth is at full speed and sets the ratio; the others' fractions are what ECOS 2.0.14 gave through CVXPY."""
    rates = np.array([[4, 2, 1], [3, 2.5, 1.2], [8, 3, 2], [2, 1.8, 0.5], [5, 4, 1], [6, 2, 1.5]])
    seen = replace(
        problem(6, pairs=False), rates=rates, gangs=np.array([1, 1, 2, 1, 1, 1]), capacity=np.array([2.0, 1.0, 1.0]),
        left_s=np.array([4e4, 2e5, 1e5, 3e4, 8e4, 5e3]), age_s=np.array([3e4, 1e3, 0, 8e4, 2e4, 100]),
    )  # fmt: skip
    x = finish_time(seen, seen.left_s / seen.isolated_rate)
    theirs = [
        [0.22584, 0.19824, 0.17368], [0.15206, 0.15069, 0.16816], [0.09289, 0.09769, 0.09706],
        [1.0, 0.0, 0.0], [0.15698, 0.16743, 0.17538], [0.15533, 0.16565, 0.16666],
    ]  # fmt: skip
    np.testing.assert_allclose(x, theirs, atol=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_cone_has_the_best_worst_ratio(seed: int) -> None:
    seen = problem(30, seed, pairs=False)
    seen = replace(seen, age_s=np.random.default_rng(seed).uniform(0, 1e6, 30), rates=np.maximum(seen.rates, 0.01))
    fair_s = seen.left_s / seen.isolated_rate
    x = finish_time(seen, fair_s)
    assert (seen.gangs @ x <= seen.capacity * (1 + 1e-5)).all()
    assert (x.sum(axis=1) <= 1 + 1e-5).all()
    best = _ratios(seen, fair_finish(seen, fair_s, 60.0, Memory()), fair_s).max()
    assert _ratios(seen, x, fair_s).max() == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("aware", [True, False])
def test_the_released_agnostic_policy_counts_isolated_time_by_the_rates_that_it_believes(aware: bool) -> None:
    seen = problem(6, pairs=False)
    policy = Gavel(objective="ftf", aware=aware)
    policy.begin(Context(compat={"gavel": {"agnostic_rate": "v100_copy"}}))
    rates = seen.rates if aware else np.repeat(seen.rates[:, :1], 3, axis=1)
    even = np.minimum(1.0, 12.0 / (6 * seen.gangs))[:, None] * seen.capacity / 12.0
    assert policy.even_rates(seen) == pytest.approx((rates * even).sum(axis=1))
