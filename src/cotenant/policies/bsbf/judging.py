"""What a placement of SJF-BSBF does to everybody in it.

A gang moves at its slowest GPU, so a host is slowed on all its GPUs even if only some are shared. The engine's rule
is played until the new job ends: until then each host moves at the slowdown that it has, or the new one if that is
larger, and the new job at the largest slowdown over the hosts that are still there. Whoever still starts up moves
nothing and slows nobody down, so a start-up can be filled by others, and hidden behind them.
"""

from __future__ import annotations

import math

from cotenant.core.jit import kernel
from cotenant.core.state import Cube
from cotenant.core.workload import Floats
from cotenant.policies.bsbf.pair_test import shared_mean
from cotenant.policies.bsbf.scratch import Scene, Scratch
from cotenant.policies.bsbf.squeezing import stretched

SOON_S = 1e-9  # a start-up that ends within it is over


@kernel
def xi(s: Scene, slowdown: Cube, job: int, level: int, other: int, other_level: int, gpu_type: int) -> float:
    """How many times as long a job takes beside another, at the sub-batches of both and with the memory granted."""
    lost = slowdown[s.kind[job], s.kind[other], gpu_type] - 1.0
    slow = 1.0 + lost * s.eased[s.kind[job], level] * s.eased[s.kind[other], other_level]
    return float(slow * stretched(s, job, level, other, other_level, gpu_type))


@kernel
def play(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, job: int, level: int, l_a: float, mates: int,
    gpu_type: int,
) -> float:  # fmt: skip
    """When a job ends that starts now beside `w.mates`; the ends of those go to `w.means`. Seconds from now."""
    for k in range(mates):
        w.means[k] = left[w.mates[k]]
        w.ends[k] = 0.0
    now, remaining, alive = 0.0, l_a, mates
    while alive > 0 and remaining > 1e-9 * max(l_a, 1.0):
        works = now >= w.start[job] - SOON_S
        xi_a, end = 1.0, math.inf if works else w.start[job] - now
        for k in range(mates):
            if w.means[k] > 0:
                mate = w.mates[k]
                if now < w.start[mate] - SOON_S:
                    end = min(end, w.start[mate] - now)
                    continue
                xi_h = w.slow[mate]
                if works:
                    xi_a = max(xi_a, xi(s, slowdown, job, level, mate, w.level[mate], gpu_type))
                    xi_h = max(xi(s, slowdown, mate, w.level[mate], job, level, gpu_type), xi_h)
                end = min(end, w.means[k] * xi_h)
        step = min(end, remaining * xi_a) if works else end
        for k in range(mates):
            mate = w.mates[k]
            if w.means[k] > 0 and now >= w.start[mate] - SOON_S:
                xi_h = w.slow[mate]
                if works:
                    xi_h = max(xi(s, slowdown, mate, w.level[mate], job, level, gpu_type), xi_h)
                w.means[k] -= step / xi_h
                if w.means[k] <= 1e-9 * max(left[mate], 1.0):
                    w.means[k] = 0.0
                    w.ends[k] = now + step
                    alive -= 1
        now += step
        remaining -= step / xi_a if works else 0.0
    for k in range(mates):
        begins = max(now, w.start[w.mates[k]])
        w.means[k] = begins + w.means[k] * w.slow[w.mates[k]] if w.means[k] > 0 else w.ends[k]
    return max(now, w.start[job]) + max(remaining, 0.0) if alive == 0 else now


@kernel
def cost(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, job: int, level: int, l_a: float, mates: int,
    gpu_type: int,
) -> float:  # fmt: skip
    """Seconds that starting now beside `w.mates` costs everybody in it: own completion and the delays of the hosts.

    It starts with sub-batches (`level`) that make it take `l_a` seconds alone. How long a host has left anyway does not
    count, so that prices of different hosts compare. Waiting for the last host costs `last_end` and the job's whole
    batch alone: for one host the difference is twice that of the pair test's means.
    """
    total = play(s, w, slowdown, left, job, level, l_a, mates, gpu_type)
    for k in range(mates):
        total += w.means[k] - w.start[w.mates[k]] - left[w.mates[k]] * w.slow[w.mates[k]]
    return total


@kernel
def last_end(w: Scratch, left: Floats, mates: int) -> float:
    """When the last of `w.mates` ends if nobody joins it."""
    last = 0.0
    for k in range(mates):
        last = max(last, w.start[w.mates[k]] + left[w.mates[k]] * w.slow[w.mates[k]])
    return last


@kernel
def mean_of_pairs(
    s: Scene, w: Scratch, slowdown: Cube, left: Floats, job: int, level: int, l_a: float, mates: int,
    gpu_type: int,
) -> float:  # fmt: skip
    """What the paper compares sub-batches by: the pair test's mean when the job starts now, over its hosts."""
    total = 0.0
    for k in range(mates):
        mate = w.mates[k]
        xi_a = xi(s, slowdown, job, level, mate, w.level[mate], gpu_type)
        total += shared_mean(l_a, left[mate], xi_a, xi(s, slowdown, mate, w.level[mate], job, level, gpu_type))
    return total / max(mates, 1)
