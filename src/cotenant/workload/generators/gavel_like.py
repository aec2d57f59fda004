"""Jobs by the rule of Gavel's own generator (OSDI'20, released code), from the authors' random streams.

One stream per job: scale factor (drawn even in single-GPU mode), duration branch, duration, job type,
weight. Durations are 60 x 10^U(1.5, 3) s for 80 % of jobs and 60 x 10^U(3, 4) s for the rest (mean 16.8 h);
1/2/4/8 GPUs with 70/10/15/5 %; the type evenly among 26, redrawn for a gang until it can be distributed. A
second stream spaces arrivals exponentially. With the authors' throughputs as profile the steps of a job are
whole, as in their traces: seed 0 then gives their very jobs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value
from cotenant.core.workload import Codes, Floats, Ints, Workload, make_workload
from cotenant.workload.generators.base import DEFAULTS, Generator, WorkloadRequest, stretch
from cotenant.workload.model_sets import ModelSet, model_set
from cotenant.workload.readers.throughputs import find_throughputs

_MIX = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
_JOBS_A_DAY = 96.0
_HIGH_WEIGHT, _HIGH_SHARE = 5.0, 0.2
_SLACKS = ((0.33, 1.2), (0.67, 2.0), (1.0, 10.0))  # cumulated share, deadline after how many durations
_SEED_JOBS, _SEED_ARRIVALS, _SEED_SLO = 2, 3, 6  # what the authors add to the seed for each stream
_OWN: dict[str, Value] = {
    **DEFAULTS, "models": "gavel", "lam": 0.0, "jobs_per_hour": 0.0, "multi": True, "weights": False, "slos": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Draws:
    """What the stream of jobs gives."""

    gpus: Ints
    duration_s: Floats
    model: Codes
    weight: Floats


def _make(spec: Spec, cluster_gpus: int | None, profile: str | Path | None) -> Workload:
    request, own = WorkloadRequest.of(spec, cluster_gpus, _MIX, _OWN)
    draws = _draw_jobs(request, model_set(str(own["models"]), profile), bool(own["multi"]), bool(own["weights"]))
    steps, duration_s = _whole_steps(draws, profile)
    submit_s, notes = _arrivals(spec, request, own, float(np.dot(draws.gpus, duration_s)))
    slack = _slacks(request) if own["slos"] else np.full(request.jobs, -1.0)
    extra: dict[str, NDArray[np.generic]] = {"weight": draws.weight, "slo": slack}
    if steps is not None:
        extra["total_steps"] = steps
    return make_workload(
        str(spec),
        submit_s,
        draws.gpus,
        duration_s,
        model=draws.model,
        deadline_s=np.where(slack > 0, submit_s + slack * duration_s, np.nan),
        extra=extra,
        notes=notes,
    )


def _draw_jobs(request: WorkloadRequest, models: ModelSet, multi: bool, weights: bool) -> _Draws:
    stream = Random(request.seed + _SEED_JOBS)
    sizes = sorted(request.mix)
    bounds = list(accumulate(request.mix[size] for size in sizes))[:-1]
    names = list(dict.fromkeys(name for size in (1, *sizes) for name in models.at(size)))
    place = {name: at for at, name in enumerate(names)}
    everything = models.at(1)
    gang_ok = {size: frozenset(models.at(size)) for size in sizes}
    gpus, duration_s = np.ones(request.jobs, np.int64), np.zeros(request.jobs)
    model, weight = np.zeros(request.jobs, np.int64), np.ones(request.jobs)
    for row in range(request.jobs):
        size = sizes[bisect_right(bounds, stream.uniform(0, 1))]
        low, high = (3.0, 4.0) if stream.random() >= 0.8 else (1.5, 3.0)
        duration_s[row] = 60 * 10 ** stream.uniform(low, high)
        gpus[row] = size = size if multi else 1
        name = stream.choice(everything)
        while size > 1 and name not in gang_ok[size]:
            name = stream.choice(everything)
        model[row] = place[name]
        if weights and stream.uniform(0, 1) <= _HIGH_SHARE:
            weight[row] = _HIGH_WEIGHT
    return _Draws(gpus, duration_s, Codes(model, tuple(names)), weight)


def _whole_steps(draws: _Draws, profile: str | Path | None) -> tuple[Floats | None, Floats]:
    """Whole steps at the V100 rates of a throughput file, and their seconds; without a file, milliseconds."""
    if (throughputs := find_throughputs(profile)) is not None:
        rates = throughputs.reference
        kinds = zip((draws.model.names[code] for code in draws.model.code), draws.gpus.tolist(), strict=True)
        rate = np.array([rates.get(kind, 0.0) for kind in kinds])
        if (rate > 0).all():
            steps = np.maximum(np.floor(draws.duration_s * rate), 1.0)
            return steps, steps / rate
    return None, np.round(draws.duration_s, 3)


def _arrivals(
    spec: Spec, request: WorkloadRequest, own: dict[str, Value], gpu_s: float
) -> tuple[Floats, tuple[str, ...]]:
    """Arrival times from 0: with a mean gap of `lam` seconds, or stretched to exactly the load asked."""
    lam, rate = float(own["lam"]), float(own["jobs_per_hour"])  # type: ignore[arg-type]
    if not 0 <= lam < math.inf or not 0 <= rate < math.inf or (lam > 0 and rate > 0):
        raise InputError(
            f"generator '{spec.name}': give either lam (mean seconds between arrivals) or jobs_per_hour, above 0"
        )
    stream = Random(request.seed + _SEED_ARRIVALS)
    gaps = [0.0, *(-math.log(1.0 - stream.random()) for _ in range(request.jobs - 1))]
    if lam > 0 or rate > 0:
        if "load" in spec.params:
            raise InputError(f"generator '{spec.name}': lam and jobs_per_hour replace load; leave one of them out")
        mean_s = lam or 3600.0 / rate
        return np.cumsum(np.array(gaps) * mean_s), ()
    return stretch(np.cumsum(gaps), request, gpu_s, _JOBS_A_DAY)


def _slacks(request: WorkloadRequest) -> Floats:
    """Deadlines as multiples of the duration: 1.2, 2 or 10, about a third each."""
    stream = Random(request.seed + _SEED_SLO)
    bounds = [share for share, _ in _SLACKS[:-1]]
    return np.array([_SLACKS[bisect_right(bounds, stream.uniform(0, 1))][1] for _ in range(request.jobs)])


GAVEL_LIKE = Generator(
    "gavel-like",
    "Gavel's synthetic jobs: log-uniform durations (mean 16.8 h), 1-8 GPUs, 26 job types, Poisson arrivals",
    "Narayanan et al., OSDI'20; stanford-futuredata/gavel",
    _make,
    dict(_OWN),
)
