"""A fitted log as a handful of numbers, and the one way that all fitted generators turn it into jobs.

Everything is drawn from one seeded stream in a fixed order: sizes, durations, arrivals, people, statuses,
models, retries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value
from cotenant.core.workload import Floats, Ints, Workload, make_workload
from cotenant.workload.generators.base import (
    DEFAULTS,
    Mixture,
    WorkloadRequest,
    draw_arrivals,
    draw_durations,
    draw_models,
    draw_people,
    draw_sizes,
    draw_status,
    size_bucket,
)
from cotenant.workload.model_sets import model_set

RECIPE_DEFAULTS: dict[str, Value] = {**DEFAULTS, "tenants": 0, "users": 0}
Half = tuple[float, ...]
Retries = Callable[[np.random.Generator, Ints, Ints, Floats], dict[int, tuple[float, ...]]]


def count_of(values: dict[str, Value], name: str, generator: str) -> int:
    """How many of something were asked for; 0: as in the original log."""
    value = int(values[name])  # type: ignore[arg-type]
    if value < 0:
        raise InputError(f"generator '{generator}': {name}={value} must be at least 0")
    return value


def as_many(tenants: dict[int, tuple[float, ...]], count: int) -> dict[int, tuple[float, ...]]:
    """Shares of so many tenants: each like one of the log's in its sizes, later ones of a kind ever smaller."""
    if not count:
        return tenants
    kinds = len(next(iter(tenants.values())))
    return {
        bound: tuple((shares[at % kinds] + 1e-6) / (1 + at // kinds) for at in range(count))
        for bound, shares in tenants.items()
    }


@dataclass(frozen=True, slots=True)
class Recipe:
    """The fitted parameters of one log; dicts are keyed by the largest GPU count of a size class.

    `mix`: weight of each GPU count. `durations`: log-normal mixtures, cut at `cap_s`. `hours`: relative
    arrival rates of the 12 hours before and after noon; `days`: from Monday. `tenants`: shares of jobs.
    `killed`, `failed`: shares of jobs for 1, 2-4, 5-8 and more GPUs; `tilt`: how they change with length
    (see `draw_status`).
    """

    mix: dict[int, float]
    durations: dict[int, Mixture]
    cap_s: float
    hours: tuple[Half, Half]
    days: tuple[float, ...]
    jobs_a_day: float
    tenants: dict[int, tuple[float, ...]]
    users: int
    user_skew: float
    killed: tuple[float, float, float, float]
    failed: tuple[float, float, float, float]
    tilt: tuple[float, float]
    retries: Retries | None = None

    def make(self, spec: Spec, cluster_gpus: int | None, profile: str | Path | None = None) -> Workload:
        """Jobs after this recipe, with the parameters of `spec`."""
        request, values = WorkloadRequest.of(spec, cluster_gpus, self.mix, RECIPE_DEFAULTS)
        models = model_set(str(values["models"]), profile)
        rng = np.random.default_rng(request.seed)
        gpus = draw_sizes(rng, request)
        duration_s, rank = draw_durations(rng, gpus, self.durations, self.cap_s)
        gpu_s = float(np.dot(gpus, duration_s))
        hours, days = np.ravel(self.hours), np.array(self.days)
        submit_s, notes = draw_arrivals(rng, request, gpu_s, hours, days, self.jobs_a_day)
        shares = as_many(self.tenants, count_of(values, "tenants", spec.name))
        users = count_of(values, "users", spec.name) or self.users
        tenant, user = draw_people(rng, gpus, shares, users, self.user_skew)
        bucket = size_bucket(gpus)
        status = draw_status(rng, bucket, rank, np.array(self.killed), np.array(self.failed), self.tilt)
        model = draw_models(rng, gpus, models)
        attempts = self.retries(rng, bucket, status, duration_s) if self.retries else {}
        return make_workload(
            str(spec),
            submit_s,
            gpus,
            duration_s,
            tenant=tenant,
            user=user,
            model=model,
            status=status,
            attempts=attempts,
            notes=notes,
        )
