"""Jobs by the rule of Synergy's own generator (OSDI'22, released code): classes by quota, log-uniform lengths.

The next job goes to the class (image, language, speech) furthest below its part of the split, and inside a class the
models take turns. Lengths at the proportional share are 10^U(1.5, 3) minutes for 80 % of jobs and 10^U(3, 4) for the
rest (mean 16.8 h), in whole iterations; arrivals are Poisson; 1/2/4/8 GPUs with 70/10/15/5 %, or 1 only.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value
from cotenant.core.workload import Codes, Floats, Ints, Workload, make_workload
from cotenant.workload.generators.base import DEFAULTS, Generator, WorkloadRequest, draw_sizes, stretch
from cotenant.workload.readers.synergy import ITERATION_S

CLASSES = {
    "image": ("alexnet", "shufflenet", "res18", "mobilenet", "res50"),
    "language": ("gnmt", "transformer", "lstm"),
    "speech": ("m5", "deepspeech"),
}
_MIX = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
_JOBS_A_DAY = 192.0
_OWN: dict[str, Value] = {
    **{key: value for key, value in DEFAULTS.items() if key != "models"},
    "jobs_per_hour": 0.0,
    "split": (20.0, 70.0, 10.0),
    "multi": False,
}


def _make(spec: Spec, cluster_gpus: int | None, profile: str | Path | None) -> Workload:
    request, own = WorkloadRequest.of(spec, cluster_gpus, _MIX, _OWN)
    model = _models(spec, own["split"], request.jobs)
    rng = np.random.default_rng([request.seed, 6151])
    gpus = draw_sizes(rng, request) if own["multi"] else np.ones(request.jobs, np.int64)
    long = rng.random(request.jobs) >= 0.8
    power = np.where(long, 3.0 + rng.random(request.jobs), 1.5 + 1.5 * rng.random(request.jobs))
    step_s = np.array([ITERATION_S[name] for name in model.names])[model.code]
    iterations = np.maximum(np.floor(60 * 10**power / step_s), 1.0)
    gaps = np.concatenate([[0.0], rng.exponential(1.0, request.jobs - 1)])
    submit_s = _arrivals(spec, request, float(str(own["jobs_per_hour"])), gaps, gpus, iterations * step_s)
    return make_workload(
        str(spec),
        submit_s,
        gpus,
        iterations * step_s,
        model=model,
        extra={"iterations": iterations, "iteration_time_s": step_s},
    )


def _models(spec: Spec, split: Value, jobs: int) -> Codes:
    """Models by class quota, taking turns inside a class."""
    parts = np.array(split if isinstance(split, tuple) else (), np.float64)
    if len(parts) != len(CLASSES) or not (parts >= 0).all() or not 0 < parts.sum() < math.inf:
        raise InputError(
            f"generator '{spec.name}': split must be three parts such as [20/70/10]: image, language, speech"
        )
    parts = parts / parts.sum()
    names = tuple(name for models in CLASSES.values() for name in models)
    first = np.concatenate([[0], np.cumsum([len(models) for models in CLASSES.values()])])
    sizes = [len(models) for models in CLASSES.values()]
    made, code = np.zeros(len(parts)), np.zeros(jobs, np.int64)
    for job in range(jobs):
        chosen = int(np.argmax(parts * (job + 1) - made))
        code[job] = first[chosen] + int(made[chosen]) % sizes[chosen]
        made[chosen] += 1
    return Codes(code, names)


def _arrivals(
    spec: Spec, request: WorkloadRequest, rate: float, gaps: Floats, gpus: Ints, duration_s: Floats
) -> Floats:
    """At `jobs_per_hour`, or stretched to the load asked (of proportional shares)."""
    unit = np.cumsum(gaps)
    if not 0 <= rate < math.inf:
        raise InputError(f"generator '{spec.name}': jobs_per_hour={rate:g} must be a number of at least 0")
    if rate > 0:
        if "load" in spec.params:
            raise InputError(f"generator '{spec.name}': jobs_per_hour replaces load; leave one of them out")
        return np.asarray(np.round(unit * (3600 / rate), 3), np.float64)
    return stretch(unit, request, float(np.dot(gpus, duration_s)), _JOBS_A_DAY)[0]


SYNERGY_LIKE = Generator(
    "synergy-like",
    "Synergy's synthetic jobs: image, language and speech models by quota, log-uniform durations, Poisson arrivals",
    "Mohan et al., OSDI'22; msr-fiddle/synergy",
    _make,
    dict(_OWN),
)
