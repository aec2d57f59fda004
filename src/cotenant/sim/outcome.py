"""What a run has come to: columns of jobs, curves, and the numbers of its summary."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from cotenant._version import __version__
from cotenant.core import columns as col
from cotenant.core.deadlines import deadline_metrics, steps_of
from cotenant.core.outcome import Outcome, Scalar, Segments, Series
from cotenant.core.state import Matrix, State
from cotenant.core.workload import Status
from cotenant.engine.observe import walk_slices
from cotenant.sim.ended import Ended
from cotenant.sim.hosts import summary as host_summary
from cotenant.sim.metrics import jct_metrics, lost_parts, peak_rss_mib, stop_ledger
from cotenant.sim.network import network_figures
from cotenant.sim.tenants import by_tenant
from cotenant.workload.failing import failure_figures

if TYPE_CHECKING:
    from cotenant.sim.driver import Simulation

_NOTHING = np.zeros((0, 5))


def outcome_of(run: Simulation) -> Outcome:
    """The result so far."""
    jobs = len(run.work)
    _close_open_runs(run.state)
    state = run.state._replace(f=run.state.f[:jobs], i=run.state.i[:jobs])  # without replicas of services
    points, rows = int(state.x[col.N_SERIES]), int(state.x[col.N_SEGMENTS])
    series, segments = state.series[:points].copy(), np.concatenate([state.segments[:rows], _open_segments(state)])
    segments = segments[segments[:, 0] < jobs]
    result = _columns(run, run.ended(), 0, jobs, series, segments)
    result.summary.update(_summary(run, result))
    result.tenants.extend(by_tenant(state, result))
    return result


def rows_of(run: Simulation, first: int, end: int) -> Outcome:
    """What became of some jobs, nothing else: for those who take results as jobs end."""
    return _columns(run, run.ended().part(first, end), first, end, _NOTHING, _NOTHING)


def _columns(run: Simulation, ended: Ended, first: int, end: int, series: Matrix, segments: Matrix) -> Outcome:
    e, x, rank, part = run.experiment, run.state.x, np.arange(first, end), slice(first, end)
    gpus, start_up_s, restore_s = run.start_costs()
    startup, restoring = lost_parts(ended, gpus[part], start_up_s[part], restore_s[part])
    return Outcome(
        policy=e.policy,
        placement=e.placement,
        cluster=e.cluster.spec,
        cluster_gpus=e.cluster.gpus,
        workload=run.work if len(rank) == len(run.work) else run.work.take(rank),
        first_start_s=ended.first_start_s,
        finish_s=ended.finish_s,
        queue_s=np.where(np.isnan(ended.finish_s), np.nan, ended.waited_s),
        preemptions=ended.preemptions,
        restarts=np.maximum(ended.starts - 1 - ended.preemptions, 0),
        lost_gpu_s=ended.lost_gpu_s,
        startup_gpu_s=startup,
        restoring_gpu_s=restoring,
        measured=(rank >= x[col.MEASURE_FROM]) & (rank <= x[col.MEASURE_TO]),
        series=Series(series[:, 0], series[:, 1], series[:, 2], series[:, 3]),
        segments=Segments(
            segments[:, 0].astype(np.int64), segments[:, 1].astype(np.int64),
            segments[:, 2].astype(np.int64), segments[:, 3], segments[:, 4],
        ),
    )  # fmt: skip


def _summary(run: Simulation, result: Outcome) -> dict[str, Scalar]:
    e, state, work = run.experiment, run.state, run.work
    done = result.finished
    last = float(np.nanmax(result.finish_s)) if np.isfinite(result.finish_s).any() else float(state.t[col.NOW])
    span = last - float(work.submit_s[0])
    played = float(state.t[col.NOW] - work.submit_s[0])  # longer than the span when cut off
    busy = float(state.t[col.BUSY_GPU_S])
    lost = float(result.lost_gpu_s[result.measured].sum())
    ended = np.bincount(work.status[done], minlength=len(Status))
    hosts = {} if run.allocation is None else host_summary(run.allocation, state, played)
    return {
        "policy": e.policy, "placement": e.placement, "cluster": e.cluster.spec,
        "workload": work.source, "allocator": e.allocator, "profile": e.profile,
        "estimator": e.estimator or run.traits.default_estimator,
        "costs": e.costs, "compat": ",".join(e.compat),
        "jobs": int(result.measured.sum()), "finished": int(done.sum()),
        "ended_failed": int(ended[Status.FAILED]), "ended_killed": int(ended[Status.KILLED]),
        **jct_metrics(result.jct_s[done], result.queue_s[done], work.duration_s[done]),
        **_deadlines(run, result),
        "makespan_s": span,
        "gpu_utilization": busy / (e.cluster.gpus * played) if played > 0 else 0.0,
        "goodput": float((work.gpus * work.duration_s)[done].sum()) / busy if busy > 0 else None,
        "preemptions": int(result.preemptions[result.measured].sum()),
        "restarts": int(result.restarts[result.measured].sum()), **stop_ledger(state),
        **hosts, "lost_gpu_s": lost, "node_failures": int(state.x[col.NODE_FAILURES]),
        **({} if run.power is None else run.power.summary(float(state.t[col.NOW]))),
        **({} if run.crashes is None else run.crashes.summary()),
        **({} if run.serving is None else run.serving.summary(float(state.t[col.NOW]))),
        **run.policy.figures(), **failure_figures(work),
        **({} if run.engine.defrag is None else run.engine.defrag.figures()),
        **network_figures(run.engine.rates, run.engine.network),
        **({} if run.sliced is None else {"reconfigurations": run.sliced.changes}),
        "offered_load": float(work.load(e.cluster.gpus)) if work.span_s > 0 else None,
        "events": int(state.x[col.N_HANDLED]), "decisions": int(state.x[col.N_DECISIONS]),
        "wall_s": time.perf_counter() - run.began, "peak_rss_mib": peak_rss_mib(),
        "seed": e.seed, "version": __version__,
    }  # fmt: skip


def _deadlines(run: Simulation, result: Outcome) -> dict[str, Scalar]:
    """Miss rate and value, where any job has a deadline."""
    if np.isnan(run.work.deadline_s[result.measured]).all():
        return {}
    steps = steps_of(run.work).take(result.measured)
    return dict(deadline_metrics(steps, result.finish_s[result.measured], float(run.state.t[col.NOW])))


def _close_open_runs(state: State) -> None:
    """Count busy time of jobs that still run when a simulation is cut off."""
    now = float(state.t[col.NOW])
    state.t[col.BUSY_GPU_S] += (now - state.t[col.BUSY_SINCE]) * state.x[col.N_BUSY]
    state.t[col.BUSY_SINCE] = now


def _open_segments(state: State) -> Matrix:
    """Gantt pieces of jobs that still run when a simulation is cut off."""
    now, rows = float(state.t[col.NOW]), []
    room = len(state.segments) - int(state.x[col.N_SEGMENTS])
    for job in np.flatnonzero(state.i[:, col.STATE] == col.RUNNING):
        since = float(state.f[job, col.SINCE])
        if now > state.t[col.WINDOW_FROM] and since < state.t[col.WINDOW_TO]:
            pieces = walk_slices(state, int(state.i[job, col.SLICE]))
            rows += [(float(job), float(node), float(gpus), since, now) for node, gpus, _ in pieces]
    return np.array(rows[:room]).reshape(-1, 5)
