"""The estimator `shrunk`: means of log durations over ever narrower circles, each shrunk towards the wider one.

Circles: everybody, the time of day, the tenant, the number of GPUs, the user, his jobs of as many GPUs, of that kind
of name, of both. A circle in which n jobs have ended counts n / (n + kappa), the wider one the rest:
where the evidence is thin the guess is what is known anyway, and a constant where nothing is. How strong kappa is,
and how soon a circle forgets, is not set but found: every candidate foretells every job at its submission, is scored
by the squared error of the logarithm when that ends, and the best so far is believed (empirical Bayes by one-step-
ahead errors). A circle that says nothing is switched off by kappa = infinity. Scoring at the end what was said at
submission matters: jobs that end together are alike, so that judging by what is known at the end trusts the latest
ends too much.
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.beliefs.duration import DurationGuess
from cotenant.beliefs.prediction.learners import Spread
from cotenant.beliefs.prediction.past import AskedJob, Kinds
from cotenant.core.workload import Floats

KAPPA = np.array([2.0, 0.25, 8.0, 32.0, 128.0, np.inf])  # the first is believed until errors differ
DECAY = np.array([[1.0], [0.8]])  # what a job weighs against the next of its circle
_LEAST_S = 1.0  # no job is believed to last less, and none to have lasted less
_QUARTER_S, _DAY_S = 21600.0, 86400.0
_SHAPE = (len(DECAY), len(KAPPA))

Key = tuple[object, ...]


class _Circle:
    """Means by key, and what each candidate was wrong by so far."""

    def __init__(self) -> None:
        self._of: dict[Key, tuple[Floats, Floats]] = {}
        self._errors = np.zeros(_SHAPE)
        self._best = (0, 0)

    def foretell(self, key: Key, wider: float) -> tuple[Floats | None, float]:
        """What every candidate says, None where the circle is empty, and what is believed."""
        found = self._of.get(key)
        if found is None:
            return None, wider
        count, mean = found
        said = wider + count / (count + KAPPA) * (mean - wider)
        return said, float(said[self._best])

    def score(self, said: Floats, came: float) -> None:
        """What candidates had said, and what came."""
        self._errors += (said - came) ** 2
        row, column = divmod(int(self._errors.argmin()), _SHAPE[1])
        self._best = row, column

    def add(self, key: Key, value: float) -> None:
        """One more value, the newest."""
        count, mean = self._of.get(key, (np.zeros((len(DECAY), 1)), np.zeros((len(DECAY), 1))))
        count = count * DECAY + 1
        self._of[key] = count, mean + (value - mean) / count


class Shrunk:
    """Learns and foretells (see `Learner`)."""

    def __init__(self, prior_s: float = 3600.0) -> None:
        self._kinds = Kinds()
        self._mean, self._count = math.log(prior_s), 0
        self._spread = Spread()
        self._circles = [_Circle() for _ in self._keys(AskedJob("", "", "", 1, 0.0))]
        self._said: dict[int, tuple[float, list[Floats | None]]] = {}

    def _keys(self, job: AskedJob) -> tuple[Key, ...]:
        kind, size, user = self._kinds.of(job.name), job.gpus, (job.tenant, job.user)
        return (
            (int(job.submit_s % _DAY_S // _QUARTER_S),), (job.tenant,), (size,), user, (*user, size),
            (*user, "kind", kind), (*user, kind, size),
        )  # fmt: skip

    def _foretell(self, asked: AskedJob) -> tuple[float, list[Floats | None]]:
        """The logarithm that is believed, and what the candidates of each circle say."""
        said: list[Floats | None] = []
        log = self._mean
        for circle, key in zip(self._circles, self._keys(asked), strict=True):
            candidates, log = circle.foretell(key, log)
            said.append(candidates)
        return log, said

    def guess(self, asked: AskedJob) -> DurationGuess:
        """How long such a job would last, as a median and a spread."""
        return DurationGuess(max(math.exp(self._foretell(asked)[0]), _LEAST_S), self._spread.value)

    def submit(self, job: int, asked: AskedJob) -> DurationGuess:
        """The same of a job that is submitted now; what its candidates say is scored at its end."""
        self._said[job] = log, _ = self._foretell(asked)
        return DurationGuess(max(math.exp(log), _LEAST_S), self._spread.value)

    def end(self, job: int, asked: AskedJob, lasted_s: float) -> None:
        """Score what was said of it, and learn."""
        came = math.log(max(lasted_s, _LEAST_S))
        log, said = self._said.pop(job, (None, []))
        if log is not None and self._count:
            self._spread.add(math.exp(log), lasted_s)
        for circle, candidates in zip(self._circles, said, strict=False):
            if candidates is not None:
                circle.score(candidates, came)
        self._count += 1
        self._mean += (came - self._mean) / self._count
        for circle, key in zip(self._circles, self._keys(asked), strict=True):
            circle.add(key, came)
