"""The truth of a simulated service: every single request, by random arrivals or a trace, dealt to replicas at random.

Each replica answers one request at a time, in order (Lindley's recursion). A request takes the service time alone,
times the slowdown by whoever sat beside the replica when it came. Nothing of it is known to whoever decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from cotenant.core.serving import InferenceService
from cotenant.core.workload import Floats
from cotenant.sim.metrics import percentiles

_STEP_S = 60.0  # in which a rate counts as constant


@dataclass(slots=True)
class Stay:
    """One replica from its first request to its last, and how many times as long requests took since when."""

    from_s: float
    to_s: float = np.inf
    times_s: list[float] = field(default_factory=list)
    slowdowns: list[float] = field(default_factory=list)

    def note(self, slowdown: float, now_s: float) -> None:
        """From now on requests take so many times as long as alone."""
        if not self.slowdowns or self.slowdowns[-1] != slowdown:
            self.times_s.append(now_s)
            self.slowdowns.append(slowdown)

    def slowdown(self, times_s: Floats) -> Floats:
        """At some moments."""
        if not self.times_s:
            return np.ones(len(times_s))
        place = np.searchsorted(self.times_s, times_s, side="right") - 1
        return np.array([1.0, *self.slowdowns])[place + 1]


@dataclass(frozen=True, slots=True)
class Served:
    """How the requests of a service fared. Those that no replica was there for count as late."""

    requests: int
    within: int
    p50_s: float
    p99_s: float

    @property
    def share(self) -> float:
        """Of requests within target."""
        return self.within / self.requests if self.requests else 1.0


def serve(service: InferenceService, stays: list[Stay], from_s: float, to_s: float, seed: int) -> Served:
    """Play the requests between two moments."""
    draw = np.random.default_rng([seed, 7919])
    times = arrivals(service, from_s, to_s, draw)
    latency = np.full(len(times), np.inf)
    chosen = _deal(times, stays, draw)
    for number, stay in enumerate(stays):
        mine = np.flatnonzero(chosen == number)
        took = service.service_s * stay.slowdown(times[mine])
        latency[mine] = answered(times[mine], took) - times[mine]
    p50, p99 = percentiles(latency, 0.5, 0.99) if len(latency) else (0.0, 0.0)
    return Served(len(times), int((latency <= service.target_s).sum()), p50, p99)


def answered(times_s: Floats, took_s: Floats) -> Floats:
    """When one server that works in order has answered requests that come then and take so long."""
    if not len(times_s):
        return times_s
    ends = np.cumsum(took_s)
    return ends + np.maximum.accumulate(times_s - (ends - took_s))


def arrivals(service: InferenceService, from_s: float, to_s: float, draw: np.random.Generator) -> Floats:
    """Of the trace, or at random by the curve."""
    if service.requests_s is not None:
        return service.requests_s[(service.requests_s >= from_s) & (service.requests_s < to_s)]
    starts = np.arange(from_s, to_s, _STEP_S)
    lengths = np.minimum(starts + _STEP_S, to_s) - starts
    means = [service.rate.at(start + length / 2) for start, length in zip(starts, lengths, strict=True)]
    counts = draw.poisson(np.array(means) * lengths)
    return np.sort(np.repeat(starts, counts) + draw.random(int(counts.sum())) * np.repeat(lengths, counts))


def _deal(times_s: Floats, stays: list[Stay], draw: np.random.Generator) -> np.ndarray:
    """Which stay each request goes to, at random among those that are there; -1 for none."""
    chosen = np.full(len(times_s), -1, np.int64)
    edges = sorted({-np.inf, np.inf, *(stay.from_s for stay in stays), *(stay.to_s for stay in stays)})
    for begin, end in pairwise(edges):
        there = [number for number, stay in enumerate(stays) if stay.from_s <= begin and end <= stay.to_s]
        lo, hi = np.searchsorted(times_s, [begin, end])
        if there and hi > lo:
            chosen[lo:hi] = np.array(there)[draw.integers(len(there), size=hi - lo)]
    return chosen
