"""Inference services: jobs without end that answer requests within a latency target, on one GPU per replica.

Latency is predicted by a queue with random arrivals and a fixed service time (M/D/1): requests are dealt to replicas at
random, so each sees its part of the rate. The tail of the waiting time falls exponentially, with the exponent and the
factor of Cramer and Lundberg:

    P(W > t) ~ C exp(-eta t),   rate (exp(eta D) - 1) = eta,   C = (1 - rate D) / (D (eta + rate) - 1)

and the 99th percentile of the latency is D + ln(C / 0.01) / eta; up to a wait of D the law is exact, P(W <= t) =
(1 - rate D) exp(rate t). Training on the same GPU makes D longer (`Coresidence`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cotenant.core.workload import Floats

TAIL = 0.01  # of the requests may take longer than the target
DAY_S = 86400.0
LEAST_INTERLEAVING, MOST_INTERLEAVING = 1.3, 1.7
SURPRISE = 1.25  # by how much a rate that is only counted may rise
PAIR = 0.6
"""Speed of a service and of training beside each other, against alone, where nobody knows better."""


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Requests per second over time: linear between points, the same every `period_s` (infinity: once, then the last).

    `jumps` holds each value until the next point instead: counts of a request trace.
    """

    times_s: Floats
    rates: Floats
    period_s: float = DAY_S
    jumps: bool = False

    @classmethod
    def constant(cls, rate: float) -> RateCurve:
        """The same at all times."""
        return cls(np.zeros(1), np.array([rate]))

    @classmethod
    def by_hours(cls, points: Sequence[Sequence[float]]) -> RateCurve:
        """From hours of the day and rates, in order."""
        return cls(np.array([hour * 3600 for hour, _ in points]), np.array([float(rate) for _, rate in points]))

    def at(self, time_s: float) -> float:
        """Requests per second at a moment."""
        if self.jumps:
            place = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
            return float(self.rates[place]) if place >= 0 else 0.0
        period = self.period_s if math.isfinite(self.period_s) else None
        return float(np.interp(time_s, self.times_s, self.rates, period=period))

    def foreseen(self, now_s: float, ahead_s: float) -> float:
        """The highest rate of the next seconds; of counts the highest of the last ones and a quarter more."""
        if self.jumps:
            return SURPRISE * self.most(now_s - ahead_s, now_s)
        return self.most(now_s, now_s + ahead_s)

    def most(self, from_s: float, to_s: float) -> float:
        """The highest rate between two moments."""
        times = self.times_s
        if math.isfinite(self.period_s):
            turn = math.floor(from_s / self.period_s) * self.period_s
            times = np.concatenate([times + turn, times + turn + self.period_s])
        inside = times[(times > from_s) & (times < to_s)]
        return max(self.at(time_s) for time_s in (from_s, *inside.tolist(), to_s))


@dataclass(frozen=True, slots=True)
class Coresidence:
    """What a service and training of one model do to each other on a GPU: speeds of both against alone.

    An interleaving runtime multiplies both; nobody is faster than alone.
    """

    service: float = PAIR
    training: float = PAIR

    def interleaved(self, times: float) -> Coresidence:
        """The same under a runtime that interleaves operators of both; 1 without one."""
        return Coresidence(efficiency(self.service, times), efficiency(self.training, times))


def efficiency(pair: float, interleaving: float = 1.0) -> float:
    """Speed of one beside the other, against alone, under an interleaving runtime (ICCAD'21: 1.3 to 1.7 times)."""
    return min(pair * interleaving, 1.0)


@dataclass(frozen=True, slots=True)
class InferenceService:
    """One service. Times in seconds; `service_s` is one request alone on an idle GPU.

    `rate` is what it foresees; `requests_s`, where a trace is played, are the arrivals. `beside` says by model what it
    and training do to each other, `interleaving` included. Replicas are scaled between `least` and `most` to what is
    foreseen for the next `ahead_s`, take `start_s` until they answer, and stay for `calm_s` when they are not needed.
    """

    name: str
    target_s: float
    service_s: float
    rate: RateCurve
    least: int = 1
    most: int = 1
    model: str = ""
    gpu_type: str = ""
    tenant: str = ""
    gib: float = 0.0
    beside: dict[str, Coresidence] = field(default_factory=dict)  # by model; "" is everybody else
    interleaving: float = 1.0
    start_s: float = 30.0
    ahead_s: float = 600.0
    calm_s: float = 600.0
    alone: bool = False  # its GPUs are never shared with training
    requests_s: Floats | None = None

    def company(self, model: str, measured: Coresidence | None = None) -> Coresidence:
        """What it and training of this model do to each other: as said of the model, as measured, as said of all."""
        usual = self.beside.get("", Coresidence()) if measured is None else measured
        return self.beside.get(model.strip().lower(), usual).interleaved(self.interleaving)

    def p99_s(self, rate: float, replicas: int, slowdown: float = 1.0) -> float:
        """Predicted 99th percentile of the latency of a replica on which requests take `slowdown` times as long."""
        return p99_s(rate / max(replicas, 1), self.service_s * slowdown) if replicas else math.inf

    def replicas_for(self, rate: float) -> int:
        """Fewest replicas that keep the target at this rate without company; `most` where none do."""
        count = self.least
        while count < self.most and self.p99_s(rate, count) > self.target_s:
            count += 1
        return count


def p99_s(rate: float, service_s: float) -> float:
    """99th percentile of waiting and service of random arrivals at one server; infinity where it cannot keep up."""
    load = rate * service_s
    if load >= 1:
        return math.inf
    if load <= 0:
        return service_s
    waits = math.log((1 - TAIL) / (1 - load)) / load  # times in units of the service time; exact up to one of them
    if waits > 1:
        eta = _decay(load)
        waits = math.log((1 - load) / (eta + load - 1) / TAIL) / eta
    return service_s * (1 + max(waits, 0.0))


def _decay(load: float) -> float:
    """The positive root of load (exp(x) - 1) = x, by bisection: -ln(load) and twice that enclose it."""
    low = -math.log(load)
    high = 2 * low
    while load * math.expm1(high) <= high:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if load * math.expm1(middle) > middle else (middle, high)
    return high
