"""What a log contains, and what is wrong with it, as plain data: numbers, text, lists and dicts.

Size buckets are those of the Philly study (1, 2-4, 5-8, more than 8 GPUs). Times in seconds.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.workload import Codes, Floats, Status, Workload

BUCKETS = ("1", "2-4", "5-8", ">8")
_EDGES = np.array([1, 4, 8])
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_SHORT_S = 60.0


def describe(workload: Workload, cluster_gpus: int | None = None) -> dict[str, object]:
    """Counts, shares and quantiles; `offered_load` only when the cluster's GPUs are given."""
    gpus, duration_s = workload.gpus, workload.duration_s
    known_status = bool(workload.status.any())
    facts: dict[str, object] = {
        "source": workload.source,
        "jobs": len(workload),
        "span_s": workload.span_s,
        "gpu_hours": workload.gpu_s / 3600,
        "mean_gpus": float(gpus.mean()) if len(workload) else 0.0,
        "sizes": _by_bucket(workload),
        "gpus": _quantiles(gpus.astype(np.float64)),
        "duration_s": _quantiles(duration_s),
        "status": _status_mix(workload) if known_status else {},
        "tenants": _count(workload.tenant),
        "users": _count(workload.user),
        "models": _count(workload.model),
        "with_deadline": int(np.count_nonzero(np.isfinite(workload.deadline_s))),
        "retried": len(workload.attempts),
        "flaws": flaws(workload),
    }
    if cluster_gpus:
        facts["cluster_gpus"] = cluster_gpus
        facts["offered_load"] = float(workload.load(cluster_gpus))
        facts["infeasible"] = int(np.count_nonzero(gpus > cluster_gpus))
    return facts


def flaws(workload: Workload) -> list[str]:
    """One line per thing a careful reader should know before trusting results on this log."""
    jobs = len(workload)
    found = list(workload.notes)
    if not jobs:
        return [*found, "there are no jobs"]
    duration_s, submit_s, gpus = workload.duration_s, workload.submit_s, workload.gpus
    top = duration_s.max()
    clamped = int(np.count_nonzero(duration_s == top))
    if clamped >= max(10, 3 * int(np.count_nonzero(duration_s == np.median(duration_s)))) or (
        clamped >= 10 and top % 3600 == 0
    ):
        found.append(f"{_share(clamped, jobs)} last exactly {top:g} s, the maximum: they look cut off")
    if zero := int(np.count_nonzero(duration_s == 0)):
        found.append(f"{_share(zero, jobs)} last 0 s")
    if short := int(np.count_nonzero(duration_s < _SHORT_S)):
        found.append(f"{_share(short, jobs)} last under 60 s: start-up costs weigh on them")
    if odd := int(np.count_nonzero(gpus & (gpus - 1))):
        found.append(f"{_share(odd, jobs)} ask for a number of GPUs that is not a power of two")
    same = int(np.count_nonzero(np.diff(submit_s) == 0))
    if same == jobs - 1 and jobs > 1:
        found.append("all jobs are submitted at the same moment")
    elif same:
        found.append(f"{_share(same, jobs)} are submitted at the same moment as the one before: ties matter")
    if sparse := _sparse_start(submit_s):
        found.append(f"the first {sparse:.0%} of the span holds under 1 % of the jobs: leave it out")
    if len(workload.attempts) == 0 and np.any(workload.status == Status.FAILED):
        found.append("failed jobs have no attempts: retries cannot be replayed")
    if "gpu_share" in workload.extra:
        share = workload.extra["gpu_share"].astype(np.float64)
        if fractional := int(np.count_nonzero(share != np.ceil(share))):
            found.append(f"{_share(fractional, jobs)} ask for a fraction of a GPU: rounded up to whole GPUs")
    return found


def _share(count: int, jobs: int) -> str:
    percent = 100 * count / jobs
    return f"{count:,} job{'s' * (count > 1)} ({percent:.1f} %)" if percent >= 0.1 else f"{count:,} jobs"


def _sparse_start(submit_s: Floats) -> float:
    """The part of the span before the first per cent of jobs, if it is a tenth or more."""
    span = submit_s[-1] - submit_s[0]
    if span <= 0 or len(submit_s) < 200:
        return 0.0
    part = float((submit_s[len(submit_s) // 100] - submit_s[0]) / span)
    return part if part >= 0.1 else 0.0


def _by_bucket(workload: Workload) -> list[dict[str, object]]:
    bucket = np.searchsorted(_EDGES, workload.gpus)
    gpu_s = workload.gpus * workload.duration_s
    jobs = np.bincount(bucket, minlength=len(BUCKETS))
    service = np.bincount(bucket, gpu_s, minlength=len(BUCKETS))
    rows: list[dict[str, object]] = []
    for at, name in enumerate(BUCKETS):
        of = workload.duration_s[bucket == at]
        rows.append(
            {
                "gpus": name,
                "jobs": int(jobs[at]),
                "jobs_share": float(jobs[at] / max(len(workload), 1)),
                "gpu_hours_share": float(service[at] / service.sum()) if service.sum() else 0.0,
                "median_duration_s": float(np.median(of)) if len(of) else None,
                "mean_duration_s": float(of.mean()) if len(of) else None,
            }
        )
    return rows


def _quantiles(values: Floats) -> dict[str, float]:
    if not len(values):
        return {}
    middle = {name: float(np.quantile(values, at)) for name, at in _QUANTILES.items()}
    return {"min": float(values.min()), **middle, "mean": float(values.mean()), "max": float(values.max())}


def _status_mix(workload: Workload) -> dict[str, dict[str, float]]:
    gpu_s = workload.gpus * workload.duration_s
    total = float(gpu_s.sum()) or 1.0
    return {
        status.name.lower(): {
            "jobs": float(np.mean(workload.status == status)),
            "gpu_hours": float(gpu_s[workload.status == status].sum() / total),
        }
        for status in Status
        if np.any(workload.status == status)
    }


def _count(codes: Codes) -> int:
    return sum(1 for code in np.unique(codes.code).tolist() if codes.names[code])
