"""Answers about the whole: overview, queue, bars, ledger, what would be, simulations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class TrialEnd(BaseModel):
    """When a job would start and end; it ends between the limits 9 times of 10."""

    expected_start_s: float | None
    expected_end_s: float
    expected_end_low_s: float | None
    expected_end_high_s: float | None


class TrialJob(BaseModel):
    """A job in each column; `new`: it is not submitted."""

    id: str
    name: str
    tenant: str
    state: str
    gpus: int
    new: bool
    ends: dict[str, TrialEnd | None]


class TrialAnswer(BaseModel):
    """Columns: the live policy as it is now, then each policy with what is supposed."""

    at_s: float
    now: str
    columns: list[str]
    partial: list[str]
    jobs: list[TrialJob]
    deadlines: dict[str, list[dict[str, Any]]]


class CheckedJobs(BaseModel):
    """Jobs that would be taken, with defaults, of an array its first element; or why they would not."""

    jobs: list[dict[str, Any]]
    error: str


class Played(BaseModel):
    """How far a what-if has come with one policy: jobs that have finished, of how many."""

    policy: str
    done: int
    jobs: int


class WhatIfProgress(BaseModel):
    """A what-if that is under way."""

    id: str
    progress: Played


class SimulationShown(BaseModel):
    """A comparison of policies: `runs` are done; of the present one, under `policy`, `done` of so many `jobs`."""

    id: str
    workload: str
    cluster: str
    policies: list[str]
    state: Literal["running", "done", "failed", "cancelled"]
    error: str
    began_s: float
    ended_s: float | None
    policy: str
    done: int
    jobs: int
    runs: int
    notes: list[str]


class SimulationsShown(BaseModel):
    """A listing."""

    simulations: list[SimulationShown]


class Alert(BaseModel):
    """Something that needs attention: `bad`, `warn` or `info`."""

    level: str
    text: str
    jobs: list[str]
    nodes: list[str]


class Overview(BaseModel):
    """The cluster at a glance. GPUs of tenants that you do not see are under an empty name."""

    at_s: float
    policy: str
    jobs: dict[str, int]
    waiting: int
    longest_wait_s: float
    gpus: int
    gpus_used: int
    gpus_shared: int
    gpus_by_tenant: dict[str, int]
    nodes: dict[str, int]
    decisions: dict[str, float]
    alerts: list[Alert]


class Queue(BaseModel):
    """Places of waiting jobs, of `count` that wait in all."""

    at_s: float
    count: int
    waiting: dict[str, int]


class GanttJob(BaseModel):
    """A job of which there are bars."""

    id: str
    name: str
    tenant: str
    user: str
    model: str
    state: str


class Gantt(BaseModel):
    """Bars [GPU, job, from, to, kind]: GPU and job by place in the lists; kind 0 work, 1 start-up, 2 suspended."""

    at_s: float
    from_s: float
    to_s: float
    gpus: list[list[Any]]
    jobs: list[GanttJob]
    bars: list[list[float]]
    left_out: int


class LedgerRow(BaseModel):
    """One stop: what it cost in GPU-seconds, and who started on its GPUs at once."""

    at_s: float
    job: str
    name: str
    tenant: str
    user: str
    cause: str
    kind: Literal["failure", "stop", "other"]
    why: str
    gpus: int
    lost_gpu_s: float
    leave_gpu_s: float
    back_gpu_s: float
    cost_gpu_s: float
    waited_s: float | None
    gained: list[dict[str, Any]]
    gained_gpu_s: float


class Ledger(BaseModel):
    """Stops, newest first, and sums by cause."""

    at_s: float
    from_s: float
    to_s: float | None
    rows: list[LedgerRow]
    causes: list[dict[str, Any]]
