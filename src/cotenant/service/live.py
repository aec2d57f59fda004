"""One decision over live jobs: load them into fresh tables, let the policy decide, read off the difference.

The tables are the simulator's, so is every line that decides. GPUs of jobs that are already asked to stop
count as free here: the plan may promise them, the service waits for them to be really free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.core import columns as col
from cotenant.core import jit
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.reasons import Reason
from cotenant.core.state import State
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.cycle import Engine
from cotenant.engine.explain import explain
from cotenant.engine.live import enter_all, enter_running, placement_of
from cotenant.engine.tables import build_state
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.policies.base import Policy

RESTORE_S = 10.0  # believed cost of stopping a live job, until measured ones are known
_LARGE = 3000


@dataclass(frozen=True, slots=True)
class Waiting:
    """An active job as the decision sees it. `slices` is empty while it waits."""

    id: str
    order: int
    tenant: str
    gpus: int
    cpus: float
    mem_gib: float
    submitted_s: float
    believed_s: float
    done_s: float
    attained_s: float
    first_s: float
    since_s: float = 0.0
    slices: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Verdict:
    """What the policy wants changed."""

    starts: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)


class Tables:
    """Fresh tables for a set of jobs at one moment."""

    def __init__(self, jobs: Sequence[Waiting], nodes: Sequence[NodeInfo], policy: str, now_s: float) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.order)
        self.now_s = now_s
        self.cluster = Cluster(
            tuple(NodeGroup(1, node.gpus, node.gpu_type, float(node.cpus), node.mem_gib) for node in nodes),
            spec=f"{len(nodes)} nodes",
        )
        if len(self.jobs) > _LARGE:
            jit.enable()
        self.work = _workload(self.jobs)
        self.policy: Policy = make_policy(policy)
        rows = len(self.jobs)
        self.state: State = build_state(
            self.work, self.cluster, parse_placement("consolidated"),
            belief_s=self.work.duration_s, restore_s=np.full(rows, RESTORE_S),
            draw=np.random.default_rng(0).random(rows),
            speed=np.ones((1, len({node.gpu_type for node in nodes}), 2)), skew=np.full(1, np.nan),
        )  # fmt: skip
        context = Context(services_gpu_s=self.work.gpus * self.work.duration_s)
        self.engine = Engine(self.state, self.policy, self.policy.rule(context))
        columns = [(job.attained_s, job.done_s, job.first_s) for job in self.jobs]
        attained, done, first = (np.array(c, np.float64) for c in zip(*columns, strict=True))
        enter_all(self.state, self.engine.rule, attained, done, first, now_s)
        for row, job in enumerate(self.jobs):
            if job.slices:
                where, count = (np.array(c, np.int64) for c in zip(*job.slices, strict=True))
                enter_running(self.state, self.engine.rule, row, where, count, job.since_s, now_s)

    def decide(self) -> Verdict:
        """Let the policy decide, and compare with what ran before."""
        before = {row: job.slices for row, job in enumerate(self.jobs) if job.slices}
        self.state.x[col.DIRTY] = 1
        self.engine.cycle(self.now_s)
        verdict = Verdict()
        running = np.flatnonzero(self.state.i[:, col.STATE] == col.RUNNING).tolist()
        after = {row: placement_of(self.state, row) for row in running}
        for row, slices in before.items():
            if row not in after or sorted(after[row]) != sorted(slices):
                verdict.stops.append(self.jobs[row].id)
        for row, slices in sorted(after.items()):
            if row not in before:
                verdict.starts.append((self.jobs[row].id, slices))
        return verdict

    def why(self, job: str) -> Reason:
        """The reason of one job, before a decision."""
        row = next(at for at, item in enumerate(self.jobs) if item.id == job)
        return explain(self.engine, self.work, self.cluster, row, self.now_s)


def _workload(jobs: Sequence[Waiting]) -> Workload:
    tenants = tuple(dict.fromkeys(job.tenant for job in jobs)) or ("",)
    code = {name: at for at, name in enumerate(tenants)}
    return make_workload(
        "live", np.array([job.submitted_s for job in jobs], np.float64), np.array([job.gpus for job in jobs], np.int64),
        np.array([job.believed_s for job in jobs], np.float64),
        job_id=np.array([job.id for job in jobs], dtype=object),
        tenant=Codes(np.array([code[job.tenant] for job in jobs], np.int64), tenants),
        cpus=np.array([job.cpus or np.nan for job in jobs]), mem_gib=np.array([job.mem_gib or np.nan for job in jobs]),
    )  # fmt: skip
