"""What one simulation is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cotenant.core.cluster import Cluster
from cotenant.core.serving import InferenceService
from cotenant.core.workload import Workload
from cotenant.engine.tables import StopCosts
from cotenant.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run: a workload on a cluster under a policy, and everything that can be varied about it."""

    workload: Workload
    cluster: Cluster
    policy: str
    placement: str = "consolidated"
    allocator: str = "fixed"
    profile: str = "none"
    estimator: str = ""  # empty: what the policy believes by itself, mostly the truth
    costs: str = "default"
    round_s: float = 360.0
    compat: tuple[str, ...] = ()
    measure: tuple[int, int] | None = None
    until_s: float = np.inf
    seed: int = 0
    fail_nodes: str | None = None
    crash: str = ""  # empty: no part of a job and of the platform crashes by itself
    power: str = ""  # empty: every node is always on
    oversubscribe: str = ""  # empty: what jobs need of a GPU's memory at their peaks must fit
    defrag: bool = False  # running jobs are moved together where that lets a gang start
    network: str = ""  # where the cluster has one: `avoid`, `wait` or both; empty: decisions do not look at it
    skip_infeasible: bool = False
    window_s: tuple[float, float] = (-np.inf, np.inf)
    check_invariants: bool = False
    stop_costs: StopCosts = field(default_factory=StopCosts)  # where leaving GPUs takes time
    transitions: bool = False  # write every transition down, with the exact GPUs
    compiled: bool | None = None  # None: when the work is large
    services: tuple[InferenceService, ...] = ()  # inference services, which share the cluster with the jobs
    made: Callable[[], Policy] | None = None  # makes the policy, where it is no name but somebody's object
    notes: list[str] = field(default_factory=list)
