"""Guesses of a duration as a median and a spread, blended by how much each is worth.

All is done with logarithms, for durations are wrong by factors. A guess counts with the inverse of its variance. Where
guesses lie further apart than their spreads allow, the blend is that much less sure. How right somebody was before
is a `LogTally`: his words are corrected by its mean, and its scatter is what they are worth. How right people are
differs a lot, so nothing but their words tells: a few that came true are believed, a single one that was far off is not
forgotten (Student's distribution, by which an unknown scatter is judged from few values).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.workload import Floats

WORD_SPREAD = 0.5  # of a user's word, before it is known how right he is
HISTORY_SPREAD = 1.0  # of jobs of one kind, before their scatter is known
PROFILE_SPREAD = 0.1  # of what a profile has measured
UNKNOWN_SPREAD = 2.0  # of a default that nobody has said
REFUTED = 3.0  # spreads by which what was thought before is off when it no longer counts, ...
CLEAR = 0.2  # ... once what is measured is as sure as this
_AS_GOOD_AS = 2  # finished jobs that count as much as what was thought before the first of them
_NORMAL = 1.645  # 9 of 10 values of a normal distribution lie within so many standard deviations
_STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796)  # of Student's, by freedom
_LATEST = 0.1  # the least weight of the newest value: what was long ago is forgotten


@dataclass(frozen=True, slots=True)
class DurationGuess:
    """Half of all such durations are longer than `seconds`; `spread`: the standard deviation of the logarithm."""

    seconds: float
    spread: float


@dataclass(slots=True)
class LogTally:
    """Mean and variance of the logarithm of what was measured so far; the newest values count most."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def add(self, value: float) -> None:
        """One more value; none that has no logarithm."""
        if not 0 < value < math.inf:
            return
        self.count += 1
        weight = max(1 / self.count, _LATEST)
        off = math.log(value) - self.mean
        self.mean += weight * off
        self.variance = (1 - weight) * (self.variance + weight * off * off)

    def guess(self, before: float) -> DurationGuess | None:
        """What the next value will be; `before`: the spread where only few are known. None where none is."""
        if not self.count:
            return None
        variance = (self.count * self.variance + _AS_GOOD_AS * before**2) / (self.count + _AS_GOOD_AS)
        return DurationGuess(math.exp(self.mean), math.sqrt(variance * (1 + 1 / self.count)))

    def correct(self, word_s: float, before: float, seen: Sequence[float] = ()) -> DurationGuess:
        """A word, corrected by how right such words were (the values are what came of them, divided by the word).

        `before`: what a word is worth of which nothing is known; `seen`: logarithms of values of jobs that still run.
        """
        shift = self.count / (self.count + _AS_GOOD_AS) * self.mean
        count = min(self.count, len(_STUDENT) - 1)
        off = count * (self.variance + (self.mean - shift) ** 2) + sum((log - shift) ** 2 for log in seen)
        return DurationGuess(word_s * math.exp(shift), _spread_of(count + len(seen), off, before))


def _spread_of(count: int, squares: float, before: float) -> float:
    """The spread of a normal distribution with the same 9 of 10 limits as the next of so many values, by their squares.

    Without any it is `before`, which is taken for a distribution of Cauchy (Student's with one degree of freedom).
    """
    scale = before * _NORMAL / _STUDENT[0]
    wide = _STUDENT[min(count, len(_STUDENT) - 1)] / _NORMAL
    return math.sqrt((scale**2 + squares) / (count + 1)) * wide


def blend(guesses: Iterable[DurationGuess | None]) -> DurationGuess | None:
    """One guess of several; None where there is none."""
    known = [guess for guess in guesses if guess is not None and 0 < guess.seconds < math.inf]
    if not known:
        return None
    whole = summed = 0.0
    logs = []
    for guess in known:
        weight, log = 1 / guess.spread**2, math.log(guess.seconds)
        whole += weight
        summed += weight * log
        logs.append((weight, log))
    mean, apart = summed / whole, 0.0
    for weight, log in logs:
        apart += weight * (log - mean) ** 2
    return DurationGuess(math.exp(mean), math.sqrt(1 / whole + apart / whole * (1 - 1 / len(known))))


def with_progress(before: Floats, weight: Floats, measured: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """What was thought before jobs ran, and what they do; as logarithms, of many jobs at a time.

    `weight`: the inverse of the variance of `before`, 0 where nothing was thought. What is clearly measured counts
    alone where it contradicts what was thought. The blended logarithms and their spreads.
    """
    own = 1 / spread**2
    off = np.abs(before - measured)
    refuted = (spread <= CLEAR) & (off > REFUTED * np.sqrt(1 / np.maximum(weight, 1e-9) + spread**2))
    weight = np.where(refuted, 0.0, weight)
    whole = weight + own
    apart = weight * own / whole**2 * off**2
    return (weight * before + own * measured) / whole, np.sqrt(1 / whole + apart / 2)


def with_own_progress(before: float, weight: float, measured: float, spread: float) -> tuple[float, float]:
    """The same of one job, to the last bit: plain numbers take a tenth of the time of small arrays."""
    own, variance = 1 / (spread * spread), spread * spread
    off = abs(before - measured)
    if spread <= CLEAR and off > REFUTED * math.sqrt(1 / max(weight, 1e-9) + variance):
        weight = 0.0
    whole = weight + own
    apart = weight * own / (whole * whole) * (off * off)
    return (weight * before + own * measured) / whole, math.sqrt(1 / whole + apart / 2)
