"""Synergy-knapsack: per server the best choice of points for all its jobs at once, above the proportional floor.

TUNE knows two amounts per job, its best-case demand and its share. Here every point of the matrix that is at least as
fast as the share is a choice. Jobs are dealt over the servers so that each gets as much hunger for cores as the
others; then each server solves a multiple-choice knapsack by dynamic programming over units of cores and memory: one
point per job, largest sum of speeds. The proportional point is always among the choices, so there is a solution, and
nobody is slower than with its share. Gangs on one server are items like any other, only larger. Gangs over several
servers start with a point within their share and, when all servers are done, take what is left on all of theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cotenant.allocation.demand import Demands, Share
from cotenant.allocation.servers import EPS, book, give, one_server, sits, split_widely
from cotenant.allocation.tables import CORES, COUNT, LEAST_WANTED, MEMORY, Packing
from cotenant.core.jit import entry, kernel
from cotenant.core.sensitivity import CPU, MEM, RATE
from cotenant.core.state import Cube, IntCube, Matrix
from cotenant.core.workload import Floats, Ints

_CPU_UNITS, _MEM_UNITS = 32, 24  # of a server, about


class Choices(NamedTuple):
    """Points per kind and scratch of the dynamic program."""

    points: Cube  # kind x point x (cores, memory, speed), per GPU
    sizes: Ints  # points of each kind
    lean: Ints  # a point of each kind within its share
    gain: Matrix  # kind x point: speed against the share
    units: Floats  # units of cores and of memory per GPU of a server
    value: Cube  # jobs x units of cores x units of memory
    choice: IntCube
    jobs: Ints  # jobs of one server that sit nowhere else


def make_choices(demands: Demands, share: Share, most_jobs: int) -> Choices:
    """Lay out the choices on servers of one pool. A unit divides a GPU's share, so the share costs no rounding."""
    gpus = max(int(share.gpus), 1)
    most_units = max(_CPU_UNITS // gpus, 1)  # of a GPU; whole cores where that is not more
    cpu_units = most_units if share.cpus_per_gpu < 1 else min(round(share.cpus_per_gpu), most_units)
    mem_units = max(_MEM_UNITS // gpus, 1)
    points, floor = demands.points, demands.floor
    inside = (points[:, :, CPU] <= floor[:, None, CPU] + EPS) & (points[:, :, MEM] <= floor[:, None, MEM] + EPS)
    inside &= np.arange(points.shape[1])[None, :] < demands.count[:, None]
    cells = (most_jobs + 1, most_jobs * cpu_units + 1, most_jobs * mem_units + 1)
    return Choices(
        points=np.ascontiguousarray(points),
        sizes=demands.count,
        lean=np.argmax(inside, axis=1).astype(np.int64),
        gain=np.ascontiguousarray(points[:, :, RATE] / np.maximum(floor[:, None, RATE], 1e-12)),
        units=np.array([cpu_units, mem_units], np.float64),
        value=np.zeros(cells),
        choice=np.zeros(cells, np.int64),
        jobs=np.zeros(most_jobs, np.int64),
    )


def fastest(demands: Demands) -> Floats:
    """The fastest point of every kind: the least of those that no other beats."""
    speeds = np.where(
        np.arange(demands.points.shape[1])[None, :] < demands.count[:, None], demands.points[:, :, RATE], -1.0
    )
    return np.asarray(demands.points[np.arange(len(speeds)), np.argmax(speeds, axis=1)], np.float64)


def dealing_order(gpus: Ints, want: Floats, kept: Ints) -> Ints:
    """Kept jobs, then large gangs, then hungry jobs: cores, then memory of the fastest point."""
    return np.lexsort((-want[:, MEM], -want[:, CPU], -gpus, -kept)).astype(np.int64)


def count_hunger(packing: Packing) -> None:
    """Cores that the jobs already seated would use at best, per server."""
    of, node, held = packing.slices[: packing.x[0]].T
    packing.load[:] = np.bincount(node, held * packing.want[of, CPU], len(packing.load))


@entry
def deal(p: Packing, turn: Ints, lo: int, hi: int) -> int:
    """Seat these jobs, each where least is wanted so far; how many found no GPUs."""
    missed = 0
    for t in range(len(turn)):
        k = turn[t]
        if p.kept[k] == 1:
            continue
        n = one_server(p, lo, hi, p.gpus[k], 0.0, 0.0, LEAST_WANTED)
        found = 1
        if n >= 0:
            p.pick[0, 0], p.pick[0, 1] = n, p.gpus[k]
        else:
            found = split_widely(p, lo, hi, p.gpus[k], 0.0, 0.0)
        if found == 0:
            missed += 1
        else:
            book(p, k, found)
    return missed


@entry
def choose_points(p: Packing, c: Choices, kind: Ints, lo: int, hi: int) -> None:
    """Give every seated job a point."""
    for n in range(lo, hi):
        for at in range(p.on.shape[1]):
            k = p.on[n, at]
            if k >= 0 and p.at[k, COUNT] > 1:
                q, lean = kind[k], c.lean[kind[k]]
                give(p, k, c.points[q, lean, 0], c.points[q, lean, 1], c.points[q, lean, 2])
    for n in range(lo, hi):
        _choose_on(p, c, kind, n)
    for n in range(lo, hi):
        for at in range(p.on.shape[1]):
            k = p.on[n, at]
            if k >= 0 and p.at[k, COUNT] > 1:
                _upgrade(p, c, k, kind[k])


@kernel
def _upgrade(p: Packing, c: Choices, k: int, q: int) -> None:
    """Let a gang over several servers have the fastest point that all of them can still give."""
    best = -1
    cpus, mem, speed = p.got[k, 0], p.got[k, 1], p.got[k, 2]
    give(p, k, 0.0, 0.0, 0.0)
    for point in range(c.sizes[q]):
        faster = c.points[q, point, 2] > (speed if best < 0 else c.points[q, best, 2]) + EPS
        if faster and sits(p, k, c.points[q, point, 0], c.points[q, point, 1]):
            best = point
    if best >= 0:
        cpus, mem, speed = c.points[q, best, 0], c.points[q, best, 1], c.points[q, best, 2]
    give(p, k, cpus, mem, speed)


@kernel
def _units(amount: float, unit: float) -> int:
    """Whole units that cover an amount."""
    count = int(amount / unit)
    return count if count * unit + EPS >= amount else count + 1


@kernel
def _choose_on(p: Packing, c: Choices, kind: Ints, n: int) -> None:
    """The dynamic program of one server: `value[j, a, b]`, best sum of the first j jobs with a and b units."""
    jobs = 0
    for at in range(p.on.shape[1]):
        k = p.on[n, at]
        if k >= 0 and p.at[k, COUNT] == 1:
            c.jobs[jobs] = k
            jobs += 1
    if jobs == 0:
        return
    gpus = p.cap[n, 0]
    unit_c, unit_m = p.cap[n, 1] / (gpus * c.units[0]), p.cap[n, 2] / (gpus * c.units[1])
    most_c, most_m = int((p.free[n, CORES] + EPS) / unit_c), int((p.free[n, MEMORY] + EPS) / unit_m)
    for a in range(most_c + 1):
        for b in range(most_m + 1):
            c.value[0, a, b] = 0.0
    for j in range(jobs):
        k = c.jobs[j]
        q, g = kind[k], p.gpus[k]
        old, new, choice = c.value[j], c.value[j + 1], c.choice[j + 1]
        for a in range(most_c + 1):
            for b in range(most_m + 1):
                new[a, b] = -1.0
        for point in range(c.sizes[q]):
            cost_c, cost_m = _units(g * c.points[q, point, 0], unit_c), _units(g * c.points[q, point, 1], unit_m)
            gain = c.gain[q, point]
            for a in range(cost_c, most_c + 1):
                for b in range(cost_m, most_m + 1):
                    before = old[a - cost_c, b - cost_m]
                    if before >= 0.0 and before + gain > new[a, b] + 1e-12:
                        new[a, b] = before + gain
                        choice[a, b] = point
    a, b = most_c, most_m
    for j in range(jobs - 1, -1, -1):
        k = c.jobs[j]
        q, g = kind[k], p.gpus[k]
        point = c.choice[j + 1, a, b]
        give(p, k, c.points[q, point, 0], c.points[q, point, 1], c.points[q, point, 2])
        a -= _units(g * c.points[q, point, 0], unit_c)
        b -= _units(g * c.points[q, point, 1], unit_m)
