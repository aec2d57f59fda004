"""Replays of a stretch of the log: one run per change, and what the measured jobs had of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cotenant.analysis.congestion import CARRIED
from cotenant.analysis.table import JobTable, frame_of
from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, Workload
from cotenant.sim.driver import Experiment, simulate

MORE_NODES = 4
PLAIN_JOBS = 1500  # more in a crowd take plain Python minutes, so that compiling first is worth it
_PROFILE = "h200"  # speeds of gangs that are spread and of jobs that share, where the cluster has one type of GPU


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed, where, and by which speeds."""

    work: Workload
    cluster: Cluster
    profile: str

    def play(self, policy: str, placement: str = "consolidated", cluster: Cluster | None = None) -> Outcome:
        """One run to its end."""
        return simulate(
            Experiment(
                self.work, cluster or self.cluster, policy, placement=placement, profile=self.profile,
                skip_infeasible=True, compiled=True if len(self.work) > PLAIN_JOBS else None,
            )
        )  # fmt: skip

    def thinned(self, by: int) -> Replay:
        """Every so many-th job on as much smaller a cluster; groups keep one node at least."""
        groups = tuple(replace(group, count=max(round(group.count / by), 1)) for group in self.cluster.groups)
        some = self.work.take(np.arange(0, len(self.work), by))
        return Replay(some, replace(self.cluster, groups=groups), self.profile)

    def worst_part(self, jobs: int, policy: str, placement: str) -> Replay:
        """So many submissions in a row that wait longest under a policy, and what is left of those before them."""
        outcome = self.play(policy, placement)
        work, wait_s = outcome.workload, np.nan_to_num(outcome.queue_s)
        summed = np.concatenate([[0.0], np.cumsum(wait_s)])
        first = int(np.argmax(summed[jobs:] - summed[:-jobs])) if len(work) > jobs else 0
        from_s = float(work.submit_s[first])
        before = np.flatnonzero((np.arange(len(work)) < first) & (outcome.finish_s > from_s))
        own = np.arange(first, min(first + jobs, len(work)))
        left_s = work.duration_s - np.maximum(from_s - np.fmin(outcome.first_start_s, from_s), 0.0)
        rows = np.concatenate([before, own])
        ids = [f"{CARRIED}{at}" for at in before.tolist()] + [str(work.job_id[at]) for at in own.tolist()]
        some = replace(
            work.take(rows),
            job_id=np.array(ids, dtype=object),
            submit_s=np.maximum(work.submit_s[rows], from_s),
            duration_s=np.maximum(np.concatenate([left_s[before], work.duration_s[own]]), 1.0),
        )
        return Replay(some, self.cluster, self.profile)


def scene(work: Workload, cluster: Cluster) -> Replay:
    """Clusters of one type of GPU get speeds: nobody knows the models, so jobs are given measured ones by their id."""
    from cotenant.workload.model_sets import assign_models

    if len({group.gpu_type for group in cluster.groups}) > 1:
        return Replay(work, cluster, "none")
    groups = tuple(replace(group, gpu_type="gpu") for group in cluster.groups)
    bare = replace(work, model=Codes.empty(len(work)))
    return Replay(assign_models(bare, _PROFILE, ""), replace(cluster, groups=groups), _PROFILE)


def with_more_nodes(cluster: Cluster) -> Cluster:
    """Four more like the first."""
    first, *others = cluster.groups
    return replace(cluster, groups=(replace(first, count=first.count + MORE_NODES), *others))


def measured(outcome: Outcome) -> NDArray[np.bool_]:
    """The jobs of the window, not those that were there before."""
    ids = outcome.workload.job_id
    return np.array([not str(name).startswith(CARRIED) for name in ids]) & np.isfinite(outcome.finish_s)


@dataclass(frozen=True, slots=True)
class StandIn:
    """A replay that stands in for what the log does not say."""

    outcome: Outcome
    table: JobTable
    about: str


def played(outcome: Outcome, jobs: JobTable, about: str) -> StandIn:
    """The jobs of the window with the waits that they had in a run."""
    rows = measured(outcome)
    work = outcome.workload.take(rows)
    work = replace(work, extra={**work.extra, "wait_s": np.maximum(outcome.queue_s[rows], 0.0)})
    frame = frame_of(work)
    known = jobs.known | {"wait_s"}
    return StandIn(outcome, JobTable(jobs.source, frame.lazy(), len(frame), known, False, jobs.duration_means), about)


def figures(outcome: Outcome) -> dict[str, Any]:
    """Waiting and completion of the measured jobs of a run."""
    rows = measured(outcome)
    jct_s, wait_s = outcome.jct_s[rows], outcome.queue_s[rows]
    return {
        "jobs": int(rows.sum()), "avg_wait_s": float(wait_s.mean()), "p95_wait_s": float(np.percentile(wait_s, 95)),
        "avg_jct_s": float(jct_s.mean()), "p95_jct_s": float(np.percentile(jct_s, 95)),
    }  # fmt: skip
