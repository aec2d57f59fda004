"""SJF-BSBF and SJF-FFS as policies: order, search, plan (IWQoS'24; public scheduler of a co-author).

Nothing that runs is stopped unless `preemptive`. The user's batch is never changed: a guest may only cut its steps into
smaller sub-batches whose gradients it accumulates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core.errors import InputError
from cotenant.core.plan import Places, Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom, as_places
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import PairBeliefs
from cotenant.policies.bsbf.scratch import (
    CONSOLIDATE,
    FLAGS,
    NO_GPUS,
    NO_MEMORY,
    OVER_QUOTA,
    PAPER,
    QUEUE,
    SCALE,
    SOFT,
    TEST,
    WAITING_PAYS,
    Scene,
    Scratch,
)
from cotenant.policies.bsbf.search import search
from cotenant.policies.bsbf.tables import lay_scene, lay_scratch, levels_of, with_a_whole_gpu

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
    published: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Value]] = {
        "preemptive": False,
        "consolidate": False,
        "scale_sub_batch": True,
        "queue_aware": True,  # sharing must also beat waiting for the next empty GPUs
        "start_ups": True,  # a guest may start up behind its host, or fill its host's start-up
        "noise": 0.0,  # standard deviation of the logarithm of believed slowdowns
        "pairs": "oracle",  # or formula, learned: see `policies.beliefs`
    }

    def next_look(self, now_s: float, waiting: int, idle: int) -> float | None:
        """While nobody waits nothing is done, unless pairs are watched."""
        return None if waiting or self.params["pairs"] == "learned" else np.inf

    def begin(self, context: Context) -> None:
        """Nothing has been seen of pairs."""
        if self.number("noise") < 0:
            raise InputError(f"policy '{self.name}': noise={self.params['noise']} must not be negative")
        self._pairs = PairBeliefs(self.name, str(self.params["pairs"]), self.number("noise"), context.seed)
        self._scene: Scene | None = None
        self._scratch: Scratch | None = None

    def decide(self, view: View) -> Plan:
        """Start what can start; whatever runs goes on."""
        self._pairs.look(view)
        if view.running.all():
            return Plan(keep=True)
        left, waits = self.left_s(view), np.flatnonzero(~view.running)
        queue = waits[np.lexsort((view.rows[waits], left[waits], -view.priority[waits]))]
        scene = self._scene = lay_scene(view, self._scene)
        scratch = self._scratch = lay_scratch(
            view, scene, self.slowdowns(view), left, start=self.starts(view), before=self._scratch
        )
        in_parts = view.parts[queue] > 0
        started = self._search(view, scene, scratch, queue[~in_parts], left)
        plan = _plan(view, scratch, started)
        if in_parts.any():
            plan = _place_parts(view, plan, queue[in_parts], scratch)
        why = self._answers(view, scratch, left)
        if self.params["preemptive"]:
            plan = self._displace(view, scene, plan, np.lexsort((view.rows, left, -view.priority)), left)
        return replace(plan, why=why)

    def _answers(self, view: View, scratch: Scratch, left: Floats) -> Why:
        """What the search met: no GPUs, no memory beside anybody, or that waiting beats the best pair."""
        rows, kinds, gpus, slowdown = view.rows, view.kind, view.gpus, self.slowdowns(view)
        codes, users = scratch.why[: len(rows)].copy(), scratch.users.copy()  # the next search writes there again

        def why(row: int) -> str:
            mine = int(np.flatnonzero(rows == row)[0])
            need, code = f"it needs {gpus[mine]} GPUs: ", int(codes[mine])
            if code != WAITING_PAYS:
                return need + _WHY.get(code, _WHY[NO_GPUS])
            alone = users[(users[:, 0] >= 0) & (users[:, 1] < 0), 0]
            pairs = []
            for host in np.unique(alone).tolist():
                other = kinds[host]
                mine_slow, slow = float(slowdown[kinds[mine], other].max()), float(slowdown[other, kinds[mine]].max())
                if np.isfinite([mine_slow, slow]).all():
                    pairs.append((left[mine] * mine_slow + left[host] * slow, int(rows[host]), mine_slow, slow))
            if not pairs:
                return f"{need}nothing is known of it beside any of the {len(set(alone.tolist()))} jobs that are alone"
            _, host, mine_slow, slow = min(pairs)
            return (
                f"{need}beside row {host} it would take {mine_slow:.2f} times as long and that job {slow:.2f} times;"
                " both are expected to end sooner in all if it waits for empty GPUs"
            )

        return why

    def _search(self, view: View, scene: Scene, scratch: Scratch, queue: Ints, left: Floats) -> int:
        memory, pace = levels_of(view)
        flags = np.zeros(FLAGS, np.int64)
        flags[TEST] = int(self.tests)
        flags[SCALE] = int(bool(self.params["scale_sub_batch"]))
        flags[QUEUE] = int(bool(self.params.get("queue_aware", False)))
        flags[PAPER] = int(self.published)
        flags[CONSOLIDATE] = int(bool(self.params["consolidate"]))
        flags[SOFT] = int(view.facts.together is not None and view.facts.together.soft is not None)
        return int(search(scene, scratch, queue, left, self.slowdowns(view), memory, pace, flags))

    def left_s(self, view: View) -> Floats:
        """Believed seconds that each job still takes alone, with the sub-batch that it uses."""
        _, pace = levels_of(view)
        base = view.site.speed[view.kind, :, 0].max(axis=1)
        speed = np.where(view.running, view.alone_speed * pace[view.kind, view.level], base) * with_a_whole_gpu(view)
        return view.remaining_s / np.where(speed > 0, speed, 1.0)

    def starts(self, view: View) -> Floats:
        """Seconds until each job uses its GPUs, once it has them; the published rule knows none."""
        return view.starting_s if self.params.get("start_ups", False) else np.zeros(len(view.rows))

    def slowdowns(self, view: View) -> NDArray[np.float64]:
        """What the policy believes of slowdowns."""
        return self._pairs.slowdown(view)

    def _displace(self, view: View, scene: Scene, plan: Plan, order: Ints, left: Floats) -> Plan:
        """Stop jobs from the end of the order for those at its head that found no place."""
        turn, rows = np.argsort(order), view.rows.tolist()
        steps = view.remaining_s * view.steps_per_s
        running = order[::-1][view.running[order[::-1]]].tolist()
        for job in order.tolist():
            if rows[job] in plan.run or view.parts[job] > 0 or view.running[job]:
                continue
            victims: list[int] = []
            for victim in running:
                if turn[victim] < turn[job]:
                    break
                if rows[victim] in plan.stop or steps[victim] <= LEAST_LEFT or left[victim] <= left[job]:
                    continue
                victims.append(rows[victim])
                stop = plan.stop | set(victims)
                scratch = lay_scratch(view, scene, self.slowdowns(view), left, stop, self.starts(view))
                queue = np.array([*map(view.at, plan.run), job], np.int64)
                started = self._search(view, scene, scratch, queue, left)
                if started == len(queue):
                    plan = _plan(view, scratch, started, frozenset(stop))
                    break
        return plan


class SjfBsbfPaper(SjfBsbf):
    """SJF-BSBF as published: the pair test alone decides, host by host, and the lowest mean comes first."""

    name = "sjf-bsbf-paper"
    published = True
    defaults: ClassVar[dict[str, Value]] = {
        name: value for name, value in SjfBsbf.defaults.items() if name not in ("queue_aware", "start_ups")
    }


class SjfFfs(SjfBsbf):
    """Shortest job first; a job that finds no GPUs shares the first ones with the memory (no test)."""

    name = "sjf-ffs"
    source = "baseline of SJF-BSBF, IWQoS'24"
    tests = False


def _place_parts(view: View, plan: Plan, jobs: Ints, scratch: Scratch) -> Plan:
    """Jobs that ask for equal parts on several nodes never share: empty GPUs on those nodes, or they wait."""
    board = SharedRoom(view)
    run, terms = dict(plan.run), dict(plan.terms)
    for row in run:
        k = int(np.flatnonzero(scratch.out[:, 0] == view.at(row))[0])
        board.put(row, scratch.out_gpus[k, : scratch.out[k, 2]].tolist(), 0.0)
    for row in view.rows[jobs].tolist():
        tenant = view.tenant[view.at(row)]
        gpus = board.consolidated(row, [not users for users in board.users])
        if gpus and scratch.quota[tenant] >= len(gpus):
            scratch.quota[tenant] -= len(gpus)
            board.put(row, gpus, 0.0)
            run[row], terms[row] = board.places(row), Terms()
    return Plan(run, terms, keep=True)


def _plan(view: View, scratch: Scratch, started: int, stop: frozenset[int] = frozenset()) -> Plan:
    """What the search found, as places with masks."""
    first, rows = view.site.gpu_first.tolist(), view.rows.tolist()
    run: dict[int, Places] = {}
    terms: dict[int, Terms] = {}
    for k in range(started):
        job, level, count = scratch.out[k].tolist()
        run[rows[job]] = as_places(scratch.out_gpus[k, :count].tolist(), first)
        terms[rows[job]] = Terms(level=level)
    return Plan(run, terms, keep=True, stop=stop)
