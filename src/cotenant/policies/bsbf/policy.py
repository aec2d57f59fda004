"""SJF-BSBF and SJF-FFS as policies: order, search, plan (IWQoS'24; public scheduler of a co-author).

Nothing that runs is stopped unless `preemptive`. The user's batch is never changed: a guest may only cut its steps into
smaller sub-batches whose gradients it accumulates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Places, Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.state import State
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.board import Board
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import PairBeliefs
from cotenant.policies.bsbf.scratch import (
    CONSOLIDATE,
    FLAGS,
    NO_GPUS,
    NO_MEMORY,
    OVER_QUOTA,
    QUEUE,
    SCALE,
    TEST,
    WAITING_PAYS,
    Scratch,
)
from cotenant.policies.bsbf.search import search

LEAST_LEFT = 100  # iterations that a victim must have left
_WHY = {
    NO_GPUS: "too few are empty, or hold a single job that it could share with",
    NO_MEMORY: "no GPU has the memory beside the job that is there, with any sub-batch",
    OVER_QUOTA: "its tenant has no quota left for them",
}


class SjfBsbf(PlanPolicy):
    """Shortest job first; a job that finds no GPUs shares them with one running job where waiting would be worse."""

    name = "sjf-bsbf"
    source = "SJF-BSBF, IWQoS'24"
    preemptive = False
    shares = True
    tests: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Value]] = {
        "preemptive": False,
        "consolidate": False,
        "scale_sub_batch": True,
        "queue_aware": True,  # sharing must also beat waiting for the next empty GPUs
        "noise": 0.0,  # standard deviation of the logarithm of believed slowdowns
        "pairs": "oracle",  # or formula, learned: see `policies.beliefs`
    }

    def begin(self, context: Context) -> None:
        """Nothing has been seen of pairs."""
        if self.number("noise") < 0:
            raise InputError(f"policy '{self.name}': noise={self.params['noise']} must not be negative")
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), self.number("noise"), context.seed)

    def renumber(self, new_row: Mapping[int, int]) -> None:
        """Beliefs are worked out anew; what was drawn for a kind stays with its jobs."""
        self._pairs.renumber(new_row)

    def decide(self, view: View) -> Plan:
        """Start what can start; whatever runs goes on."""
        waiting = view.rows[~view.running]
        self._pairs.look(view)
        if not len(waiting):
            return Plan(keep=True)
        left = self._left_s(view)
        order = np.lexsort((view.rows, left[view.rows], -view.priority))
        ordered = view.rows[order]
        state = view.state
        scratch = _scratch(view, self._slowdowns(view), left)
        queue = ordered[state.i[ordered, col.STATE] == col.WAITING]
        in_parts = state.cls[state.i[queue, col.CLASS], col.C_NODES] > 0
        started = self._search(view, scratch, queue[~in_parts], left)
        plan = _plan(view, scratch, started)
        if in_parts.any():
            plan = _place_parts(view, plan, queue[in_parts], scratch)
        if self.params["preemptive"]:
            plan = self._displace(view, plan, ordered, left)
        return replace(plan, why=self._answers(view, scratch, left))

    def _answers(self, view: View, scratch: Scratch, left: Floats) -> Why:
        """What the search met: no GPUs, no memory beside anybody, or that waiting beats the best pair."""
        rows, kinds, gpus, slowdown = view.rows, view.kind, view.gpus, self._slowdowns(view)

        def why(row: int) -> str:
            mine = int(np.flatnonzero(rows == row)[0])
            need, code = f"it needs {gpus[mine]} GPUs: ", int(scratch.why[row])
            if code != WAITING_PAYS:
                return need + _WHY.get(code, _WHY[NO_GPUS])
            alone = scratch.users[(scratch.users[:, 0] >= 0) & (scratch.users[:, 1] < 0), 0]
            pairs = []
            for host in np.unique(alone[np.isin(alone, rows)]).tolist():
                other = kinds[np.flatnonzero(rows == host)[0]]
                mine_slow, slow = float(slowdown[kinds[mine], other].max()), float(slowdown[other, kinds[mine]].max())
                if np.isfinite([mine_slow, slow]).all():
                    pairs.append((left[row] * mine_slow + left[host] * slow, host, mine_slow, slow))
            if not pairs:
                return f"{need}nothing is known of it beside any of the {len(set(alone.tolist()))} jobs that are alone"
            _, host, mine_slow, slow = min(pairs)
            return (
                f"{need}beside row {host} it would take {mine_slow:.2f} times as long and that job {slow:.2f} times;"
                " both are expected to end sooner in all if it waits for empty GPUs"
            )

        return why

    def _search(self, view: View, scratch: Scratch, queue: Ints, left: Floats) -> int:
        memory, pace = _levels(view)
        flags = np.zeros(FLAGS, np.int64)
        flags[TEST] = int(self.tests)
        flags[SCALE] = int(bool(self.params["scale_sub_batch"]))
        flags[QUEUE] = int(bool(self.params["queue_aware"]))
        flags[CONSOLIDATE] = int(bool(self.params["consolidate"]))
        return int(search(view.state, scratch, queue, left, self._slowdowns(view), memory, pace, flags))

    def _left_s(self, view: View) -> Floats:
        """Believed seconds that each job still takes alone, with the sub-batch that it uses."""
        state, rows = view.state, view.rows
        kind = state.i[rows, col.SPEED_ROW]
        _, pace = _levels(view)
        base = state.speed[kind, :, 0].max(axis=1)
        speed = np.where(view.running, state.f[rows, col.ALONE] * pace[kind, state.i[rows, col.LEVEL]], base)
        left = np.zeros(len(state.f))
        left[rows] = view.remaining_s / np.where(speed > 0, speed, 1.0)
        return left

    def _slowdowns(self, view: View) -> NDArray[np.float64]:
        """What the policy believes of slowdowns."""
        return self._pairs.slowdown(view)

    def _displace(self, view: View, plan: Plan, ordered: Ints, left: Floats) -> Plan:
        """Stop jobs from the end of the order for those at its head that found no place."""
        place = {row: at for at, row in enumerate(ordered.tolist())}
        steps = dict(zip(view.rows.tolist(), (view.remaining_s * view.steps_per_s).tolist(), strict=True))
        running = [row for row in ordered[::-1].tolist() if view.state.i[row, col.STATE] == col.RUNNING]
        for row in ordered.tolist():
            split = view.state.cls[view.state.i[row, col.CLASS], col.C_NODES] > 0
            if row in plan.run or split or view.state.i[row, col.STATE] == col.RUNNING:
                continue
            victims: list[int] = []
            for victim in running:
                if place[victim] < place[row]:
                    break
                if victim in plan.stop or steps[victim] <= LEAST_LEFT or left[victim] <= left[row]:
                    continue
                victims.append(victim)
                stop = plan.stop | set(victims)
                scratch = _scratch(view, self._slowdowns(view), left, stop)
                queue = np.array([*plan.run, row], np.int64)
                started = self._search(view, scratch, queue, left)
                if started == len(queue):
                    plan = _plan(view, scratch, started, frozenset(stop))
                    break
        return plan


class SjfFfs(SjfBsbf):
    """Shortest job first; a job that finds no GPUs shares the first ones with the memory (no test)."""

    name = "sjf-ffs"
    source = "baseline of SJF-BSBF, IWQoS'24"
    tests = False


def _levels(view: View) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Memory and speed of sub-batches by kind; nothing but whole batches where nobody knows."""
    together = view.facts.together
    if together is None:
        kinds = len(view.state.speed)
        return np.zeros((kinds, 1)), np.ones((kinds, 1))
    return together.memory_gib, together.pace


def _scratch(
    view: View, slowdown: NDArray[np.float64], left: Floats, stopped: frozenset[int] | set[int] = frozenset()
) -> Scratch:
    """Copies of the engine's tables, without the jobs that are to stop."""
    state = view.state
    users = view.gpu_users
    if stopped:
        users[np.isin(users, list(stopped))] = -1
        users = -np.sort(-users, axis=1)
    gpus, nodes = len(users), len(state.node)
    kinds = state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE]
    need = np.append(state.f[:, col.GPU_GIB], 0.0)
    gib = np.repeat(state.gpu_gib[kinds], np.diff(state.gpu_first)) - need[users].sum(axis=1)
    room = state.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]].copy()
    quota = state.quota[:, col.Q_LIMIT] - state.quota[:, col.Q_USED]
    for row in stopped:
        quota[state.i[row, col.TENANT]] += state.i[row, col.GPUS]
        for node, count in view.placement(row):
            room[node] += count / state.i[row, col.GPUS] * state.f[row, [col.CPUS, col.MEM]]
    slow, load = _company(state, users, slowdown)
    freed = np.append(left * slow, 0.0)[users].max(axis=1)
    for lo, hi in state.pool[:, [col.POOL_LO, col.POOL_HI]].tolist():
        freed[state.gpu_first[lo] : state.gpu_first[hi]].sort()
    largest = int(view.gpus.max(initial=1))
    slots = gpus * col.SLOTS + 1
    return Scratch(
        users=users, gib=gib, room=room, quota=quota.astype(np.int64), load=load, nodes=np.arange(nodes),
        hosts=np.zeros(slots, np.int64), scores=np.zeros(slots), means=np.zeros(slots), ends=np.zeros(slots),
        empty=np.zeros(gpus, np.int64),
        chosen=np.zeros(gpus + 1, np.int64), best=np.zeros(gpus + 1, np.int64), mates=np.zeros(slots, np.int64),
        kept=np.zeros(gpus + 1, np.int64), freed=freed,
        ahead=np.zeros(len(state.pool), np.int64), slow=slow, out=np.zeros((gpus * 2 + 1, 3), np.int64),
        out_gpus=np.zeros((gpus * 2 + 1, largest), np.int64), why=np.zeros(len(state.f), np.int64),
    )  # fmt: skip


def _company(state: State, users: NDArray[np.int64], slowdown: NDArray[np.float64]) -> tuple[Floats, Ints]:
    """By job the slowdown from those it shares with, as believed; by node the jobs on it."""
    slow = np.ones(len(state.f))
    kinds = state.pool[state.node[:, col.NODE_POOL], col.POOL_TYPE]
    gpu_type = np.repeat(kinds, np.diff(state.gpu_first))
    both = np.flatnonzero(users[:, 1] >= 0)
    for g in both.tolist():
        a, b = users[g, :2].tolist()
        row_a, row_b = state.i[a, col.SPEED_ROW], state.i[b, col.SPEED_ROW]
        slow[a] = max(slow[a], float(slowdown[row_a, row_b, gpu_type[g]]))
        slow[b] = max(slow[b], float(slowdown[row_b, row_a, gpu_type[g]]))
    node_of = np.repeat(np.arange(len(state.node)), np.diff(state.gpu_first))
    seated = users >= 0
    pairs = np.unique(np.stack([np.repeat(node_of, users.shape[1])[seated.ravel()], users[seated]], axis=1), axis=0)
    return slow, np.bincount(pairs[:, 0], minlength=len(state.node)).astype(np.int64)


def _place_parts(view: View, plan: Plan, rows: Ints, scratch: Scratch) -> Plan:
    """Jobs that ask for equal parts on several nodes never share: empty GPUs on those nodes, or they wait."""
    board = Board(view)
    run, terms = dict(plan.run), dict(plan.terms)
    for job in run:
        k = int(np.flatnonzero(scratch.out[:, 0] == job)[0])
        board.put(job, scratch.out_gpus[k, : scratch.out[k, 2]].tolist(), 0.0)
    for row in rows.tolist():
        tenant = view.state.i[row, col.TENANT]
        gpus = board.consolidated(row, [not users for users in board.users])
        if gpus and scratch.quota[tenant] >= len(gpus):
            scratch.quota[tenant] -= len(gpus)
            board.put(row, gpus, 0.0)
            run[row], terms[row] = board.places(row), Terms()
    return Plan(run, terms, keep=True)


def _plan(view: View, scratch: Scratch, started: int, stop: frozenset[int] = frozenset()) -> Plan:
    """What the search found, as places with masks."""
    first = view.state.gpu_first
    run: dict[int, Places] = {}
    terms: dict[int, Terms] = {}
    for k in range(started):
        job, level, count = scratch.out[k].tolist()
        masks: dict[int, int] = {}
        for gpu in scratch.out_gpus[k, :count].tolist():
            node = int(np.searchsorted(first, gpu, side="right")) - 1
            masks[node] = masks.get(node, 0) | 1 << (gpu - int(first[node]))
        run[job] = tuple((node, mask.bit_count(), mask) for node, mask in sorted(masks.items()))
        terms[job] = Terms(level=level)
    return Plan(run, terms, keep=True, stop=stop)
