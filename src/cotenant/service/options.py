"""What a service is told at its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.service.failure_rule import USUAL, FailureRule
from cotenant.service.notify.settings import NOBODY, NotifySettings

DECISION_BUDGET_S = 2.0
MOST_SUSPENDED = 8
MOST_UNFINISHED = 250_000
ROUND_S = 360.0


@dataclass(frozen=True, slots=True)
class Keep:
    """Seconds after the end of a job. `logs_s` None: as long as the record. `checkpoints_s` inf: for ever."""

    jobs_s: float = 30 * 86400.0
    logs_s: float | None = None
    checkpoints_s: float = inf

    def __post_init__(self) -> None:
        if self.logs_s is not None and self.logs_s > self.jobs_s:
            raise InputError(
                "--keep-logs is longer than --keep-jobs: logs go with the record of their job, give at most that"
            )
        if self.jobs_s < self.checkpoints_s < inf:
            raise InputError("--keep-checkpoints is longer than --keep-jobs: give at most that, or `forever`")


@dataclass(frozen=True, slots=True)
class Options:
    """Settings, clock and the tests' way in.

    `grace_s`: seconds a job gets to save and leave, and as many again to end after SIGTERM.
    `most_unfinished`: jobs that one caller may have waiting and running.
    `steady`: seconds that nobody can set, beside which `clock` is watched; None: it need not be (virtual time).
    `keep`: how long what is left of ended jobs stays. `unknown_jobs`: adopt or end those that run though the journal
    does not know them; empty: refuse to start. `budget_s`: what a slow policy may take to decide.
    `max_suspended`: how many suspended jobs may be kept, for each holds host memory; 0 suspends none.
    `round_s`: length of a round for policies that have rounds. `profile`: speeds by model and GPU type. `estimator`: by
    which durations are learned from finished jobs, before all else that is known of a kind of job (empty: after it).
    `power`: by which rules idle nodes sleep, where the backend can let them (empty: never). `placement`: on which nodes
    a gang may lie.
    `allocator` deals out cores and memory while jobs run (empty: each has what its file says), by the measured
    `curves` of a file. `prefetch_starts`: jobs are started ahead of their GPUs, and wait for them. `policy`: the one to
    begin with, else that of the last time. `inline`: acts are done within a look instead of by threads, for virtual
    time. `check_invariants`: the engine's own rules are checked after every decision, for tests. `max_priority`: the
    highest that others than admins may ask for. `notify`: whom to tell of jobs. `forecast_every_s`: the least time
    between two forecasts of all jobs; 0: there are none. `defrag`: running jobs are moved together where that lets a
    gang start. `oversubscribe`: how far the peaks of jobs that can do with less may pass a GPU's memory (empty: they
    must fit). `failure_rule`: after how many failures a node or GPU is not well. `cluster`: tenants and what is said of
    nodes, for a home that has no tree of tenants yet. `hook` is called with a name before and after every journal write
    and every act.
    """

    home: Path
    grace_s: float = 30.0
    clock: Callable[[], float] = time.time
    hook: Callable[[str], None] = lambda point: None
    steady: Callable[[], float] | None = None
    keep: Keep = Keep()
    unknown_jobs: str = ""
    budget_s: float = DECISION_BUDGET_S
    max_suspended: int = MOST_SUSPENDED
    most_unfinished: int = MOST_UNFINISHED
    round_s: float = ROUND_S
    profile: str = "none"
    estimator: str = ""
    power: str = ""
    placement: str = "consolidated"
    allocator: str = ""
    curves: str = ""
    prefetch_starts: bool = False
    policy: str = ""
    inline: bool = False
    check_invariants: bool = False
    max_priority: int = 0
    notify: NotifySettings = NOBODY
    forecast_every_s: float = 0.0
    defrag: bool = False
    oversubscribe: str = ""
    cluster: Cluster | None = None
    failure_rule: FailureRule = USUAL

    @property
    def deals_out_hosts(self) -> bool:
        """Whether an allocator deals out cores and memory while jobs run: what they ask for binds nobody then."""
        return bool(self.allocator) and self.allocator.split(":")[0] != "fixed"
