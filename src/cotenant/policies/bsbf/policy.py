"""SJF-BSBF and SJF-FFS as policies: order, search, plan (IWQoS'24; public scheduler of a co-author).

Nothing that runs is stopped unless `preemptive`. The user's batch is never changed: a guest may only cut its steps into
smaller sub-batches whose gradients it accumulates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.errors import InputError
from cotenant.core.plan import Places, Plan, Terms, Why
from cotenant.core.spec import Value
from cotenant.core.together import CURVE
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.room import SharedRoom, as_places
from cotenant.policies.base import Context, PlanPolicy
from cotenant.policies.beliefs import PairBeliefs
from cotenant.policies.bsbf.scratch import (
    CAP,
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
from cotenant.policies.bsbf.squeezing import stretched

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

    def decide(self, view: View) -> Plan:
        """Start what can start; whatever runs goes on."""
        self._pairs.look(view)
        if view.running.all():
            return Plan(keep=True)
        left = self.left_s(view)
        order = np.lexsort((view.rows, left, -view.priority))
        scene = _scene(view)
        scratch = _scratch(view, scene, self.slowdowns(view), left)
        queue = order[~view.running[order]]
        in_parts = view.parts[queue] > 0
        started = self._search(view, scene, scratch, queue[~in_parts], left)
        plan = _plan(view, scratch, started)
        if in_parts.any():
            plan = _place_parts(view, plan, queue[in_parts], scratch)
        if self.params["preemptive"]:
            plan = self._displace(view, scene, plan, order, left)
        return replace(plan, why=self._answers(view, scratch, left))

    def _answers(self, view: View, scratch: Scratch, left: Floats) -> Why:
        """What the search met: no GPUs, no memory beside anybody, or that waiting beats the best pair."""
        rows, kinds, gpus, slowdown = view.rows, view.kind, view.gpus, self.slowdowns(view)

        def why(row: int) -> str:
            mine = int(np.flatnonzero(rows == row)[0])
            need, code = f"it needs {gpus[mine]} GPUs: ", int(scratch.why[mine])
            if code != WAITING_PAYS:
                return need + _WHY.get(code, _WHY[NO_GPUS])
            alone = scratch.users[(scratch.users[:, 0] >= 0) & (scratch.users[:, 1] < 0), 0]
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
        memory, pace = _levels(view)
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
        _, pace = _levels(view)
        base = view.site.speed[view.kind, :, 0].max(axis=1)
        speed = np.where(view.running, view.alone_speed * pace[view.kind, view.level], base) * _with_a_whole_gpu(view)
        return view.remaining_s / np.where(speed > 0, speed, 1.0)

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
                scratch = _scratch(view, scene, self.slowdowns(view), left, stop)
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
        name: value for name, value in SjfBsbf.defaults.items() if name != "queue_aware"
    }


class SjfFfs(SjfBsbf):
    """Shortest job first; a job that finds no GPUs shares the first ones with the memory (no test)."""

    name = "sjf-ffs"
    source = "baseline of SJF-BSBF, IWQoS'24"
    tests = False


def _levels(view: View) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Memory and speed of sub-batches by kind; nothing but whole batches where nobody knows."""
    together = view.facts.together
    if together is None:
        kinds = len(view.site.speed)
        return np.zeros((kinds, 1)), np.ones((kinds, 1))
    return together.claimed_gib(), together.pace


def _with_a_whole_gpu(view: View) -> Floats:
    """By job its speed where the largest GPU is less than its peak, and memory gives; else 1."""
    together = view.facts.together
    if together is None or together.soft is None:
        return np.ones(len(view.rows))
    parts = together.alone_parts(int(np.argmax(together.gpu_gib)))
    return np.array([together.speed_at(kind, part) for kind, part in enumerate(parts.tolist())])[view.kind]


def _eased(view: View) -> NDArray[np.float64]:
    """What sub-batches leave of slowdowns, by kind and level."""
    together = view.facts.together
    return np.ones((len(view.site.speed), 1)) if together is None else together.easing()


def _scratch(
    view: View,
    scene: Scene,
    slowdown: NDArray[np.float64],
    left: Floats,
    stopped: frozenset[int] | set[int] = frozenset(),
) -> Scratch:
    """What the search may change, without the jobs that are to stop."""
    site = view.site
    users = site.users
    if stopped:
        users = np.where(np.isin(users, list(stopped)), -1, users)
        users = -np.sort(-users, axis=1)
    users = _by_place(view, users)
    gpus, nodes = len(users), len(site.node)
    by_slot = np.ascontiguousarray(users.T)  # a few long lines add up sooner than many short ones
    need = np.append(view.gpu_gib, 0.0)
    gib = np.repeat(site.gpu_gib[site.node_type], np.diff(site.gpu_first)) - need[by_slot].sum(axis=0)
    room = np.ascontiguousarray(site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]])
    quota = site.quota_left()
    for row in stopped:
        at = view.at(row)
        quota[view.tenant[at]] += view.gpus[at]
        for node, count in view.placement(row):
            room[node] += count / view.gpus[at] * np.array([view.cpus[at], view.mem_gib[at]])
    slow, load = _company(view, scene, users, slowdown)
    freed = np.append(left * slow, 0.0)[by_slot].max(axis=0)
    closed = ~site.open & (site.node[site.gpu_node, col.NODE_CAP] > 0)
    users[closed], freed[closed] = len(view.rows), np.inf  # full, for ever
    for lo, hi in site.pool[:, [col.POOL_LO, col.POOL_HI]].tolist():
        freed[site.gpu_first[lo] : site.gpu_first[hi]].sort()
    largest = int(view.gpus.max(initial=1))
    slots = gpus * col.SLOTS + 1
    return Scratch(
        users=users, gib=gib, room=room, quota=quota, load=load, nodes=np.arange(nodes),
        hosts=np.zeros(slots, np.int64), scores=np.zeros(slots), means=np.zeros(slots), ends=np.zeros(slots),
        empty=np.zeros(gpus, np.int64),
        chosen=np.zeros(gpus + 1, np.int64), best=np.zeros(gpus + 1, np.int64), mates=np.zeros(slots, np.int64),
        kept=np.zeros(gpus + 1, np.int64), freed=freed,
        ahead=np.zeros(len(site.pool), np.int64), slow=slow, level=view.level.astype(np.int64),
        out=np.zeros((gpus * 2 + 1, 3), np.int64),
        out_gpus=np.zeros((gpus * 2 + 1, largest), np.int64), why=np.zeros(len(view.rows), np.int64),
    )  # fmt: skip


def _by_place(view: View, users: NDArray[np.int64]) -> NDArray[np.int64]:
    """Users of GPUs as places in the view; -1 for nobody."""
    found = np.full(users.shape, -1, np.int64)
    found[users >= 0] = view.at_rows(users[users >= 0])
    return found


def _scene(view: View) -> Scene:
    site = view.site
    jobs = view.kind, view.gpus, view.tenant, view.open_pools, view.cpus, view.mem_gib
    return Scene(*jobs, site.node, site.pool, site.gpu_first, int(site.hosts_bind), _eased(view), *_soft(view))


def _soft(view: View) -> tuple[NDArray[np.float64], Floats, NDArray[np.float64], Floats, Floats, Floats, Floats]:
    """What a scene knows of memory that gives; a cap of 0 where it does not."""
    together, none = view.facts.together, np.zeros(0)
    if together is None or together.soft is None:
        return np.zeros((0, 0)), none, np.zeros((0, 0)), none, none, view.site.gpu_gib, np.zeros(2)
    soft = together.soft
    limits = np.array([soft.rule.cap, soft.rule.bus_gib_s])
    return together.memory_gib, soft.least, together.curve, CURVE, soft.steps_per_s, together.gpu_gib, limits


def _company(view: View, scene: Scene, users: NDArray[np.int64], slowdown: NDArray[np.float64]) -> tuple[Floats, Ints]:
    """By job the slowdown from those it shares with, as believed; by node the jobs on it."""
    jobs, node_of = max(len(view.rows), 1), view.site.gpu_node
    slow = np.ones(len(view.rows))
    both = np.flatnonzero(users[:, 1] >= 0)
    (a, b), kind = users[both, :2].T, view.site.node_type[node_of[both]]
    lost = scene.eased[view.kind[a], view.level[a]] * scene.eased[view.kind[b], view.level[b]]
    for one, two in ((a, b), (b, a)):
        beside = 1.0 + lost * (slowdown[view.kind[one], view.kind[two], kind] - 1.0)
        if scene.limits[CAP]:
            sat = np.stack([one, view.level[one], two, view.level[two], kind], axis=1).tolist()
            beside *= [stretched(scene, *each) for each in sat]
        np.maximum.at(slow, one, beside)
    seated = users >= 0
    pairs = np.unique((node_of[:, None] * jobs + users)[seated])
    return slow, np.bincount(pairs // jobs, minlength=len(view.site.node)).astype(np.int64)


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
