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
from cotenant.core.workload import Floats, Ints, Workload, make_workload
from cotenant.engine.cycle import Engine
from cotenant.engine.explain import explain
from cotenant.engine.live import enter_all, enter_running, placements
from cotenant.engine.tables import build_state
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.policies.base import OrderPolicy, Policy
from cotenant.service import rows as at
from cotenant.service.rows import Columns, Slices

RESTORE_S = 10.0  # believed cost of stopping a live job, until measured ones are known
_LARGE = 3000


@dataclass(slots=True)
class Verdict:
    """What the policy wants changed: jobs to start with (node, GPUs) pairs, and jobs to stop."""

    starts: list[tuple[str, tuple[tuple[str, int], ...]]] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)


class Tables:
    """Fresh tables for a set of jobs at one moment."""

    def __init__(
        self, jobs: Columns, nodes: Sequence[NodeInfo], policy: str, now_s: float, restore_s: float = RESTORE_S
    ) -> None:
        self.jobs, self.now_s, self.policy_name = jobs, now_s, policy
        self._order: Ints | None = None
        self._names = [node.name for node in nodes]
        self.cluster = Cluster(
            tuple(NodeGroup(1, node.gpus, node.gpu_type, float(node.cpus), node.mem_gib) for node in nodes),
            spec=f"{len(nodes)} nodes",
        )
        rows = len(jobs.ids)
        if rows > _LARGE:
            jit.enable()
        self.work = _workload(jobs)
        self.policy: Policy = make_policy(policy)
        self.state: State = build_state(
            self.work, self.cluster, parse_placement("consolidated"),
            belief_s=self.work.duration_s, restore_s=_cost_s(jobs, restore_s),
            draw=np.random.default_rng(0).random(rows),
            speed=np.ones((1, len({node.gpu_type for node in nodes}), 2)), skew=np.full(1, np.nan),
        )  # fmt: skip
        context = Context(services_gpu_s=self.work.gpus * self.work.duration_s)
        self.engine = Engine(self.state, self.policy, self.policy.rule(context))
        enter_all(
            self.state, self.engine.rule, jobs.of(at.ATTAINED), jobs.of(at.DONE), jobs.of(at.FIRST), now_s
        )  # fmt: skip
        enter_running(self.state, self.engine.rule, jobs.running, *_flat(jobs.slices), jobs.of(at.SINCE), now_s)

    @property
    def quick(self) -> bool:
        """Whether the policy is one of the compiled orders, which need no time budget."""
        return isinstance(self.policy, OrderPolicy)

    def decide(self) -> Verdict:
        """Let the policy decide, and compare with what ran before."""
        before = dict(zip(self.jobs.running.tolist(), self.jobs.slices, strict=True))
        self.state.x[col.DIRTY] = 1
        self.engine.cycle(self.now_s)
        after = placements(self.state)
        stops = [row for row, slices in before.items() if sorted(after.get(row, ())) != sorted(slices)]
        starts = [
            (str(self.jobs.ids[row]), tuple((self._names[node], gpus) for node, gpus in after[row]))
            for row in sorted(after.keys() - before.keys())
        ]
        return Verdict(starts, [str(self.jobs.ids[row]) for row in stops])

    def row_of(self, job: str) -> int | None:
        """Where a job is in these tables, if it is."""
        found = np.flatnonzero(self.jobs.ids == job)
        return int(found[0]) if len(found) else None

    def waits(self, row: int) -> bool:
        """Whether the job of a row waits here."""
        return bool(self.state.i[row, col.STATE] == col.WAITING)

    def prepare(self) -> None:
        """Sort once for all explanations."""
        if self._order is None:
            self._order = self.engine.order(self.now_s)

    def why(self, row: int) -> Reason:
        """The reason of one job, before a decision."""
        self.prepare()
        return explain(self.engine, self.work, self.cluster, row, self.now_s, self._order)


def _flat(slices: Sequence[Slices]) -> tuple[np.ndarray, np.ndarray]:
    """All (node, GPUs) pairs in one table, and where those of each job begin."""
    pairs = [pair for own in slices for pair in own]
    ends = np.cumsum([0, *(len(own) for own in slices)])
    return np.array(pairs, np.int64).reshape(-1, 2), ends.astype(np.int64)


def _cost_s(jobs: Columns, unknown_s: float) -> Floats:
    """What a preemption of each job is believed to cost, where jobs of its name were never measured: `unknown_s`."""
    cost = jobs.of(at.COST)
    return np.where(np.isnan(cost), unknown_s, cost)


def _workload(jobs: Columns) -> Workload:
    cpus, mem = jobs.of(at.CPUS), jobs.of(at.MEM)
    return make_workload(
        "live", jobs.of(at.SUBMITTED), jobs.gpus, jobs.of(at.BELIEVED), job_id=jobs.ids, tenant=jobs.tenant,
        cpus=np.where(cpus > 0, cpus, np.nan), mem_gib=np.where(mem > 0, mem, np.nan),
    )  # fmt: skip
