"""Inference services as values: pairs under an interleaving runtime, predicted latency, rates that are foreseen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotenant.core.serving import Coresidence, InferenceService, RateCurve, efficiency, p99_s
from cotenant.sim.requests import answered


@pytest.mark.parametrize(("times", "speed"), [(1.0, 0.6), (1.3, 0.78), (1.7, 1.0)])
def test_an_interleaving_runtime_multiplies_pair_efficiency_up_to_alone(times: float, speed: float) -> None:
    """The check of the specification: 0.6 times 1.3 is 0.78, and 1.02 counts as 1."""
    assert efficiency(0.6, times) == pytest.approx(speed)
    service = InferenceService(
        "chat", 0.05, 0.01, RateCurve.constant(1.0), beside={"bert": Coresidence()}, interleaving=times
    )
    assert service.company("BERT") == Coresidence(efficiency(0.6, times), efficiency(0.6, times))


@pytest.mark.parametrize("load", [0.05, 0.3, 0.6, 0.85])
def test_predicted_latency_is_that_of_requests_played_one_by_one(load: float) -> None:
    """99 of 100 random arrivals at one server with a fixed service time are answered within the prediction."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1 / load, 400_000))
    latency = answered(arrivals, np.ones(len(arrivals))) - arrivals
    assert 0.987 < float((latency <= p99_s(load, 1.0)).mean()) < 0.993


def test_a_server_that_cannot_keep_up_has_no_latency() -> None:
    """Nor is anybody faster than a request alone."""
    assert p99_s(100.0, 0.01) == math.inf
    assert p99_s(0.0, 0.01) == 0.01
    assert InferenceService("chat", 0.05, 0.01, RateCurve.constant(1.0)).p99_s(1.0, 0) == math.inf


def test_rates_of_a_day_come_again_and_a_trace_is_not_known_before() -> None:
    """Between its points a curve is linear; of a trace only what was counted is foreseen, and a quarter more."""
    day = RateCurve(np.array([0.0, 12 * 3600.0]), np.array([10.0, 30.0]))
    assert day.at(6 * 3600) == pytest.approx(20) == day.at(30 * 3600)
    assert day.foreseen(11.9 * 3600, 600) == pytest.approx(30)
    assert day.foreseen(35.9 * 3600, 600) == pytest.approx(30)
    trace = RateCurve(np.array([60.0, 120.0, 180.0]), np.array([5.0, 5.0, 80.0]), math.inf, jumps=True)
    assert trace.foreseen(170.0, 600) == 1.25 * 5
    assert trace.foreseen(180.0, 600) == 1.25 * 80
