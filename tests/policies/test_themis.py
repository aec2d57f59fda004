"""Themis by hand: ratios and shares, bids, winners, what they give back, and whole runs of two jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.policies import make_policy
from cotenant.policies.gavel.targets import TargetOptions, finish_time
from cotenant.policies.rounds.problem import Problem
from cotenant.policies.themis import LEAST_KEPT, bid_gains, isolated_finish_s, partial_allocation, ratio
from cotenant.sim.driver import Experiment, simulate
from cotenant.testing.policy import PolicyContract, assert_same, jobs, random_workload, stops


def problem(rates: list[list[float]], capacity: list[float], left_s: list[float], age_s: list[float]) -> Problem:
    """Jobs of one GPU that have done nothing yet."""
    n = len(left_s)
    return Problem(
        now_s=1000.0, rates=np.array(rates), gangs=np.ones(n, np.int64), weights=np.ones(n),
        capacity=np.array(capacity), left_s=np.array(left_s), age_s=np.array(age_s), isolated_s=np.zeros(n),
        steps_per_s=np.ones(n), deadline_s=np.full(n, np.nan), tenant=np.zeros(n, np.int64),
        prices=np.ones(len(capacity)), kind=np.arange(n), pool_types=("v100", "k80")[: len(capacity)],
    )  # fmt: skip


# One GPU, rate 1, W = (100, 300): an even share is half of it, so D = (200, 600). Where the GPU is full,
# 100 / (200 rho - e) + 300 / (600 rho - 0) = 1. With y = 200 rho and e = 50: 100 / (y - 50) + 100 / y = 1, so
# y^2 - 250 y + 5000 = 0, y = 125 + sqrt(10625) = 228.08 and rho = (5 + sqrt(17)) / 8. With e = 150: y = 300.
@pytest.mark.parametrize(
    ("elapsed", "rho", "shares"),
    [
        (0.0, 1.0, (0.5, 0.5)),
        (50.0, (5 + 17**0.5) / 8, (0.56155, 0.43845)),
        (150.0, 1.5, (2 / 3, 1 / 3)),
    ],
)
def test_shares_of_two_jobs_on_one_gpu(elapsed: float, rho: float, shares: tuple[float, float]) -> None:
    made = problem([[1.0], [1.0]], [1.0], [100.0, 300.0], [elapsed, 0.0])
    assert isolated_finish_s(made).tolist() == [200.0, 600.0]
    x = finish_time(made, TargetOptions(budget_s=np.inf)).x[:, 0]
    assert x == pytest.approx(shares, abs=1e-5)
    assert ratio(made, x) == pytest.approx([rho, rho], rel=2e-6)


def test_a_job_that_has_overrun_already_gets_all_it_can_use() -> None:
    """Two GPUs, so that an even share is a whole one and D = (100, 300). With e = 400, rho D <= e up to rho = 4.

    At full speed the first has (400 + 100) / 100 = 5, and nothing smaller will do; that is no reason to slow the other.
    """
    made = problem([[1.0], [1.0]], [2.0], [100.0, 300.0], [400.0, 0.0])
    assert isolated_finish_s(made).tolist() == [100.0, 300.0]
    x = finish_time(made, TargetOptions(budget_s=np.inf)).x[:, 0]
    assert ratio(made, x) == pytest.approx([500 / 100, 300 / 300])


def test_work_done_counts_at_the_even_share_of_its_time() -> None:
    """Half of 100 s of work were done when an even share was the whole GPU; the other half is left on half of it."""
    made = replace(problem([[1.0], [1.0]], [1.0], [50.0, 300.0], [50.0, 0.0]), isolated_s=np.array([50.0, 0.0]))
    assert isolated_finish_s(made).tolist() == [50.0 + 50.0 / 0.5, 600.0]
    assert ratio(made, np.array([1.0, 0.0])).tolist() == [(50.0 + 50.0) / 150.0, np.inf]


def test_the_shares_are_those_of_gavels_objective() -> None:
    """Whole runs agree to the last bit: the program and the rounds are the same."""
    work = random_workload(2, 30, 6)
    runs = [
        simulate(Experiment(work, Cluster.parse("2x4:v100+3x2:k80"), policy, round_s=20.0, compiled=False))
        for policy in ("themis", "gavel:objective=ftf")
    ]
    assert_same(*runs)


# -- the auction -----------------------------------------------------------------------------------------------


def _two_bidders() -> np.ndarray:
    """Leases of 100 s. W = (100, 300): with the GPU finish times are 100 and 300, with nothing 200 and 400.

    rho: 0.5 and 0.5 with it, 1 and 2/3 without, so it doubles the value of the first and adds a third to the second's.
    """
    made = problem([[1.0], [1.0]], [1.0], [100.0, 300.0], [0.0, 0.0])
    return bid_gains(made, np.array([0, 1]), np.array([-1, -1]), np.zeros(2), 100.0)


def test_the_largest_product_wins_and_pays_with_what_the_other_lost() -> None:
    """Values 1 / rho: with the GPU at the first 2 * 1.5 = 3, at the second 1 * 2 = 2, so the first has it.

    The second's value is 1.5 with the first there and 2 without: the first keeps 0.75 of its lease.
    """
    gains = _two_bidders()
    assert np.exp(gains[:, 0]) == pytest.approx([2.0, 4 / 3])
    won, kept = partial_allocation(gains, np.array([1, 1]), np.array([1.0]))
    assert won.tolist() == [0, -1]
    assert kept == pytest.approx([0.75, 1.0])


def test_nobody_pays_where_everybody_has_its_best() -> None:
    won, kept = partial_allocation(_two_bidders(), np.array([1, 1]), np.array([2.0]))
    assert (won.tolist(), kept.tolist()) == ([0, 0], [1.0, 1.0])


def test_equal_bids_go_to_the_worst_off() -> None:
    """Bidders come worst-off first. The winner would leave the other a tenth, but keeps 1/e at least."""
    gains = np.log([[10.0], [10.0], [10.0]])
    won, kept = partial_allocation(gains, np.array([1, 1, 1]), np.array([1.0]))
    assert won.tolist() == [0, -1, -1]
    assert kept[0] == pytest.approx(LEAST_KEPT)


def test_bids_know_places() -> None:
    """300 s of work, leases of 100 s, v100 three times as fast; it runs on the k80 and a restore takes 20 s.

    Nothing: 100 + 20 + 300 / 3 = 220. Stay on the k80: 300. Move to the v100: 20 + 100 = 120. So the k80 is worth
    less to it than waiting for a lease, and is not bid for.
    """
    made = problem([[3.0, 1.0]], [1.0, 1.0], [300.0], [0.0])
    gains = bid_gains(made, np.array([0]), np.array([1]), np.array([20.0]), 100.0)
    assert np.exp(gains[0]) == pytest.approx([220 / 120, 220 / 300])
    assert partial_allocation(gains, np.array([1]), np.array([0.0, 1.0]))[0].tolist() == [-1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31))
def test_winners_and_payments_are_those_of_trying_everything(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, pools = int(draw.integers(1, 5)), int(draw.integers(1, 3))
    gangs, capacity = draw.integers(1, 4, n), draw.integers(1, 5, pools).astype(np.float64)
    gains = draw.normal(0.5, 1.0, (n, pools))

    def best(who: list[int]) -> float:
        found = 0.0
        for choice in product(range(-1, pools), repeat=len(who)):
            used = np.zeros(pools)
            for at, pool in zip(who, choice, strict=True):
                used[pool] += gangs[at] if pool >= 0 else 0
            if (used <= capacity).all():
                found = max(found, sum(gains[at, pool] for at, pool in zip(who, choice, strict=True) if pool >= 0))
        return found

    won, kept = partial_allocation(gains, gangs, capacity)
    got = np.where(won >= 0, gains[np.arange(n), won], 0.0)
    assert got.sum() == pytest.approx(best(list(range(n))), abs=1e-5)
    for winner in np.flatnonzero(won >= 0).tolist():
        others = best([at for at in range(n) if at != winner])
        due = np.exp(got.sum() - got[winner] - others)
        assert kept[winner] == pytest.approx(np.clip(due, LEAST_KEPT, 1.0), abs=1e-4)


def test_a_lease_ends_early_by_what_was_given_back() -> None:
    """The two bidders of above, f=0 so that both bid; leases of 100 s, free restarts.

    The first wins at 0 and has the GPU until 75; what it gives back goes to the second. At 100 both have 100 s behind
    them and 25 and 275 s to go. Bids are (100 + 100 + 25) / (100 + 25) = 1.8 against (100 + 100 + 275) / (100 + 275) =
    1.27, so the first wins again, keeps 1 / 1.27 = 0.79 of the lease, and is done at 125. The second is alone then.
    """
    result = simulate(
        Experiment(
            jobs((0.0, 1, 100.0), (0.0, 1, 300.0)), Cluster.parse("1x1"), "themis:form=auction,f=0", costs="none",
            round_s=100.0, check_invariants=True, compiled=False,
        )
    )  # fmt: skip
    spans = result.segments
    order = np.argsort(spans.start_s)
    held = [(int(spans.job[at]), float(spans.start_s[at]), float(spans.end_s[at])) for at in order]
    assert np.array(held) == pytest.approx(np.array([(0, 0, 75), (1, 75, 100), (0, 100, 125), (1, 125, 400)]))


def test_only_the_worst_off_bid() -> None:
    """f = 0.8 of five jobs: one bids. The oldest small job is furthest behind, and wins whatever the draw says."""
    rows = ((0.0, 1, 50.0), (1.0, 1, 900.0), (2.0, 1, 900.0), (3.0, 1, 900.0), (4.0, 1, 900.0))
    for seed in range(4):
        experiment = Experiment(
            jobs(*rows), Cluster.parse("1x1"), "themis:form=auction", costs="none", round_s=10.0, seed=seed,
            check_invariants=True, compiled=False, until_s=100.0,
        )  # fmt: skip
        result = simulate(experiment)
        assert np.nanargmin(result.finish_s) == 0
        assert result.finish_s[0] <= 60.0


def _answers(policy: str) -> list[str]:
    """What everybody who waits is told, in a run of three jobs for one GPU of which the last comes within a round."""
    work = jobs((0.0, 1, 500.0), (0.0, 1, 500.0), (30.0, 1, 500.0))
    said = []
    for run in stops(Experiment(work, Cluster.parse("1x1"), policy, costs="none", round_s=100.0, compiled=False)):
        waiting = np.flatnonzero(run.state.i[:3, col.STATE] == col.WAITING)
        said += [run.engine.answers()(int(row)) for row in waiting]
    return said


def test_shares_answer_with_the_ratio_and_whose_is_largest() -> None:
    """At 100 s three jobs are there; the largest ratio is one of those that came first."""
    said = "\n".join(_answers("themis"))
    assert re.search(r"it came after the last round began, at 0 s", said)
    assert re.search(r"its finish time is planned at \d\.\d\d times that on a share of its own", said)
    assert re.search(r"the largest such ratio is \d\.\d\d, of row \d", said)


def test_the_auction_answers_with_bidders_and_the_next_one() -> None:
    """f=0.8 of two: one bids. Ratio of an equal job with nothing done: 500 / 1000, whoever bids."""
    said = _answers("themis:form=auction")
    assert said[0] == (
        "even at full speed it would finish 0.50 times as late as on a share of its own; only the 1 worst-off of 2 "
        "could bid (ratio 0.50 or more), and what was left over went to others; next auction at 100 s"
    )
    assert "it came after the auction at 0 s, and no GPUs are left over for it; next auction at 100 s" in said
    both = _answers("themis:form=auction,f=0")
    assert "it bid as the worst-off but 1 of 2, and other bids were worth more together" in both[0]


def test_what_it_cannot_take() -> None:
    for text in ("themis:f=1.5", "themis:form=lottery"):
        with pytest.raises(InputError, match="themis"):
            make_policy(text)


class TestAuction(PolicyContract):
    policy = "themis:form=auction"


class TestEverybodyBids(PolicyContract):
    policy = "themis:form=auction,f=0"
