"""One decision over live jobs: load them into fresh tables, let the policy decide, read off the difference.

The tables are the simulator's, so is every line that decides. GPUs of jobs that are already asked to stop
count as free here: the plan may promise them, the service waits for them to be really free. Policies of rounds are
asked who runs, not in which order, so what they promised stays promised: such jobs are entered as if they ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from cotenant.backends.base import NodeInfo
from cotenant.core import columns as col
from cotenant.core import jit
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.deadlines import Steps, strict_steps
from cotenant.core.errors import InputError
from cotenant.core.plan import ALONE, Terms, Why
from cotenant.core.prices import prices_of
from cotenant.core.reasons import Cause, Reason
from cotenant.core.state import Rule, State
from cotenant.core.training import Training
from cotenant.core.view import Facts
from cotenant.core.workload import Floats, Ints, Workload, make_workload
from cotenant.engine.cycle import Engine
from cotenant.engine.explain import explain, named
from cotenant.engine.live import enter_all, enter_running, masks, next_turn_s, placements
from cotenant.engine.tables import build_state
from cotenant.placement.modes import parse_placement
from cotenant.policies import Context, make_policy
from cotenant.policies.base import Policy
from cotenant.service import rows as at
from cotenant.service.livejob import Gpus
from cotenant.service.memory import Memory
from cotenant.service.options import ROUND_S
from cotenant.service.rows import Columns, Slices
from cotenant.service.sharing import MOST_GPUS, can_share, regroup
from cotenant.service.speeds import Seen, Speeds

RESTORE_S = 10.0  # believed cost of stopping a live job, until measured ones are known
_LARGE = 3000
_PAST_S = 0.001  # after a moment at which the order changes, so that it surely has when it is looked at

Promise = tuple[str, tuple[tuple[str, int], ...]]
"""A job and the GPUs it is to have: how many of which node."""


@dataclass(frozen=True, slots=True)
class Said:
    """Why jobs do not run, in the words of a plan, for whoever asks; nothing is worked out before."""

    ids: NDArray[np.object_]
    gpus: Ints
    able: NDArray[np.bool_]  # whether there is a pool that could hold it
    why: Why

    def reason(self, job: str, now_s: float) -> Reason | None:
        """Why a job waits; None for one that the decision did not know, or of which the policy says nothing."""
        found = np.flatnonzero(self.ids == job)
        if not len(found):
            return None
        row, need = int(found[0]), int(self.gpus[found[0]])
        if not self.able[row]:
            text = f"it asks for {need} GPUs; no pool in which it can run has that many that may be given away now"
            return Reason(job, now_s, Cause.EXCEEDS_CLUSTER, text, need)
        text = named(self.why(row), self.ids)
        return Reason(job, now_s, Cause.BEHIND_HEAD, text, need, waiting=len(self.ids)) if text else None


@dataclass(slots=True)
class Verdict:
    """What the policy wants changed: jobs to start with (node, GPUs) pairs, and jobs to stop.

    It holds for the state after record `seq` of the journal. `next_s` is when the policy wants to be asked again.
    `hosts` names for guests, whether they start or stay, the job on whose GPUs they are to be. Policies that say on
    which GPUs exactly jobs sit fill `places` instead, `terms` with what was agreed with each of those jobs, and
    `need_gib` with the memory per GPU that it needs on these terms.
    """

    starts: list[Promise] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    policy: str = ""
    seq: int = -1
    next_s: float = np.inf
    said: Said | None = None  # by the plan of a policy that makes plans
    hosts: dict[str, str] = field(default_factory=dict)
    places: dict[str, Gpus] = field(default_factory=dict)
    terms: dict[str, Terms] = field(default_factory=dict)
    need_gib: dict[str, float] = field(default_factory=dict)
    resized: frozenset[str] = frozenset()  # those of `stops` that go on with another number of GPUs
    promoted: dict[str, float] = field(default_factory=dict)  # those that had starved, and what they had attained

    def reason(self, job: str, now_s: float) -> Reason | None:
        """What the plan said of a job that waits, if anything."""
        return None if self.said is None else self.said.reason(job, now_s)


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not depend on the jobs: speeds by GPU type, the length of rounds, the usual cost of a preemption.

    `gpu_gib` is the memory of a GPU by type, where known; `seen` is what was measured of pairs, `terms` what was agreed
    with jobs that run, and `open` says which GPUs of each node may be given away. `soft` are deadlines in steps:
    moments and their worth. `training` is what elastic jobs told of themselves, row by row, and `resizable` which of
    them may change their size now. `forgiven_s` is what jobs that had starved had attained when they were promoted.
    """

    speeds: Speeds
    round_s: float = ROUND_S
    restore_s: float = RESTORE_S
    gpu_gib: Mapping[str, float] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    terms: Mapping[str, Terms] = field(default_factory=dict)
    open: Mapping[str, Sequence[int]] = field(default_factory=dict)
    soft: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    training: Training | None = None
    resizable: NDArray[np.bool_] | None = None
    forgiven_s: Mapping[str, float] = field(default_factory=dict)


class Tables:
    """Fresh tables for a set of jobs at one moment, with a policy that remembers (`memory`) or a fresh one."""

    def __init__(
        self, jobs: Columns, nodes: Sequence[NodeInfo], policy: str, now_s: float, setting: Setting, *,
        memory: Memory | None = None, seq: int = -1,
    ) -> None:  # fmt: skip
        self.jobs, self.now_s, self.policy_name, self.seq = jobs, now_s, policy, seq
        self._order: Ints | None = None
        self._names = [node.name for node in nodes]
        self.cluster = Cluster(_groups(nodes), spec=f"{len(nodes)} nodes")
        rows = len(jobs.ids)
        if rows > _LARGE:
            jit.enable()
        self.work = _workload(jobs)
        self._memory, self._gpus = memory, tuple(node.gpus for node in nodes)
        self.policy, rule = self._policy(setting.round_s)
        types = list(dict.fromkeys(node.gpu_type for node in nodes))
        traits = self.policy.traits
        self.sharing = traits.shares and can_share(nodes)
        self.exact = traits.names_gpus
        if self.exact and not self.sharing:
            raise InputError(f"policy '{policy}' tells GPUs apart: that takes nodes of at most {MOST_GPUS} GPUs")
        table = setting.speeds.table(jobs, types, setting.gpu_gib)
        gpu_gib = np.array([setting.gpu_gib.get(name, 0.0) or np.inf for name in types])
        self.state: State = build_state(
            self.work, self.cluster, parse_placement("consolidated"),
            belief_s=self.work.duration_s, restore_s=_cost_s(jobs, setting.restore_s),
            draw=np.random.default_rng(0).random(rows),
            speed=table.speed, speed_row=table.row, steps_per_s=table.steps_per_s,
            skew=np.full(len(jobs.model.names), np.nan), sharing=self.sharing, overcommits=traits.overcommits,
            need_gib=jobs.of(at.GPU_MEM) if self.exact else None, gpu_gib=gpu_gib if self.sharing else None,
        )  # fmt: skip
        pools = tuple(types[number] for number in self.state.pool[:, col.POOL_TYPE].tolist())
        self.pair = self.together = None
        if self.exact:
            self.together = setting.speeds.together(table.kinds, types, setting.gpu_gib, setting.seen)
        elif self.sharing:
            self.pair = setting.speeds.pairs(table.kinds, types, setting.gpu_gib, setting.seen.vetoes)
        stages = None
        if traits.interleaves and self.sharing:
            stages = setting.speeds.stages(table, self.work.duration_s, types, setting.seen.vetoes)
        coming = jobs.coming if jobs.coming.any() else None
        facts = Facts(
            pools, prices_of(pools), self.pair, jobs.ident, coming, stages=stages, together=self.together,
            elastic=setting.resizable, training=setting.training, steps=_steps(jobs, setting.soft),
            sizes=np.stack([jobs.of(at.FEWEST), jobs.of(at.MOST)], axis=1).astype(np.int64),
        )  # fmt: skip
        self._open = setting.open
        self.engine = Engine(self.state, self.policy, rule, facts)
        before_s = self._forgiven_s(setting.forgiven_s)
        forgiven_s, waits_s = before_s.copy(), now_s - np.minimum(jobs.of(at.SINCE), now_s)
        waits_s[jobs.running] = 0.0
        enter_all(
            self.state, self.engine.rule, jobs.of(at.ATTAINED), jobs.of(at.DONE), jobs.of(at.FIRST), waits_s,
            forgiven_s, now_s,
        )  # fmt: skip
        self._promoted = {str(jobs.ids[row]): float(forgiven_s[row]) for row in np.flatnonzero(forgiven_s != before_s)}
        since_s = np.where(jobs.coming, now_s, jobs.of(at.SINCE))
        able = self._able(jobs)
        triples, begins = _flat([jobs.slices[k] for k in able], [jobs.masks[k] for k in able])
        running, hosts = jobs.running[able], jobs.hosts[able]
        if self.exact:
            hosts = np.full(len(hosts), -1, np.int64)
        enter_running(self.state, self.engine.rule, running, hosts, triples, begins, since_s, now_s)
        if self.exact:
            self._enter_terms(setting.terms, running)

    def _policy(self, round_s: float) -> tuple[Policy, Rule]:
        if self._memory is not None:
            return self._memory.policy, self._memory.rule
        policy = make_policy(self.policy_name)
        context = Context(round_s=round_s, services_gpu_s=self.work.gpus * self.work.duration_s)
        policy.begin(context)
        return policy, policy.rule(context)

    def _forgiven_s(self, known: Mapping[str, float]) -> Floats:
        """What each row had attained when it was promoted last; 0 for most."""
        forgiven_s = np.zeros(len(self.jobs.ids))
        if known:
            row_of = dict(zip(self.jobs.ids.tolist(), range(len(forgiven_s)), strict=True))
            for job in known.keys() & row_of.keys():
                forgiven_s[row_of[job]] = known[job]
        return forgiven_s

    def _able(self, jobs: Columns) -> Ints:
        """Which of the running jobs go on: not those on a GPU type on which, by a newer profile, they cannot run.

        Guests do not either, where the policy shares nothing: they count as waiting.
        """
        able = np.ones(len(jobs.running), bool) if self.sharing else jobs.hosts < 0
        if not (self.state.speed > 0).all():
            pool_type = self.state.pool[self.state.node[:, col.NODE_POOL], col.POOL_TYPE]
            types = pool_type[[slices[0][0] for slices in jobs.slices]]
            able &= self.state.speed[self.state.i[jobs.running, col.SPEED_ROW], types, 0] > 0
        return np.flatnonzero(able)

    def _enter_terms(self, terms: Mapping[str, Terms], running: Ints) -> None:
        """What was agreed with jobs that run, and how fast they are in their company: measured, or as believed."""
        state, together = self.state, self.together
        assert together is not None
        pace = self.jobs.of(at.PACE)
        for row in running.tolist():
            agreed = terms.get(str(self.jobs.ids[row]), ALONE)
            kind = state.i[row, col.SPEED_ROW]
            state.i[row, col.LEVEL], state.i[row, col.TURN] = agreed.level, agreed.turn
            state.i[row, col.OPPORTUNISTIC] = int(agreed.opportunistic)
            state.f[row, col.SHARE], state.f[row, col.CAP] = agreed.share, agreed.cap
            state.f[row, col.GPU_GIB] = float(together.memory_gib[kind, agreed.level]) * agreed.cap
            if np.isfinite(pace[row]):
                state.f[row, col.SPEED] = state.f[row, col.ALONE] * min(float(pace[row]), 1.0)

    @property
    def chooses(self) -> bool:
        """Whether what the policy wants started is a promise, until it says otherwise."""
        return self.engine.traits.plans

    @property
    def quick(self) -> bool:
        """Whether the policy is one of the compiled orders, which need no time budget."""
        return not (self.engine.traits.plans or self.engine.traits.computed)

    def decide(self) -> Verdict:
        """Let the policy decide, and compare with what ran before.

        A job that is to run elsewhere stops; where the policy's choice is a promise, it also starts there.
        """
        before = dict(zip(self.jobs.running.tolist(), self.jobs.slices, strict=True))
        if self._memory is not None:
            self._memory.notice(self._gpus, self.jobs.ident)
        self.state.x[col.DIRTY] = 1
        self.engine.cycle(self.now_s)
        after = placements(self.state)
        hosts: dict[int, int] = {}
        if self.exact:
            stops, new = self._reseated(before, after)
        elif self.sharing:
            stops, new, hosts = self._regrouped(before, after)
        else:
            stops, new = self._changed(before, after)
        starts = [
            (str(self.jobs.ids[row]), tuple((self._names[node], gpus) for node, gpus in after[row]))
            for row in sorted(new)
        ]
        if self.chooses:
            next_s = float(self.state.t[col.NEXT_CALL])
        else:
            next_s = next_turn_s(self.state, self.engine.rule, self.now_s) + _PAST_S
        names = self.jobs.ids
        return Verdict(
            starts, [str(names[row]) for row in stops], self.policy_name, self.seq, next_s, self._said(),
            {str(names[guest]): str(names[host]) for guest, host in hosts.items()},
            {str(names[row]): self._gpus_of(row) for row in after} if self.exact else {},
            {str(names[row]): self._terms_of(row) for row in after} if self.exact else {},
            {str(names[row]): float(self.state.f[row, col.GPU_GIB]) for row in after} if self.exact else {},
            frozenset(str(names[row]) for row in stops if row in after and _size(after[row]) != _size(before[row])),
            self._promoted,
        )  # fmt: skip

    def _changed(self, before: dict[int, Slices], after: dict[int, Slices]) -> tuple[list[int], set[int]]:
        """Who stops and who starts, where every GPU has one job."""
        stops = [row for row, slices in before.items() if sorted(after.get(row, ())) != sorted(slices)]
        new = after.keys() - before.keys()
        if self.chooses:
            new |= after.keys() & {*stops, *np.flatnonzero(self.jobs.coming).tolist()}
        return stops, new

    def _regrouped(
        self, before: dict[int, Slices], after: dict[int, Slices]
    ) -> tuple[list[int], set[int], dict[int, int]]:
        """Who stops, who starts and who is whose guest, where GPUs are shared."""
        there = {row: slices for row, slices in before.items() if not self.jobs.coming[row]}
        held = {
            row: tuple(sorted(zip((node for node, _ in slices), own, strict=True)))
            for row, slices, own in zip(before, self.jobs.slices, self.jobs.masks, strict=True)
        }
        host_of = {row: int(self.state.i[row, col.HOST]) for row in after}
        stay, hosts = regroup(after, host_of, {row: masks(self.state, row) for row in after}, there, held)
        return [row for row in there if row not in stay], after.keys() - stay, hosts

    def _reseated(self, before: dict[int, Slices], after: dict[int, Slices]) -> tuple[list[int], set[int]]:
        """Who stops and who starts, where the policy says which GPUs: whoever has others than these has to move."""
        held = {
            row: tuple(sorted(zip((node for node, _ in slices), own, strict=True)))
            for row, slices, own in zip(before, self.jobs.slices, self.jobs.masks, strict=True)
            if not self.jobs.coming[row]
        }
        stay = {row for row in held.keys() & after.keys() if masks(self.state, row) == held[row]}
        return [row for row in held if row not in stay], after.keys() - stay

    def _gpus_of(self, row: int) -> Gpus:
        """The GPUs of a running row by name of the node and index."""
        found = []
        for node, mask in masks(self.state, row):
            given = self._open[self._names[node]]
            found.append((self._names[node], tuple(given[k] for k in range(len(given)) if (mask >> k) & 1)))
        return tuple(found)

    def _terms_of(self, row: int) -> Terms:
        f, i = self.state.f[row], self.state.i[row]
        share, cap = float(f[col.SHARE]), float(f[col.CAP])
        return Terms(int(i[col.LEVEL]), share, cap, int(i[col.TURN]), bool(i[col.OPPORTUNISTIC]))

    def _said(self) -> Said | None:
        """The reasons of a plan, for whoever asks later."""
        if not self.chooses:
            return None
        able = self.state.cls[self.state.i[:, col.CLASS], col.C_POOLS] != 0
        return Said(self.jobs.ids, self.jobs.gpus, able, self.engine.answers())

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


def _steps(jobs: Columns, soft: Mapping[str, Sequence[tuple[float, float]]]) -> Steps | None:
    """Deadlines as steps; None where all are strict."""
    mine = {row: soft[name] for row, name in enumerate(jobs.ids.tolist()) if name in soft} if soft else {}
    if not mine:
        return None
    strict, width = strict_steps(jobs.of(at.DEADLINE)), max(len(steps) for steps in mine.values())
    time_s, value = np.full((len(jobs.ids), width), np.nan), np.zeros((len(jobs.ids), width))
    time_s[:, :1], value[:, :1] = strict.time_s, strict.value
    for row, steps in mine.items():
        time_s[row, : len(steps)], value[row, : len(steps)] = zip(*steps, strict=True)
    return Steps(time_s, value)


def _size(slices: Slices) -> int:
    return sum(gpus for _, gpus in slices)


def _flat(slices: Sequence[Slices], own: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """All (node, GPUs, mask) triples in one table, and where those of each job begin."""
    ends = np.cumsum([0, *map(len, slices)], dtype=np.int64)
    pairs = np.fromiter(chain.from_iterable(chain.from_iterable(slices)), np.int64, 2 * int(ends[-1]))
    masks = np.fromiter(chain.from_iterable(own), np.int64, int(ends[-1]))
    return np.column_stack([pairs.reshape(-1, 2), masks]), ends


def _groups(nodes: Sequence[NodeInfo]) -> tuple[NodeGroup, ...]:
    """The nodes in order; neighbours that are alike are one group."""
    alike = groupby(nodes, key=lambda node: (node.gpus, node.gpu_type, float(node.cpus), node.mem_gib))
    return tuple(NodeGroup(sum(1 for _ in same), *what) for what, same in alike)


def _cost_s(jobs: Columns, unknown_s: float) -> Floats:
    """What a preemption of each job is believed to cost, where jobs of its name were never measured: `unknown_s`."""
    cost = jobs.of(at.COST)
    return np.where(np.isnan(cost), unknown_s, cost)


def _workload(jobs: Columns) -> Workload:
    cpus, mem = jobs.of(at.CPUS), jobs.of(at.MEM)
    return make_workload(
        "live", jobs.of(at.SUBMITTED), jobs.gpus, jobs.of(at.BELIEVED), job_id=jobs.ids, tenant=jobs.tenant,
        model=jobs.model, cpus=np.where(cpus > 0, cpus, np.nan), mem_gib=np.where(mem > 0, mem, np.nan),
        deadline_s=jobs.of(at.DEADLINE), priority=jobs.of(at.PRIORITY), gpu_type=jobs.gpu_type, nodes=jobs.of(at.NODES),
    )  # fmt: skip
