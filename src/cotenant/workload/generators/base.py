"""What all generators share: parameters, sizes, lengths, arrivals with day and week cycles, users.

Arrivals follow a weekly cycle of hourly rates in real time: the span is worked out first, from the load
that was asked, then as many arrivals as jobs are put into it by inverting the cumulated rate. So a higher
load means a shorter log, never a shorter day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value, typed_params
from cotenant.core.workload import Codes, Floats, Ints, Workload
from cotenant.workload.model_sets import ModelSet

Mixture = tuple[tuple[float, float, float], ...]
"""Log-normal components: (weight, mean of ln seconds, standard deviation of ln seconds)."""

DEFAULTS: dict[str, Value] = {
    "jobs": 2000, "load": 0.9, "seed": 0, "gpus": 0, "max_gpus": 0, "mix": "", "models": "tiresias",
}  # fmt: skip
_HOUR_S = 3600.0
_WEEK_H = 168


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """The parameters of one generated log, checked."""

    jobs: int
    load: float
    seed: int
    gpus: int
    max_gpus: int
    mix: dict[int, float]

    @classmethod
    def of(
        cls, spec: Spec, cluster_gpus: int | None, mix: dict[int, float], defaults: dict[str, Value] = DEFAULTS
    ) -> tuple[WorkloadRequest, dict[str, Value]]:
        """Check the parameters; `mix` is the generator's own share of jobs per GPU count.

        Also gives all values, for those that only some generators have.
        """
        values = typed_params(spec, defaults, "generator")
        jobs, load, seed = int(values["jobs"]), float(values["load"]), int(values["seed"])  # type: ignore[arg-type]
        gpus, cap = int(values["gpus"]), int(values["max_gpus"])  # type: ignore[arg-type]
        for name, value, low in (("jobs", jobs, 1), ("seed", seed, 0), ("gpus", gpus, 0), ("max_gpus", cap, 0)):
            if value < low:
                raise InputError(f"generator '{spec.name}': {name}={value} must be at least {low}")
        if not load >= 0:
            raise InputError(f"generator '{spec.name}': load={load:g} must not be negative")
        gpus = gpus or cluster_gpus or 0
        if text := str(values["mix"]):
            mix = parse_mix(text, spec.name)
        limit = cap or gpus or max(mix)
        kept = {size: share for size, share in mix.items() if size <= limit}
        if not kept:
            raise InputError(
                f"generator '{spec.name}': no job size is at most {limit} GPUs (smallest {min(mix)}); raise max_gpus"
            )
        total = sum(kept.values())
        request = cls(jobs, load, seed, gpus, limit, {size: share / total for size, share in kept.items()})
        return request, values


def parse_mix(text: str, name: str) -> dict[int, float]:
    """Read `[1:0.7/2:0.1/8:0.2]`: share of jobs per GPU count; shares are scaled to sum to 1."""
    mix: dict[int, float] = {}
    for part in text.strip("[]").replace("/", ",").split(","):
        size, _, share = part.partition(":")
        try:
            gpus, weight = int(size), float(share)
        except ValueError:
            gpus, weight = 0, -1.0
        if gpus < 1 or not 0 <= weight < np.inf:
            raise InputError(f"generator '{name}': mix={text}: '{part}' is not GPUS:SHARE; write e.g. [1:0.7/8:0.3]")
        mix[gpus] = mix.get(gpus, 0.0) + weight
    if not sum(mix.values()) > 0:
        raise InputError(f"generator '{name}': mix={text}: the shares sum to 0")
    return mix


@dataclass(frozen=True, slots=True)
class Generator:
    """A named recipe for workloads, as listed by the command line."""

    name: str
    about: str
    source: str
    make: Callable[[Spec, int | None, str | Path | None], Workload]
    defaults: dict[str, Value] = field(default_factory=lambda: dict(DEFAULTS))


def draw_sizes(rng: np.random.Generator, request: WorkloadRequest) -> Ints:
    """GPUs per job, drawn from the mix."""
    sizes = np.array(sorted(request.mix), np.int64)
    return sizes[pick(rng, np.array([request.mix[int(size)] for size in sizes]), request.jobs)]


def pick(rng: np.random.Generator, shares: Floats, count: int) -> Ints:
    """`count` indices drawn with the given shares."""
    cumulated = np.cumsum(shares / shares.sum())
    return np.searchsorted(cumulated[:-1], rng.random(count), side="right").astype(np.int64)


def draw_durations(
    rng: np.random.Generator, gpus: Ints, mixtures: dict[int, Mixture], cap_s: float
) -> tuple[Floats, Floats]:
    """Whole seconds per job by size class, and each job's rank among its class (0 shortest, 1 longest).

    `mixtures` maps the largest GPU count of a class to its mixture. What lies beyond `cap_s` is mirrored
    back in log scale, so that no pile of equal maxima appears.
    """
    bounds = np.array(sorted(mixtures), np.int64)
    of_job = np.minimum(np.searchsorted(bounds, gpus), len(bounds) - 1)
    uniform, normal = rng.random(len(gpus)), rng.standard_normal(len(gpus))
    log_s = np.empty(len(gpus))
    rank = np.empty(len(gpus))
    for at, bound in enumerate(bounds.tolist()):
        rows = np.flatnonzero(of_job == at)
        if not len(rows):
            continue
        weight, mean, deviation = (np.array(column) for column in zip(*mixtures[bound], strict=True))
        component = np.searchsorted(np.cumsum(weight / weight.sum())[:-1], uniform[rows], side="right")
        log_s[rows] = mean[component] + deviation[component] * normal[rows]
        rank[rows[np.argsort(log_s[rows], kind="stable")]] = (np.arange(len(rows)) + 0.5) / len(rows)
    top = np.log(cap_s)
    folded = np.where(log_s > top, 2 * top - log_s, log_s)
    return np.clip(np.round(np.exp(folded)), 1.0, cap_s), rank


def draw_arrivals(
    rng: np.random.Generator, request: WorkloadRequest, gpu_s: float, hours: Floats, days: Floats, natural_rate: float
) -> tuple[Floats, tuple[str, ...]]:
    """Submit times from 0, sorted, whose span gives exactly the load asked; and a note where none could be.

    `hours` are 24 relative rates, `days` seven from Monday. Without GPUs to relate the load to, or with
    load=0, jobs come at `natural_rate` (jobs per day of the original log). `load=inf` submits everything at
    0.
    """
    jobs = request.jobs
    notes: tuple[str, ...] = ()
    if request.load == np.inf or jobs == 1:
        return np.zeros(jobs), notes
    if request.load > 0 and request.gpus:
        span_s = gpu_s / (request.gpus * request.load)
    else:
        span_s = jobs / natural_rate * 86400
        notes = (f"no GPUs to relate the load to; jobs arrive at {natural_rate:g} a day as in the original log",)
    week = (days[:, None] * hours[None, :]).ravel()
    cumulated = np.concatenate([[0.0], np.cumsum(week)])
    cumulated /= cumulated[-1]
    grid_s = np.arange(_WEEK_H + 1) * _HOUR_S
    week_s = _WEEK_H * _HOUR_S
    whole, part = divmod(span_s, week_s)
    total = whole + np.interp(part, grid_s, cumulated)
    weeks = np.sort(rng.random(jobs)) * total
    full = np.floor(weeks)
    times = full * week_s + np.interp(weeks - full, cumulated, grid_s)
    spread = times[-1] - times[0]
    times = (times - times[0]) * (span_s / spread) if spread > 0 else np.linspace(0.0, span_s, jobs)
    times = np.minimum(np.round(times, 3), span_s)
    times[-1] = span_s
    return times, notes


def stretch(unit: Floats, request: WorkloadRequest, gpu_s: float, jobs_a_day: float) -> tuple[Floats, tuple[str, ...]]:
    """Submit times a mean gap of 1 apart, stretched to exactly the load asked; to so many a day where that is open."""
    if request.load == np.inf or request.jobs == 1:
        return np.zeros(request.jobs), ()
    if request.load > 0 and request.gpus:
        span_s = gpu_s / (request.gpus * request.load)
        submit_s = np.minimum(np.round(unit * (span_s / unit[-1]), 3), span_s)
        submit_s[-1] = span_s
        return np.asarray(submit_s, np.float64), ()
    note = f"no GPUs to relate the load to; jobs arrive at {jobs_a_day:g} a day"
    return np.asarray(np.round(unit * (86400 / jobs_a_day), 3), np.float64), (note,)


def draw_models(rng: np.random.Generator, gpus: Ints, models: ModelSet) -> Codes:
    """One model of the set per job, evenly among those that run on as many GPUs."""
    if len(models.by_gpus) == 1:
        names = next(iter(models.by_gpus.values()))
        return Codes(rng.integers(0, len(names), len(gpus)), names)
    uniform = rng.random(len(gpus))
    names = tuple(dict.fromkeys(name for choice in models.by_gpus.values() for name in choice))
    code = np.zeros(len(gpus), np.int64)
    for size in np.unique(gpus).tolist():
        rows, choice = gpus == size, np.array([names.index(name) for name in models.at(size)], np.int64)
        code[rows] = choice[np.floor(uniform[rows] * len(choice)).astype(np.int64)]
    return Codes(code, names)


def draw_people(
    rng: np.random.Generator, gpus: Ints, tenants: dict[int, tuple[float, ...]], users: int, skew: float
) -> tuple[Codes, Codes]:
    """A tenant per job by size class, and a user of that tenant by a power law.

    `tenants` maps the largest GPU count of a class to the shares of the tenants in it. A tenant's k-th user
    submits with weight k**-skew; `users` is the number over all tenants, spread evenly.
    """
    bounds = np.array(sorted(tenants), np.int64)
    of_job = np.minimum(np.searchsorted(bounds, gpus), len(bounds) - 1)
    count = len(tenants[int(bounds[0])])
    tenant = np.zeros(len(gpus), np.int64)
    for at, bound in enumerate(bounds.tolist()):
        rows = np.flatnonzero(of_job == at)
        tenant[rows] = pick(rng, np.array(tenants[bound]), len(rows))
    each = max(users // count, 1)
    member = pick(rng, np.arange(1, each + 1, dtype=np.float64) ** -skew, len(gpus))
    tenant_names = tuple(f"vc{i:02d}" for i in range(1, count + 1))
    user_names = tuple(f"u{i:03d}" for i in range(1, count * each + 1))
    return Codes(tenant, tenant_names), Codes(tenant * each + member, user_names)


def draw_status(
    rng: np.random.Generator, bucket: Ints, rank: Floats, killed: Floats, failed: Floats, tilt: tuple[float, float]
) -> Ints:
    """Killed (2), failed (3) or passed (1), by size bucket and how long the job is among its like.

    `killed` and `failed` are shares per bucket; with tilt (a, b) a job at rank q is killed (1+a)q^a times
    and fails (1+b)(1-q)^b times as often as its bucket: long jobs are killed, short ones fail.
    """
    kill_tilt, fail_tilt = tilt
    kill = np.minimum(killed[bucket] * (1 + kill_tilt) * rank**kill_tilt, 1.0)
    fail = np.minimum(failed[bucket] * (1 + fail_tilt) * (1 - rank) ** fail_tilt, 1.0 - kill)
    uniform = rng.random(len(rank))
    return np.where(uniform < kill, 2, np.where(uniform < kill + fail, 3, 1)).astype(np.int64)


def size_bucket(gpus: Ints) -> Ints:
    """The size buckets of the Philly study: 0 for 1 GPU, 1 for 2-4, 2 for 5-8, 3 for more."""
    return np.searchsorted(np.array([1, 4, 8]), gpus).astype(np.int64)
