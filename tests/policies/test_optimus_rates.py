"""What Optimus expects of sizes that it has not seen: the model of a step, fitted to all jobs of the kind."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.goodput import StepTime
from cotenant.core.training import Training
from cotenant.policies.ones.throughput import throughputs
from cotenant.policies.optimus import fitted_rates

STEP = StepTime(a_c=0.02, b_c=0.001, a_r=0.01, b_r=0.002, a_n=0.05, b_n=0.01, gamma=2.0)
NODE, MOST = 4, 32
ASKED = np.array([2, 4, 4])  # two jobs of one kind, one of another


def _truth(asked: int) -> np.ndarray:
    """Samples per second by size with 64 samples per GPU of the asked size, all in all."""
    gpus = np.arange(1, MOST + 1)
    return np.concatenate([[0.0], STEP.throughput(np.maximum(64 * asked // gpus, 1), gpus, -(-gpus // NODE))])


def _training(seen: list[tuple[int, int]]) -> Training:
    rates = np.full((3, MOST + 1), np.nan)
    for row, gpus in seen:
        rates[row, gpus] = _truth(int(ASKED[row]))[gpus]

    def same(value: float) -> np.ndarray:
        return np.full(3, value)

    return Training(
        np.array([0, 0, 1]),
        ASKED,
        same(1e4),
        same(64),
        same(0.01),
        same(1.0),
        same(0),
        same(1),
        same(1),
        same(0),
        same(100),
        rates,
    )


def test_beyond_what_was_seen_the_model_says_less_than_a_straight_line_and_is_nearer() -> None:
    training = _training([(0, 1), (0, 2), (0, 4), (0, 8), (1, 2), (1, 4), (1, 16)])
    for row in (0, 1):
        truth, fitted = _truth(int(ASKED[row])), fitted_rates(training, row, MOST, NODE)
        line = throughputs(training.seen[row], MOST)
        assert abs(fitted[32] - truth[32]) < 0.1 * truth[32]
        assert abs(fitted[32] - truth[32]) < 0.2 * abs(line[32] - truth[32])


def test_what_the_job_itself_was_seen_at_is_kept_and_other_kinds_do_not_enter() -> None:
    training = _training([(0, 2), (1, 8)])
    training.seen[0, 2] = 123.0
    assert fitted_rates(training, 0, MOST, NODE)[2] == 123.0
    alone = fitted_rates(training, 2, MOST, NODE)  # nobody of its kind was seen: no communication, any unit
    assert alone.tolist() == list(range(MOST + 1))
    # One observation on one GPU says nothing of communication, but no gang is faster than so many single GPUs.
    single = fitted_rates(_training([(2, 1)]), 2, MOST, NODE)
    assert single[1] == pytest.approx(_truth(4)[1])
    assert np.all(single[2:] > single[1])
    assert np.all(single <= np.arange(MOST + 1) * single[1] * (1 + 1e-9))
