"""As it happened: the outcome that a log itself tells, beside those of policies.

A job started `wait_s` after its submission and ended when the log says, else after its duration; a log without waits
cannot be replayed. On which nodes it was is not known, so there is nothing for a Gantt chart.
"""

from __future__ import annotations

import time

import numpy as np

from cotenant._version import __version__
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome, Segments, Series
from cotenant.core.workload import Floats, Status, Workload
from cotenant.policies.as_is import AsIs
from cotenant.sim.experiment import Experiment
from cotenant.sim.metrics import jct_metrics, peak_rss_mib

_NONE = np.zeros(0, np.int64)


def is_replay(policy: str) -> bool:
    """Whether a run is only what the log says."""
    return policy == AsIs.name


def as_it_happened(e: Experiment) -> Outcome:
    """The outcome of the log."""
    began, work = time.perf_counter(), e.workload
    start_s = logged_starts(work)
    known = np.isfinite(start_s)
    if not known.all():
        e.notes.append(f"as-is: {int((~known).sum()):,} jobs have no logged start; they count as unfinished")
    finish_s = np.where(known, start_s + held_for_s(work), np.nan)
    finish_s = np.where(finish_s <= e.until_s, finish_s, np.nan)
    measured = np.ones(len(work), bool)
    if e.measure is not None:
        rank = np.arange(len(work))
        measured = (rank >= e.measure[0]) & (rank <= e.measure[1])
    series = _series(work, start_s, finish_s)
    most = float(series.gpus_busy.max()) if len(series.gpus_busy) else 0.0
    if most > e.cluster.gpus:
        e.notes.append(
            f"as-is: the log holds up to {most:,.0f} GPUs at a time, more than cluster '{e.cluster.spec}' has"
        )
    no_floats = np.zeros(0)
    outcome = Outcome(
        policy=e.policy, placement=e.placement, cluster=e.cluster.spec, cluster_gpus=e.cluster.gpus, workload=work,
        first_start_s=np.where(known, start_s, np.nan), finish_s=finish_s,
        queue_s=np.where(np.isfinite(finish_s), np.maximum(finish_s - work.submit_s - work.duration_s, 0.0), np.nan),
        preemptions=np.zeros(len(work), np.int64),
        restarts=np.array([len(work.attempts.get(row, ())) for row in range(len(work))], np.int64),
        lost_gpu_s=np.zeros(len(work)), startup_gpu_s=np.zeros(len(work)), restoring_gpu_s=np.zeros(len(work)),
        measured=measured, series=series,
        segments=Segments(_NONE, _NONE, _NONE, no_floats, no_floats),
    )  # fmt: skip
    done = outcome.finished
    span_s = float(np.nanmax(finish_s) - work.submit_s[0]) if np.isfinite(finish_s).any() else 0.0
    busy_gpu_s = float((work.gpus * work.duration_s)[np.isfinite(finish_s)].sum())
    ended = np.bincount(work.status[done], minlength=len(Status))
    outcome.summary.update(
        {
            "policy": e.policy, "placement": e.placement, "cluster": e.cluster.spec, "workload": work.source,
            "jobs": int(measured.sum()), "finished": int(done.sum()),
            "ended_failed": int(ended[Status.FAILED]), "ended_killed": int(ended[Status.KILLED]),
            **jct_metrics(outcome.jct_s[done], outcome.queue_s[done], work.duration_s[done]),
            "makespan_s": span_s, "gpu_utilization": busy_gpu_s / (e.cluster.gpus * span_s) if span_s > 0 else 0.0,
            "goodput": 1.0, "preemptions": 0, "restarts": int(outcome.restarts[measured].sum()), "lost_gpu_s": 0.0,
            "offered_load": float(work.load(e.cluster.gpus)) if work.span_s > 0 else None,
            "wall_s": time.perf_counter() - began, "peak_rss_mib": peak_rss_mib(), "seed": e.seed,
            "version": __version__,
        }
    )  # fmt: skip
    return outcome


def logged_starts(work: Workload) -> Floats:
    """When jobs first started, on the clock of `submit_s`; an error where the log does not tell."""
    if "wait_s" not in work.extra or not np.isfinite(np.asarray(work.extra["wait_s"], np.float64)).any():
        raise InputError(
            f"{work.source}: it does not tell when jobs started (a column wait_s, or Start in Slurm's accounting),"
            " so that 'as-is' has nothing to replay"
        )
    return work.submit_s + np.maximum(np.asarray(work.extra["wait_s"], np.float64), 0.0)


def held_for_s(work: Workload) -> Floats:
    """From the first start to the last end: longer than the duration where a job waited between its attempts."""
    if "first_to_last_s" not in work.extra:
        return work.duration_s
    told_s = np.asarray(work.extra["first_to_last_s"], np.float64)
    return np.where(np.isfinite(told_s), np.maximum(told_s, work.duration_s), work.duration_s)


def _series(work: Workload, start_s: Floats, finish_s: Floats) -> Series:
    """GPUs in use, jobs waiting and jobs running after every change."""
    ran = np.isfinite(finish_s)
    size, count = work.gpus[ran].astype(np.float64), int(ran.sum())
    times = np.concatenate([work.submit_s[ran], start_s[ran], finish_s[ran]])
    zero, one = np.zeros(count), np.ones(count)
    order = np.argsort(times, kind="stable")
    busy = np.cumsum(np.concatenate([zero, size, -size])[order])
    waiting = np.cumsum(np.concatenate([one, -one, zero])[order])
    running = np.cumsum(np.concatenate([zero, one, -one])[order])
    last = np.append(np.diff(times[order]) > 0, True) if count else np.zeros(0, bool)
    return Series(times[order][last], busy[last], waiting[last], running[last])
