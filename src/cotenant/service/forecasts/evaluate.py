"""How right forecasts were: what was foretold at submission, at start and half-way, against when jobs ended.

Only jobs that succeeded count: nobody foretells a failure. Times are what was left at the moment of the forecast.
Between the limits of an interval quantiles are interpolated as of a log-normal whose two halves differ in width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean
from typing import Any

from cotenant.core.lifecycle import JobState
from cotenant.service.forecasts.foretold import HIGH, LOW, MOMENTS, ForecastRecord
from cotenant.service.store.job import LiveJob

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
MOST_POINTS = 10_000
_EDGE = NormalDist().inv_cdf(HIGH)
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One forecast and what came of it: seconds from when it was made."""

    job: str
    at: str
    policy: str
    made_s: float
    foretold_s: float
    low_s: float
    high_s: float
    took_s: float

    def quantile_s(self, level: float) -> float:
        """What was left at most with this probability, as foretold."""
        z = NormalDist().inv_cdf(level) / _EDGE
        limit = self.high_s if z > 0 else self.low_s
        return float(self.foretold_s * (max(limit, 1e-3) / self.foretold_s) ** abs(z))

    @property
    def inside(self) -> bool:
        """Whether it ended within the interval."""
        return self.low_s <= self.took_s <= self.high_s


@dataclass(frozen=True, slots=True)
class ForecastErrors:
    """Of the forecasts at one moment under one policy.

    `error_s`: mean of foretold less happened. `relative`: mean of its size against what happened. `bias`: sum of the
    errors against the sum of what happened. `inside`: part that ended within the interval, which should be 0.9.
    `pinball_s`: mean loss over median and limits, which right quantiles make smallest.
    """

    at: str
    policy: str
    forecasts: int
    error_s: float
    relative: float
    bias: float
    inside: float
    pinball_s: float


def points_of(jobs: Iterable[LiveJob]) -> list[Comparison]:
    """All forecasts of jobs that have succeeded since, the newest last."""
    found = []
    for job in jobs:
        if job.state == JobState.SUCCEEDED and job.attempts and job.last.ended_s is not None:
            found += [_point(job.id, at, told, job.last.ended_s) for at, told in job.foretold.items()]
    return sorted(found, key=lambda point: point.made_s)


def _point(job: str, at: str, told: ForecastRecord, ended_s: float) -> Comparison:
    left_s = [max(end_s - told.at_s, 1e-3) for end_s in (told.end_s, told.low_s, told.high_s, ended_s)]
    return Comparison(job, at, told.policy, told.at_s, *(round(seconds, 3) for seconds in left_s))


def evaluate(points: list[Comparison], scales: Mapping[str, float]) -> dict[str, Any]:
    """ForecastErrors by moment and policy, how often each quantile was kept, and the newest forecasts one by one."""
    groups = [(at, policy) for at in MOMENTS for policy in (*sorted({p.policy for p in points if p.at == at}), _ALL)]
    chosen = {(at, policy): [p for p in points if p.at == at and policy in (p.policy, _ALL)] for at, policy in groups}
    policies = {at: sum(1 for other, _ in groups if other == at) for at in MOMENTS}
    rows = [
        _errors(at, policy, some)
        for (at, policy), some in chosen.items()
        if some and (policy != _ALL or policies[at] > 2)
    ]
    table = [
        {"at": at, "quantile": level, "below": fmean(p.took_s <= p.quantile_s(level) for p in some), "of": len(some)}
        for at in MOMENTS
        for level in QUANTILES
        if (some := chosen[at, _ALL])
    ]
    newest = [asdict(point) for point in points[-MOST_POINTS:]]
    return {"errors": [asdict(row) for row in rows], "calibration": table, "scales": dict(scales), "forecasts": newest}


def _errors(at: str, policy: str, points: list[Comparison]) -> ForecastErrors:
    off_s = [point.foretold_s - point.took_s for point in points]
    return ForecastErrors(
        at, policy, len(points), fmean(off_s),
        fmean(abs(off) / max(point.took_s, 1.0) for off, point in zip(off_s, points, strict=True)),
        sum(off_s) / max(sum(point.took_s for point in points), 1e-9),
        fmean(point.inside for point in points),
        fmean(_pinball(point) for point in points),
    )  # fmt: skip


def _pinball(point: Comparison) -> float:
    """Mean of the losses of both limits and of the median (Koenker and Bassett 1978)."""
    losses = []
    for level, foretold_s in ((LOW, point.low_s), (0.5, point.foretold_s), (HIGH, point.high_s)):
        over_s = point.took_s - foretold_s
        losses.append(level * over_s if over_s > 0 else (level - 1) * over_s)
    return fmean(losses)
