"""Outcomes made up with NumPy: plausible shapes, no simulator."""

from __future__ import annotations

import numpy as np

from cotenant.core.outcome import Outcome, Segments, Series
from cotenant.core.workload import Codes, Workload, make_workload


def workload(jobs: int, seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    tenants = ("", "vision", "speech, text")
    return make_workload(
        "philly-like:jobs=2000",
        np.cumsum(rng.exponential(300, jobs)) + 1000,
        rng.choice([1, 2, 4, 8, 16], jobs, p=[0.6, 0.12, 0.12, 0.12, 0.04]),
        np.round(rng.lognormal(7.5, 1.6, jobs), 2) + 1,
        tenant=Codes(rng.integers(0, 3, jobs), tenants),
        notes=("3 rows asked for 0 GPUs and were left out",),
    )


def outcome(
    policy: str = "fifo",
    jobs: int = 200,
    *,
    delay: float = 1.0,
    seed: int = 0,
    unfinished: int = 0,
    placement: str = "consolidated",
    **summary: object,
) -> Outcome:
    """A run in which two jobs of three wait, `delay` times as long as they would under `fifo`."""
    work = workload(jobs)
    rng = np.random.default_rng([seed, int(delay * 1000)])
    queue = np.where(rng.random(jobs) < 0.33, 0.0, rng.exponential(4000 * delay, jobs))
    start = work.submit_s + queue
    finish = start + work.duration_s
    if unfinished:
        finish[-unfinished:] = np.nan
        start[-1] = np.nan
    series = _series(work, start, finish)
    jct = (finish - work.submit_s)[np.isfinite(finish)]
    made: dict[str, object] = {
        "policy": policy,
        "placement": placement,
        "cluster": "8x8",
        "jobs": jobs,
        "finished": len(jct),
        "avg_jct_s": float(jct.mean()),
        "p50_jct_s": float(np.percentile(jct, 50)),
        "p95_jct_s": float(np.percentile(jct, 95)),
        "p99_jct_s": float(np.percentile(jct, 99)),
        "max_jct_s": float(jct.max()),
        "avg_queue_s": float(queue.mean()),
        "makespan_s": float(np.nanmax(finish) - work.submit_s[0]),
        "gpu_utilization": 0.7 + 0.01 * delay,
        "preemptions": int(10 * delay),
        "lost_gpu_s": 3600.0 * delay,
        "fairness_jain": 0.9,
        "events": 3 * jobs,
        "decisions": 2 * jobs,
        "wall_s": 0.123456,
        "peak_rss_mib": 98.7654,
        "seed": seed,
        "version": "0.1.0",
    }
    return Outcome(
        policy=policy,
        placement=placement,
        cluster="8x8",
        cluster_gpus=64,
        workload=work,
        first_start_s=start,
        finish_s=finish,
        queue_s=queue,
        preemptions=rng.poisson(delay, jobs),
        restarts=np.zeros(jobs, np.int64),
        lost_gpu_s=np.full(jobs, 90.0),
        startup_gpu_s=np.full(jobs, 30.0),
        restoring_gpu_s=np.full(jobs, 20.0),
        measured=np.ones(jobs, np.bool_),
        series=series,
        segments=segments(work, start),
        summary={**made, **summary},  # type: ignore[dict-item]
    )


def _series(work: Workload, start: np.ndarray, finish: np.ndarray) -> Series:
    time = np.sort(np.concatenate([work.submit_s, start[np.isfinite(start)], finish[np.isfinite(finish)]]))
    waiting = np.searchsorted(work.submit_s, time, "right") - np.searchsorted(np.sort(start), time, "right")
    running = np.searchsorted(np.sort(start), time, "right") - np.searchsorted(np.sort(finish), time, "right")
    busy = np.minimum(64.0, 2.0 * np.maximum(0, running))
    return Series(time, busy, np.maximum(0, waiting).astype(float), running.astype(float))


def segments(work: Workload, start: np.ndarray, nodes: int = 8, per_node: int = 8) -> Segments:
    """Jobs packed on nodes for real (first node that is free long enough), so that capacity holds."""
    free_at = np.full((nodes, per_node), float(work.submit_s[0]))
    made = []
    for job in np.argsort(start, kind="stable").tolist():
        asked = int(work.gpus[job])
        begin = float(np.partition(free_at.ravel(), asked - 1)[asked - 1])
        begin = max(begin, float(work.submit_s[job]))
        left = asked
        for node in range(nodes):
            free = np.flatnonzero(free_at[node] <= begin)[:left]
            if len(free):
                free_at[node, free] = begin + work.duration_s[job]
                made.append((job, node, len(free), begin, begin + work.duration_s[job]))
                left -= len(free)
            if not left:
                break
    table = np.array(made, float).reshape(-1, 5)
    whole = table[:, :3].astype(np.int64)
    return Segments(whole[:, 0], whole[:, 1], whole[:, 2], table[:, 3], table[:, 4])
