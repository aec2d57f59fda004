"""The speed of a job from its reports: what is cold, rare or accidental does not count as speed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.beliefs.speed import LASTS, WINDOW, SpeedBelief

STEP_S = st.floats(0.005, 100.0)
COLD = st.lists(st.floats(1.0, 1000.0), max_size=20)
NOISE = st.floats(0.97, 1.03)


def reported(
    times_s: Iterable[float], belief: SpeedBelief | None = None, at: tuple[float, int] = (0.0, 0)
) -> SpeedBelief:
    """A belief after steps that took so long, each of them reported."""
    belief, (now_s, step) = belief or SpeedBelief(), at
    belief.add(now_s, step)
    for step_s in times_s:
        now_s, step = now_s + step_s, step + 1
        belief.add(now_s, step)
    return belief


def off(found_s: float | None, true_s: float) -> float:
    assert found_s is not None
    return abs(math.log(found_s / true_s))


@settings(max_examples=200, deadline=None)
@given(step_s=STEP_S, cold=COLD, warm=st.lists(NOISE, min_size=5, max_size=30))
def test_any_warm_up_is_forgotten_after_five_steps(step_s: float, cold: list[float], warm: list[float]) -> None:
    """Up to twenty cold steps, each up to a thousand times slower, in any order."""
    belief = reported([step_s * factor for factor in (*cold, *warm)])
    assert belief.warm
    assert off(belief.step_s, step_s) < 0.15  # 0.03 of noise, and colds that are hardly slower than warm steps


@settings(max_examples=100, deadline=None)
@given(step_s=STEP_S, factor=st.floats(1.25, 100.0), faster=st.booleans(), noise=st.lists(NOISE, min_size=60))
def test_a_change_that_lasts_is_followed_in_three_steps(
    step_s: float, factor: float, faster: bool, noise: list[float]
) -> None:
    after_s = step_s / factor if faster else step_s * factor
    before = [step_s * one for one in noise[:50]]
    belief = reported([*before, *(after_s * one for one in noise[50 : 50 + LASTS])])
    assert off(belief.step_s, after_s) < 0.1


@settings(max_examples=100, deadline=None)
@given(step_s=STEP_S, factor=st.floats(0.01, 1000.0), at=st.integers(LASTS, 40), noise=st.lists(NOISE, min_size=50))
def test_a_single_outlier_hardly_moves_it(step_s: float, factor: float, at: int, noise: list[float]) -> None:
    times_s = [step_s * one for one in noise[:50]]
    times_s[at] *= factor
    for length in range(at + 1, 50):
        assert off(reported(times_s[:length]).step_s, step_s) < 0.06


def test_a_job_with_only_cold_steps_is_not_warm_and_says_so() -> None:
    belief = reported([])
    assert (belief.warm, belief.step_s, belief.mean_s) == (False, None, None)
    belief = reported([30.0])
    assert not belief.warm
    assert belief.step_s is None
    assert belief.spread >= 2.0


def test_the_spread_falls_with_what_is_seen() -> None:
    spreads = [reported([1.0] * count).spread for count in (1, 3, 10, 50, 200)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.05


def test_evaluation_and_checkpoints_count_for_what_is_left_and_not_for_the_step() -> None:
    """Every twentieth step is followed by an evaluation of ten steps; a checkpoint is told by the job itself."""
    belief = reported(([1.0] * 19 + [11.0]) * 10)
    assert belief.step_s == pytest.approx(1.0)
    assert belief.mean_s == pytest.approx(1.5, rel=0.05)
    belief, saving_s = SpeedBelief(), 0.0
    for step in range(200):
        saving_s += 4.0 * (step % 20 == 19)
        belief.add(step + saving_s, step, saving_s)
    assert belief.step_s == pytest.approx(1.0)
    assert belief.mean_s == pytest.approx(1.2, rel=0.05)


def test_time_in_which_it_stood_still_is_not_its_speed() -> None:
    belief = reported([0.5] * 30)
    belief.gap()
    belief.add(15.5, 31)  # was on its way before the pause
    reported([0.5] * 10, belief, at=(1000.0, 32))
    assert belief.mean_s == pytest.approx(0.5)


def test_new_company_is_seen_before_it_is_believed() -> None:
    belief = reported([0.1] * 30)
    belief.new_company()
    assert belief.step_s is None
    assert belief.mean_s == pytest.approx(0.1)
    reported([0.13] * LASTS, belief, at=(3.2, 31))
    assert belief.step_s == pytest.approx(0.13)


def test_many_steps_in_one_report_are_worth_many_samples() -> None:
    """After a restart of the service the first report of a job tells of thousands of steps."""
    belief = SpeedBelief()
    belief.add(12.0, 1)
    belief.add(512.0, 5001)
    assert belief.step_s == pytest.approx(0.1)
    assert belief.spread < 0.1


def test_the_window_is_short_enough_for_slow_changes() -> None:
    """A GPU that gets ten percent slower is below every threshold, and followed all the same."""
    belief = reported([1.0] * 50 + [1.1] * WINDOW)
    assert belief.step_s == pytest.approx(1.1)
