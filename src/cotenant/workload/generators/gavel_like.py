"""Jobs by the rule of Gavel's own generator (OSDI'20, released code).

Durations 60 x 10^U(1.5, 3) s for 80 % of jobs and 60 x 10^U(3, 4) s for the rest (mean 16.8 h); 1/2/4/8
GPUs with 70/10/15/5 %; the job type evenly among 26, multi-GPU jobs among the 19 that can be distributed;
Poisson arrivals without cycles. `load=inf` gives the static variant, everything at 0.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.workload.generators.base import Generator, Request, draw_arrivals, draw_sizes

_MIX = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
_BATCHES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "Transformer": (16, 32, 64, 128, 256),
    "LM": (5, 10, 20, 40, 80),
    "Recommendation": (512, 1024, 2048, 4096, 8192),
}
_DISTRIBUTED = 19
JOB_TYPES = (
    *(f"{model} (batch size {size})" for model, sizes in _BATCHES.items() for size in sizes),
    "A3C",
    "CycleGAN",
)
"""The distributed-capable types come first."""
_JOBS_A_DAY = 96.0


def _make(spec: Spec, cluster_gpus: int | None) -> Workload:
    request = Request.of(spec, cluster_gpus, _MIX)
    rng = np.random.default_rng(request.seed)
    gpus = draw_sizes(rng, request)
    short = rng.random(request.jobs) < 0.8
    uniform = rng.random(request.jobs)
    exponent = np.where(short, 1.5 + 1.5 * uniform, 3.0 + uniform)
    duration_s = np.round(60 * 10**exponent, 3)
    kinds = np.where(gpus > 1, _DISTRIBUTED, len(JOB_TYPES))
    job_type = np.floor(rng.random(request.jobs) * kinds).astype(np.int64)
    even = np.ones(24), np.ones(7)
    submit_s, notes = draw_arrivals(rng, request, float(np.dot(gpus, duration_s)), *even, _JOBS_A_DAY)
    return make_workload(str(spec), submit_s, gpus, duration_s, model=Codes(job_type, JOB_TYPES), notes=notes)


GAVEL_LIKE = Generator(
    "gavel-like",
    "Gavel's synthetic jobs: log-uniform durations (mean 16.8 h), 1-8 GPUs, 26 job types, Poisson arrivals",
    "Narayanan et al., OSDI'20; stanford-futuredata/gavel",
    _make,
)
