"""Speed out of moments and steps: what is cold does not count."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

import pytest

from cotenant.profiler.runs import CommandRun
from cotenant.profiler.single import first_step_seconds, start_seconds
from cotenant.profiler.speed import StepRate, rate_since, steady_since, typical


def points(*phases: tuple[float, float]) -> list[tuple[float, int]]:
    """Reports every 0.25 s of phases of (seconds, steps per second)."""
    found, at, done = [(0.0, 0)], 0.0, 0.0
    for seconds, rate in phases:
        for _ in range(round(seconds * 4)):
            at, done = at + 0.25, done + rate / 4
            found.append((at, int(done + 1e-9)))
    return found


def test_cold_steps_do_not_count() -> None:
    told = points((3.0, 4.0), (1.0, 30.0), (4.0, 80.0))
    begins = steady_since(told)
    assert begins is not None
    assert begins == pytest.approx(4.0)
    rate = rate_since(told, begins)
    assert rate is not None
    assert rate.steps_per_s == pytest.approx(80.0)
    assert rate.spread == pytest.approx(0.0, abs=0.02)


def test_an_evaluation_in_between_is_part_of_the_speed() -> None:
    told = points((0.5, 4.0), (2.0, 40.0), (0.5, 4.0), (2.0, 40.0))
    assert steady_since(told) == pytest.approx(0.5, abs=0.5)


def test_a_speed_that_still_grows_is_not_steady() -> None:
    assert steady_since(points((0.5, 8.0), (0.5, 16.0), (0.5, 32.0))) is None
    assert rate_since([(0.0, 3)], 0.0) is None
    assert rate_since([(0.0, 3), (1.0, 3)], 0.0) is None


def test_several_measurements_are_one() -> None:
    two = typical([StepRate(10.0, 0.01, 0.0, 1.0), StepRate(12.0, math.nan, 2.0, 3.0)])
    assert two.steps_per_s == 11.0
    assert two.spread == pytest.approx(math.log(1.2) / 2)


def test_a_start_holds_what_the_first_seconds_gain() -> None:
    # First step after 3 s, 20 steps/s for two seconds while the GPU is cool, then 10 steps/s.
    told = [(3.0, 1)] + [(3.0 + k / 20, 1 + k) for k in range(1, 41)] + [(5.0 + k / 10, 41 + k) for k in range(1, 61)]
    run = cast(CommandRun, SimpleNamespace(points=told, began_s=0.0, base=0))
    rate = rate_since(told, 5.5)
    assert rate is not None
    assert rate.steps_per_s == pytest.approx(10)
    assert first_step_seconds(run, rate) == pytest.approx(3.0)
    assert start_seconds(run, rate) == pytest.approx(1.0)  # 101 steps took 11 s, as 1 s and 100 steps at 10 steps/s do
