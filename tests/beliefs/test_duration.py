"""Guesses are blended by their worth; whoever was wrong before counts less, and is corrected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.beliefs.duration import WORD_SPREAD, DurationGuess, LogTally, blend, with_own_progress, with_progress

SECONDS, SPREAD = st.floats(0.01, 1e6), st.floats(0.05, 3.0)
GUESS = st.builds(DurationGuess, SECONDS, SPREAD)


@given(st.lists(GUESS, min_size=1, max_size=5))
def test_a_blend_lies_between_and_is_surer_only_where_they_agree(guesses: list[DurationGuess]) -> None:
    found = blend(guesses)
    assert found is not None
    assert min(one.seconds for one in guesses) <= found.seconds * (1 + 1e-9)
    assert found.seconds <= max(one.seconds for one in guesses) * (1 + 1e-9)
    alike = blend([DurationGuess(60.0, one.spread) for one in guesses])
    assert alike is not None
    assert alike.spread <= found.spread + 1e-9
    assert alike.spread <= min(one.spread for one in guesses) + 1e-9


def test_nothing_known_is_no_guess() -> None:
    assert blend([None, None]) is None
    assert blend([None, DurationGuess(5.0, 0.1)]) == DurationGuess(pytest.approx(5.0), pytest.approx(0.1))


def test_a_user_who_always_says_too_much_is_corrected_and_soon_believed() -> None:
    """He says twice what it takes. The first time he is taken at his word."""
    tally = LogTally()
    assert tally.correct(100.0, WORD_SPREAD) == DurationGuess(100.0, WORD_SPREAD)
    found = []
    for _ in range(10):
        tally.add(0.5)
        found.append(tally.correct(100.0, WORD_SPREAD))
    assert [one.seconds for one in found] == sorted((one.seconds for one in found), reverse=True)
    assert found[-1].seconds == pytest.approx(50.0, rel=0.15)
    assert found[-1].spread < WORD_SPREAD / 2


def test_words_that_come_true_are_soon_worth_more_and_one_that_does_not_is_worth_less() -> None:
    """Nothing but words tells how right somebody is; whether the jobs have ended or still run does not matter.

    Golden, after one word that was 3 % off: (0.5 x 1.645 / 6.314)^2 = 0.01697, (0.01697 + 0.03^2) / 2 = 0.00893, its
    root 0.0945 times 2.92 / 1.645 = 0.1678. After a factor of two: sqrt((0.01697 + 0.6931^2) / 2) = 0.4987 gives 0.885.
    """
    assert LogTally().correct(100.0, WORD_SPREAD, [0.03]).spread == pytest.approx(0.1678, abs=1e-4)
    assert LogTally().correct(100.0, WORD_SPREAD, [math.log(2)]).spread == pytest.approx(0.8853, abs=1e-4)
    right = [LogTally().correct(100.0, WORD_SPREAD, [0.05] * count).spread for count in range(12)]
    assert right == sorted(right, reverse=True)
    assert right[-1] == pytest.approx(0.0665, abs=1e-4)
    ended = LogTally()
    for _ in range(3):
        ended.add(math.exp(0.05))
    assert ended.correct(100.0, WORD_SPREAD).spread < right[3]  # what he is off by always is corrected


def test_a_user_who_is_never_right_is_worth_less_than_one_of_whom_nothing_is_known() -> None:
    tally = LogTally()
    for factor in (0.1, 10.0) * 10:
        tally.add(factor)
    assert tally.correct(100.0, WORD_SPREAD).spread > 1.5


@given(SECONDS, SPREAD, st.floats(1.0, 1000.0))
def test_cold_steps_hardly_count_against_a_word(said_s: float, spread: float, slower: float) -> None:
    """One sample, whatever it says: at most a factor of e away from a word that is worth anything."""
    weight = np.asarray(min(spread, WORD_SPREAD) ** -2)
    log, _ = with_progress(np.log(said_s), weight, np.log(said_s * slower), np.asarray(2.0))
    assert -1e-9 <= log - math.log(said_s) < 0.5


def test_what_is_clearly_measured_refutes_what_was_thought() -> None:
    log, spread = with_progress(np.log(1.0), np.asarray(100.0), np.log(4.0), np.asarray(0.1))
    assert math.exp(float(log)) == pytest.approx(4.0)
    assert float(spread) == pytest.approx(0.1)


def test_progress_of_one_job_is_blended_as_that_of_many() -> None:
    chance = np.random.default_rng(3)
    before, measured = chance.normal(0, 1, 200), chance.normal(0, 1, 200)
    weight, spread = chance.choice([0.0, 1.0, 100.0], 200), chance.choice([0.03, 0.15, 0.2, 1.0, 3.0], 200)
    logs, spreads = with_progress(before, weight, measured, spread)
    rows = zip(before.tolist(), weight.tolist(), measured.tolist(), spread.tolist(), strict=True)
    assert [with_own_progress(*row) for row in rows] == list(zip(logs.tolist(), spreads.tolist(), strict=True))
