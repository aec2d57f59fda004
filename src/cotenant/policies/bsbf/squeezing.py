"""What two jobs on one GPU lose to memory that they are granted only in part (`core.memory`), inside the search."""

from __future__ import annotations

import math

from cotenant.core.jit import entry, kernel
from cotenant.core.state import Matrix
from cotenant.core.workload import Floats
from cotenant.policies.bsbf.scratch import BUS_GIB_S, CAP, Scene


@entry
def granted_beside(peak: float, least: float, other_peak: float, other_least: float, room: float) -> float:
    """`core.memory.grant` for the first of two, without its limits: GiB; 0 where the leasts do not fit."""
    if peak + other_peak <= room:
        return peak
    left, gives = room - least - other_least, peak - least + other_peak - other_least
    if left < -1e-9 or gives <= 0:
        return 0.0
    return least + left / gives * (peak - least)


@kernel
def speed_at(curve: Matrix, points: Floats, kind: int, part: float) -> float:
    """Speed of a kind when so large a part of its memory lies on the GPU."""
    if part >= 1.0:
        return 1.0
    p = 0
    while p < len(points) - 2 and points[p + 1] < part:
        p += 1
    inside = (part - points[p]) / (points[p + 1] - points[p])
    return float(curve[kind, p] + inside * (curve[kind, p + 1] - curve[kind, p]))


@kernel
def fits_beside(s: Scene, job: int, level: int, other: int, other_level: int, gpu_type: int) -> bool:
    """Whether both have all their memory on one GPU."""
    return bool(s.memory[s.kind[job], level] + s.memory[s.kind[other], other_level] <= s.gpu_gib[gpu_type])


@entry
def stretched(s: Scene, job: int, level: int, other: int, other_level: int, gpu_type: int) -> float:
    """How many times as long a job takes with what it is granted beside another; infinity where that is refused."""
    if s.limits[CAP] == 0:
        return 1.0
    a, b, room = s.kind[job], s.kind[other], s.gpu_gib[gpu_type]
    peak, other_peak = s.memory[a, level], s.memory[b, other_level]
    if peak + other_peak <= room:
        return 1.0
    least, other_least = peak * s.least[a], other_peak * s.least[b]
    mine = granted_beside(peak, least, other_peak, other_least, room)
    theirs = granted_beside(other_peak, other_least, peak, least, room)
    sent = 2.0 * ((peak - mine) * s.steps_per_s[a] + (other_peak - theirs) * s.steps_per_s[b])
    too_much = peak + other_peak > s.limits[CAP] * room * (1 + 1e-9) or sent > s.limits[BUS_GIB_S] * (1 + 1e-9)
    if mine <= 0 or theirs <= 0 or too_much:
        return math.inf
    speed = speed_at(s.curve, s.points, a, mine / peak)
    return speed_at(s.curve, s.points, a, min(room / peak, 1.0)) / speed if speed > 0 else math.inf
