"""A fitted log as a handful of numbers, and the one way that all fitted generators turn it into jobs.

Everything is drawn from one seeded stream in a fixed order: sizes, durations, arrivals, people, statuses,
models, retries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotenant.core.spec import Spec
from cotenant.core.workload import Floats, Ints, Workload, make_workload
from cotenant.workload.generators.base import (
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

Half = tuple[float, ...]
Retries = Callable[[np.random.Generator, Ints, Ints, Floats], dict[int, tuple[float, ...]]]


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
        request, values = WorkloadRequest.of(spec, cluster_gpus, self.mix)
        models = model_set(str(values["models"]), profile)
        rng = np.random.default_rng(request.seed)
        gpus = draw_sizes(rng, request)
        duration_s, rank = draw_durations(rng, gpus, self.durations, self.cap_s)
        gpu_s = float(np.dot(gpus, duration_s))
        hours, days = np.ravel(self.hours), np.array(self.days)
        submit_s, notes = draw_arrivals(rng, request, gpu_s, hours, days, self.jobs_a_day)
        tenant, user = draw_people(rng, gpus, self.tenants, self.users, self.user_skew)
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
