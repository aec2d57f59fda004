"""What a search of SJF-BSBF starts from: the jobs of a view and the GPUs with the jobs on them, as tables.

Tables last from decision to decision, so that machine code knows where they are; a decision fills them.
"""

from __future__ import annotations

import math
from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.columns import NODE_CAP, NODE_POOL, POOL_TYPE
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Cube, IntMatrix
from cotenant.core.together import CURVE
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.policies.bsbf.scratch import CAP, Scene, Scratch
from cotenant.policies.bsbf.squeezing import stretched


def levels_of(view: View) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Memory and speed of sub-batches by kind; nothing but whole batches where nobody knows."""
    together = view.facts.together
    if together is None:
        kinds = len(view.site.speed)
        return np.zeros((kinds, 1)), np.ones((kinds, 1))
    return together.claimed_gib(), together.pace


def with_a_whole_gpu(view: View) -> Floats:
    """By job its speed where the largest GPU is less than its peak, and memory gives; else 1."""
    together = view.facts.together
    if together is None or together.soft is None:
        return np.ones(len(view.rows))
    parts = together.alone_parts(int(np.argmax(together.gpu_gib)))
    return np.array([together.speed_at(kind, part) for kind, part in enumerate(parts.tolist())])[view.kind]


def lay_scene(view: View, before: Scene | None = None) -> Scene:
    """What the search reads; the tables of an earlier scene where they will do."""
    site, together, jobs = view.site, view.facts.together, len(view.rows)
    columns = view.kind, view.gpus, view.tenant, view.open_pools, view.cpus, view.mem_gib
    eased = np.ones((len(site.speed), 1)) if together is None else together.easing()
    hard = together is None or together.soft is None
    if before is not None and hard and _still_shows(before, view, eased):
        for column, shown in zip(before[:6], columns, strict=True):
            column[:jobs] = shown
        before.node[:] = site.node
        return before
    spare = jobs + 64
    kind, gpus, tenant, pools, cpus, mem_gib = (np.concatenate([one, np.zeros(spare, one.dtype)]) for one in columns)
    shape = site.node.copy(), site.pool, site.gpu_first, int(site.hosts_bind)
    return Scene(kind, gpus, tenant, pools, cpus, mem_gib, *shape, eased, *_soft(view))


def _still_shows(before: Scene, view: View, eased: NDArray[np.float64]) -> bool:
    """Whether a scene without memory that gives is one of the same cluster, with room for the jobs of a view."""
    site = view.site
    same = before.gpu_first is site.gpu_first and before.pool is site.pool and before.gpu_gib is site.gpu_gib
    fits = len(before.kind) >= len(view.rows) and before.hosts_bind == int(site.hosts_bind) and before.limits[CAP] == 0
    return same and fits and (before.eased is eased or np.array_equal(before.eased, eased))


def _soft(view: View) -> tuple[NDArray[np.float64], Floats, NDArray[np.float64], Floats, Floats, Floats, Floats]:
    """What a scene knows of memory that gives; a cap of 0 where it does not."""
    together, none = view.facts.together, np.zeros(0)
    if together is None or together.soft is None:
        return np.zeros((0, 0)), none, np.zeros((0, 0)), none, none, view.site.gpu_gib, np.zeros(2)
    soft = together.soft
    limits = np.array([soft.rule.cap, soft.rule.bus_gib_s])
    return together.memory_gib, soft.least, together.curve, CURVE, soft.steps_per_s, together.gpu_gib, limits


def lay_scratch(
    view: View,
    scene: Scene,
    slowdown: NDArray[np.float64],
    left: Floats,
    stopped: Set[int] = frozenset(),
    start: Floats | None = None,
    before: Scratch | None = None,
) -> Scratch:
    """What the search may change, without the jobs that are to stop; in the tables of an earlier one where they do.

    `start`: seconds until each job uses its GPUs; None: none of them starts up.
    """
    site, users = view.site, view.site.users
    if stopped:
        users = np.where(np.isin(users, list(stopped)), -1, users)
        users = np.ascontiguousarray(-np.sort(-users, axis=1))
    w = before if before is not None and _will_do(before, view) else _room_for(view)
    w.room[:] = site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]]
    w.quota[:] = site.quota_left()
    for row in stopped:
        at = view.at(row)
        w.quota[view.tenant[at]] += view.gpus[at]
        for node, count in view.placement(row):
            w.room[node] += count / view.gpus[at] * np.array([view.cpus[at], view.mem_gib[at]])
    w.ahead[:], w.sorted[:], w.lined[:] = 0, 0, 0
    w.start[: len(view.rows)] = 0.0 if start is None else start
    sit(scene, w, users, site.open.astype(np.int64), view.rows, view.level, view.gpu_gib, site.gpu_gib)
    slow_down(scene, w, slowdown, left, len(view.rows))
    return w


def _will_do(w: Scratch, view: View) -> bool:
    """Whether these tables have room for the jobs of a view, and its GPUs."""
    site, jobs = view.site, len(view.rows)
    return (
        w.users.shape == site.users.shape and len(w.load) == len(site.node) and len(w.slow) >= jobs
        and len(w.quota) == len(site.quota) and len(w.ahead) == len(site.pool)
        and len(w.place) > view.rows.max(initial=0) and w.out_gpus.shape[1] >= view.gpus.max(initial=1)
    )  # fmt: skip


def _room_for(view: View) -> Scratch:
    site, jobs = view.site, 2 * len(view.rows) + 64
    gpus, nodes, pools = len(site.users), len(site.node), len(site.pool)
    largest, slots = int(view.gpus.max(initial=1)), gpus * col.SLOTS + 1
    return Scratch(
        users=np.zeros(site.users.shape, np.int64), gib=np.zeros(gpus), room=np.zeros((nodes, 2)),
        quota=np.zeros(len(site.quota), np.int64), load=np.zeros(nodes, np.int64), nodes=np.arange(nodes),
        hosts=np.zeros(slots, np.int64), scores=np.zeros(slots), means=np.zeros(slots), ends=np.zeros(slots),
        empty=np.zeros(gpus, np.int64),
        chosen=np.zeros(gpus + 1, np.int64), best=np.zeros(gpus + 1, np.int64), mates=np.zeros(slots, np.int64),
        kept=np.zeros(gpus + 1, np.int64), freed=np.zeros(gpus), sorted=np.zeros(pools, np.int64),
        lined=np.zeros(pools, np.int64), ahead=np.zeros(pools, np.int64), slow=np.ones(jobs),
        start=np.zeros(jobs), level=np.zeros(jobs, np.int64), out=np.zeros((gpus * 2 + 1, 3), np.int64),
        out_gpus=np.zeros((gpus * 2 + 1, largest), np.int64), why=np.zeros(jobs, np.int64),
        mark=np.zeros(jobs, np.int64), place=np.zeros(2 * int(view.rows.max(initial=0)) + 64, np.int64),
    )  # fmt: skip


@entry
def sit(
    s: Scene, w: Scratch, users: IntMatrix, opened: Ints, rows: Ints, level: Ints, need: Floats, gib: Floats
) -> None:
    """Seat everybody: users of GPUs as places in the view, the memory that is left, and how many jobs a node has."""
    for k in range(len(rows)):
        w.place[rows[k]] = k
        w.slow[k], w.level[k], w.why[k], w.mark[k] = 1.0, level[k], 0, -1
    for n in range(len(s.node)):
        w.load[n] = 0
        room = gib[s.pool[s.node[n, NODE_POOL], POOL_TYPE]]
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            taken = 0.0
            for slot in range(users.shape[1]):
                w.users[g, slot] = -1
                if users[g, slot] >= 0:
                    job = w.place[users[g, slot]]
                    w.users[g, slot] = job
                    taken += need[job]
                    if w.mark[job] != n:
                        w.mark[job] = n
                        w.load[n] += 1
            w.gib[g] = room - taken
            w.freed[g] = math.inf if opened[g] == 0 and s.node[n, NODE_CAP] > 0 else 0.0


@entry
def slow_down(s: Scene, w: Scratch, slowdown: Cube, left: Floats, jobs: int) -> None:
    """By job the slowdown from those it shares with, as believed; by GPU the seconds until it is empty.

    GPUs that nobody may have are full, for ever.
    """
    for n in range(len(s.node)):
        for g in range(s.gpu_first[n], s.gpu_first[n + 1]):
            one, two = w.users[g, 0], w.users[g, 1]
            if two >= 0:
                gpu_type = s.pool[s.node[n, NODE_POOL], POOL_TYPE]
                w.slow[one] = max(w.slow[one], beside(s, w, slowdown, one, two, one, two, gpu_type))
                w.slow[two] = max(w.slow[two], beside(s, w, slowdown, two, one, one, two, gpu_type))
    for g in range(len(w.freed)):
        closed, last = w.freed[g] == math.inf, 0.0
        for slot in range(w.users.shape[1]):
            if w.users[g, slot] >= 0:
                job = w.users[g, slot]
                last = max(last, w.start[job] + left[job] * w.slow[job])
            if closed:
                w.users[g, slot] = jobs
        w.freed[g] = math.inf if closed else last


@kernel
def beside(s: Scene, w: Scratch, slowdown: Cube, one: int, two: int, a: int, b: int, gpu_type: int) -> float:
    """How many times as long one takes beside two, of the jobs `a` and `b` on a GPU."""
    lost = s.eased[s.kind[a], w.level[a]] * s.eased[s.kind[b], w.level[b]]
    slow = 1.0 + lost * (slowdown[s.kind[one], s.kind[two], gpu_type] - 1.0)
    if s.limits[CAP] > 0:
        slow *= stretched(s, one, w.level[one], two, w.level[two], gpu_type)
    return float(slow)
