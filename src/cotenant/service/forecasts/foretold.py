"""Values: when a job is expected to end, and what is foretold of all jobs at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, isfinite, log
from typing import Any

SUBMIT, START, HALF = "submit", "start", "half"
MOMENTS = (SUBMIT, START, HALF)  # at which it is written down what was foretold
LOW, HIGH = 0.05, 0.95  # the quantiles of an interval: 9 of 10 ends lie inside
_SOONEST_S = 1.0  # nobody ends sooner after a forecast, ...
_LEAST_S, _LEAST = 0.75, 0.02  # ... and nobody knows an end better than to this, or to 2 % of what is left


@dataclass(frozen=True, slots=True)
class Foretold:
    """When a job ends, Unix seconds, by beliefs that are medians; where it was played often, the limits for 9 of 10.

    `scale` is by how much the interval was stretched beyond what beliefs alone gave; `start_s`: when it first has GPUs.
    """

    end_s: float
    low_s: float | None = None
    high_s: float | None = None
    scale: float = 1.0
    start_s: float | None = None

    def widened(self, at_s: float, scale: float) -> Foretold:
        """The same with the interval of what is left after `at_s` made wider on a scale of logarithms."""
        if self.low_s is None or self.high_s is None:
            return self
        left_s = max(self.end_s - at_s, _SOONEST_S)
        least_s = max(_LEAST_S, _LEAST * left_s)
        low_s = left_s * exp(-scale * _log_ratio(left_s, self.low_s - at_s))
        high_s = left_s * exp(scale * _log_ratio(self.high_s - at_s, left_s))
        limits_s = at_s + max(min(low_s, left_s - least_s), 0.0), at_s + max(high_s, left_s + least_s)
        return Foretold(max(self.end_s, at_s + _SOONEST_S), *limits_s, scale, self.start_s)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was foretold of the jobs at `at_s`, under the policy that was at work; nobody changes it."""

    at_s: float = 0.0
    policy: str = ""
    jobs: Mapping[str, Foretold] = field(default_factory=dict)


NOTHING_FORETOLD = Outlook()


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """One forecast as it was written down: made at `at_s`, its interval widened by `scale`."""

    at_s: float
    policy: str
    end_s: float
    low_s: float
    high_s: float
    scale: float = 1.0

    @classmethod
    def read(cls, data: Mapping[str, Any], written_s: float) -> ForecastRecord:
        """From a record of the journal."""
        ends_s = data["expected_end_s"], data["low_s"], data["high_s"]
        return cls(data.get("made_s", written_s), data["policy"], *ends_s, data.get("scale", 1.0))

    def error(self, ended_s: float) -> float:
        """How far the end lies from the median, on the side where it lies: -1 and 1 are the limits of the interval.

        Measured in logarithms of the time that was left; of the interval before it was widened.
        """
        left_s, took_s = max(self.end_s - self.at_s, _SOONEST_S), max(ended_s - self.at_s, _SOONEST_S)
        off = log(took_s / left_s)
        limit = _log_ratio(self.high_s - self.at_s, left_s) if off > 0 else _log_ratio(left_s, self.low_s - self.at_s)
        return off / max(limit / self.scale, 1e-3)

    def shifted(self, by_s: float) -> ForecastRecord:
        """The same after the clock was set."""
        times = self.end_s + by_s, self.low_s + by_s, self.high_s + by_s
        return ForecastRecord(self.at_s + by_s, self.policy, *times, self.scale)


def _log_ratio(larger: float, smaller: float) -> float:
    ratio = max(larger, 1e-3) / max(smaller, 1e-3)
    return max(log(ratio), 0.0) if isfinite(ratio) else 0.0
