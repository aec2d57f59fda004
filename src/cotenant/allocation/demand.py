"""Demand vectors: from a matrix of speeds to what a job asks of a server beside its GPUs.

The best-case demand is the least that saturates: of the points that reach `saturate` of the fastest one (Synergy:
about 90 %) and at least the speed of the proportional share, the one with fewest cores, then least memory. A gang
that fits one server may not ask for more than the server has; one that spans servers gets each server's share.
Who asks for more than its share in one dimension asks for no less than it in the other: switching such a job back to
its share then never takes anything from others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.sensitivity import CPU, MEM, RATE, Sensitivity
from cotenant.core.workload import Floats, Ints

SATURATE = 0.9
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class Share:
    """Servers of one pool: GPUs, cores and memory of the smallest, and the proportional share of one GPU."""

    gpus: float
    cpus: float
    mem: float
    lent: float = 0.0  # GiB that the server may borrow beside its own

    @property
    def cpus_per_gpu(self) -> float:
        """Proportional cores of one GPU."""
        return self.cpus / self.gpus

    @property
    def mem_per_gpu(self) -> float:
        """Proportional memory of one GPU."""
        return self.mem / self.gpus


@dataclass(frozen=True, slots=True)
class Demands:
    """Per kind, all per GPU: `floor` and `want` as (cores, memory, speed), and every point worth giving.

    `points[kind, :count[kind]]` are sorted by cores, then memory; nobody else has no more of both and no less speed.
    The proportional point is always among them, or one that is no larger and no slower.
    """

    floor: Floats
    want: Floats
    points: Floats
    count: Ints


def demands(sensitivity: Sensitivity, gangs: Ints, share: Share, saturate: float = SATURATE) -> Demands:
    """Demands of every kind (`gangs[kind]` GPUs) on servers of one pool."""
    kinds = len(gangs)
    floor, want = np.zeros((kinds, 3)), np.zeros((kinds, 3))
    listed = []
    every = np.arange(kinds)
    floor[:, CPU], floor[:, MEM] = share.cpus_per_gpu, share.mem_per_gpu
    floor[:, RATE] = sensitivity.speed(every, floor[:, CPU], floor[:, MEM])
    for kind in range(kinds):
        points = worth_giving(sensitivity, kind, int(gangs[kind]), share, floor[kind])
        enough = points[:, RATE] >= saturate * points[:, RATE].max() - _EPS
        want[kind] = points[int(np.argmax(enough))]
        if want[kind, CPU] > floor[kind, CPU] + _EPS or want[kind, MEM] > floor[kind, MEM] + _EPS:
            want[kind, :RATE] = np.maximum(want[kind, :RATE], floor[kind, :RATE])
            want[kind, RATE] = sensitivity.speed(every[[kind]], want[[kind], CPU], want[[kind], MEM])[0]
        listed.append(points)
    count = np.array([len(points) for points in listed], np.int64)
    table = np.zeros((kinds, int(count.max()) if kinds else 1, 3))
    for kind, points in enumerate(listed):
        table[kind, : len(points)] = points
    return Demands(floor, want, table, count)


def worth_giving(sensitivity: Sensitivity, kind: int, gang: int, share: Share, floor: Floats) -> Floats:
    """Points that a server can give, at or above the floor's speed, and not dominated; by cores, then memory."""
    within = min(float(gang), share.gpus)
    cpus, mem = np.meshgrid(sensitivity.cpu_axis, sensitivity.mem_axis, indexing="ij")
    points = np.stack([cpus.ravel(), mem.ravel(), sensitivity.table[kind].ravel()], axis=1)
    fits = (points[:, CPU] * within <= share.cpus + _EPS) & (points[:, MEM] * within <= share.mem + share.lent + _EPS)
    points = np.concatenate([points[fits & (points[:, RATE] >= floor[RATE] - _EPS)], floor[None, :]])
    points = points[np.lexsort((-points[:, RATE], points[:, MEM], points[:, CPU]))]
    kept: list[Floats] = []
    for point in points:
        if not any(other[MEM] <= point[MEM] + _EPS and other[RATE] >= point[RATE] - _EPS for other in kept):
            kept.append(point)
    return np.array(kept)


def released_demands(sensitivity: Sensitivity, gangs: Ints, share: Share) -> Demands:
    """What the released simulator asks for: constants of the profile, cut to the server by its own rule.

    A gang within one server has each demand cut to the server, and the speed-up beyond 1 cut in proportion to the
    cores beyond the share that are left. A gang beyond one server has each exceeding dimension made proportional
    and no speed-up. The speed at the share is 1.
    """
    base = demands(sensitivity, gangs, share)
    floor, want = base.floor.copy(), base.want.copy()
    for kind, gang in enumerate(gangs.tolist()):
        cpus, mem, speed = sensitivity.wanted[kind].tolist()
        if np.isnan(cpus):
            continue
        floor[kind, RATE] = 1.0
        share_c, share_m = share.cpus_per_gpu, share.mem_per_gpu
        if gang > share.gpus:
            if cpus > share_c or mem > share_m:
                cpus, mem, speed = min(cpus, share_c), min(mem, share_m), 1.0
        else:
            left = min(cpus, share.cpus / gang)
            if left < cpus:
                speed = 1 + (speed - 1) * (left - share_c) / (cpus - share_c)
            cpus, mem = left, min(mem, share.mem / gang)
        want[kind] = cpus, mem, speed
    return Demands(floor, want, base.points, base.count)
