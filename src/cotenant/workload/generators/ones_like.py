"""Elastic jobs after the trace of ONES (SC'21): ten model and data set pairs, 2 to 16 GPUs asked, short jobs.

As in its trace: the ten pairs evenly, GPUs asked 16/4/2/8 with 40/30/20/10 %, a job every 30 s on average. The trace
gives no lengths; run times on the GPUs asked are log-normal with a median of 130 s, so that their spread is that of
the published run times. `gap` is the mean time between two arrivals; a `load` replaces it. Jobs run on any number of
GPUs. `ones-recorded` has the same pairs as the artifact's job history has them instead: epochs, rates, lengths in
samples and the GPUs asked go together; lengths vary by `spread`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cotenant.core.errors import InputError
from cotenant.core.spec import Spec, Value
from cotenant.core.workload import Codes, Floats, Ints, Workload, make_workload
from cotenant.workload.elastic import MODELS, RECORDED
from cotenant.workload.generators.base import Generator, WorkloadRequest, draw_sizes

_MIX = {2: 0.2, 4: 0.3, 8: 0.1, 16: 0.4}
_DEFAULTS: dict[str, Value] = {
    "jobs": 50, "load": 0.0, "seed": 0, "gpus": 0, "max_gpus": 0, "mix": "",
    "gap": 30.0, "median": 130.0, "spread": 1.1,
}  # fmt: skip
_RECORDED_DEFAULTS: dict[str, Value] = {
    "jobs": 50, "load": 0.0, "seed": 0, "gpus": 0, "max_gpus": 0, "mix": "", "gap": 30.0, "spread": 0.3,
}  # fmt: skip
_LEAST_S = 20.0
_NODE = 4  # GPUs of a node of the artifact's cluster


def _make(spec: Spec, cluster_gpus: int | None, profile: str | Path | None) -> Workload:
    small = cluster_gpus == 1 and "gpus" not in spec.params
    request, values = WorkloadRequest.of(spec, cluster_gpus, {1: 1.0} if small else _MIX, _DEFAULTS)
    gap_s, median_s, spread = (float(str(values[name])) for name in ("gap", "median", "spread"))
    if not (gap_s >= 0 and median_s > 0 and spread >= 0):
        raise InputError(f"generator '{spec.name}': gap and spread must be at least 0, median above 0")
    rng = np.random.default_rng([request.seed, 21])
    gpus = draw_sizes(rng, request)
    model = Codes(rng.permutation(np.arange(request.jobs) % len(MODELS)), tuple(m.name for m in MODELS))
    duration_s = np.maximum(np.round(median_s * np.exp(spread * rng.standard_normal(request.jobs)), 3), _LEAST_S)
    return _finish(spec, request, gap_s, rng, gpus, duration_s, model)


def _make_recorded(spec: Spec, cluster_gpus: int | None, profile: str | Path | None) -> Workload:
    request, values = WorkloadRequest.of(spec, cluster_gpus, {1: 1.0}, _RECORDED_DEFAULTS)
    gap_s, spread = (float(str(values[name])) for name in ("gap", "spread"))
    if not (gap_s >= 0 and spread >= 0):
        raise InputError(f"generator '{spec.name}': gap and spread must be at least 0")
    rng = np.random.default_rng([request.seed, 23])
    which = rng.permutation(np.arange(request.jobs) % len(RECORDED))
    names = tuple(dict.fromkeys(job.model.name for job in RECORDED))
    code = np.array([names.index(job.model.name) for job in RECORDED])[which]
    most = request.gpus or max(job.asked for job in RECORDED)
    gpus = np.minimum([job.asked for job in RECORDED], most)[which]
    alone_s = [
        job.samples / float(job.model.step.throughput(job.model.batch, size, -(-size // _NODE)))
        for job, size in ((job, min(job.asked, most)) for job in RECORDED)
    ]
    duration_s = np.round(np.array(alone_s)[which] * np.exp(spread * rng.standard_normal(request.jobs)), 3)
    return _finish(spec, request, gap_s, rng, gpus, duration_s, Codes(code, names))


def _finish(
    spec: Spec, request: WorkloadRequest, gap_s: float, rng: np.random.Generator, gpus: Ints, duration_s: Floats,
    model: Codes,
) -> Workload:  # fmt: skip
    """Arrivals, and sizes from one GPU up."""
    unit = np.concatenate([[0.0], np.cumsum(rng.exponential(1.0, request.jobs - 1))])
    submit_s = np.round(gap_s * unit, 3)
    if request.load > 0 and request.gpus and request.jobs > 1:
        span_s = 0.0 if request.load == np.inf else float(np.dot(gpus, duration_s)) / (request.gpus * request.load)
        submit_s = unit * (span_s / unit[-1])
        submit_s[-1] = span_s
    least = np.ones(request.jobs, np.int64)
    return make_workload(str(spec), submit_s, gpus, duration_s, model=model, extra={"min_gpus": least})


ONES_LIKE = Generator(
    "ones-like",
    "elastic jobs: ten models, 2-16 GPUs asked, minutes long, one every 30 s",
    "Bian et al., SC'21 (mix of the artifact's trace)",
    _make,
    dict(_DEFAULTS),
)


ONES_RECORDED = Generator(
    "ones-recorded",
    "the same models with the epochs, rates, lengths and GPUs that ONES' artifact recorded",
    "Bian et al., SC'21 (summaries of the artifact's trace and job history)",
    _make_recorded,
    dict(_RECORDED_DEFAULTS),
)
