"""Synergy's two mechanisms: GREEDY, which takes the best-case demand or skips, and TUNE, which never skips.

TUNE (OSDI'22, section 4) places each job with its best-case demand; failing that with its proportional share; failing
that it takes servers by their GPUs alone and switches jobs there that hold more than their share back to it. Since
every server can give each of its GPUs a proportional share, that always ends: each admitted job runs, none slower
than with its share. Where servers may borrow memory of their peers, a demand that fits nowhere is placed with some of
it borrowed, if that is still faster than the share.
"""

from __future__ import annotations

from cotenant.allocation.servers import EPS, book, by_gpus_only, give, place, place_borrowing
from cotenant.allocation.tables import BEGIN, CORES, COUNT, GPU, MEMORY, NODE, TAKEN, Packing
from cotenant.core.jit import entry, kernel
from cotenant.core.workload import Ints


@kernel
def _above_share(p: Packing, k: int, cpus: float, mem: float) -> bool:
    """Whether so much per GPU is more than the job's proportional share in some dimension."""
    return bool(cpus > p.floor[k, 0] + EPS or mem > p.floor[k, 1] + EPS)


@kernel
def _next_victim(p: Packing, n: int, after: int) -> int:
    """The best job on a server to switch back: fewest servers, most cores, then most memory per GPU.

    `after` bars the newcomer itself. -1 when nobody there holds more than its share.
    """
    best = -1
    for at in range(p.on.shape[1]):
        k = p.on[n, at]
        if k < 0 or k == after or not _above_share(p, k, p.got[k, 0], p.got[k, 1]):
            continue
        if best < 0:
            best = k
            continue
        spans, spans_best = p.at[k, COUNT], p.at[best, COUNT]
        cpus, cpus_best = p.got[k, 0], p.got[best, 0]
        if (
            spans < spans_best
            or (spans == spans_best and cpus > cpus_best)
            or (spans == spans_best and cpus == cpus_best and p.got[k, 1] > p.got[best, 1])
        ):
            best = k
    return best


@kernel
def _reclaim(p: Packing, n: int, gpus: int, cpus: float, mem: float, k: int) -> bool:
    """Switch jobs on a server back to their shares until it can give this many GPUs of job k so much each."""
    while p.free[n, CORES] + EPS < gpus * cpus or p.free[n, MEMORY] + EPS < gpus * mem:
        victim = _next_victim(p, n, k)
        if victim < 0:
            return False
        give(p, victim, p.floor[victim, 0], p.floor[victim, 1], p.floor[victim, 2])
    return True


@kernel
def _press_in(p: Packing, lo: int, hi: int, k: int, cpus: float, mem: float) -> bool:
    """Give job k servers by their GPUs alone, unless it has some already, and make room for it there."""
    if p.kept[k] == 0:
        found = by_gpus_only(p, lo, hi, p.gpus[k], False)
        if found == 0:
            return False
        book(p, k, found)
    for s in range(p.at[k, BEGIN], p.at[k, BEGIN] + p.at[k, COUNT]):
        if not _reclaim(p, p.slices[s, NODE], p.slices[s, TAKEN], cpus, mem, k):
            return False
    return True


@kernel
def _press_in_as_released(
    p: Packing, lo: int, hi: int, k: int, cpus: float, mem: float, speed: float, fit: int
) -> bool:  # fmt: skip
    """The same as the released code does it: it makes room on those servers, and then looks everywhere again."""
    found = by_gpus_only(p, lo, hi, p.gpus[k], True)
    for s in range(found):
        if not _reclaim(p, p.pick[s, 0], p.pick[s, 1], cpus, mem, k):
            return False
    return bool(found > 0 and place(p, lo, hi, k, cpus, mem, speed, fit))


@entry
def tune(p: Packing, turn: Ints, lo: int, hi: int, fit: int, released: bool) -> int:
    """Place these jobs in this order on servers [lo, hi); how many found no GPUs (none, when GPUs suffice).

    `fit` chooses among servers that hold a demand; `released` says how others are made to leave room.
    """
    missed = 0
    for t in range(len(turn)):
        k = turn[t]
        cpus, mem, speed = p.want[k, 0], p.want[k, 1], p.want[k, 2]
        if place(p, lo, hi, k, cpus, mem, speed, fit):
            continue
        if place_borrowing(p, lo, hi, k, cpus, mem, speed, p.floor[k, 2]):
            continue
        if _above_share(p, k, cpus, mem):
            cpus, mem, speed = p.floor[k, 0], p.floor[k, 1], p.floor[k, 2]
            if place(p, lo, hi, k, cpus, mem, speed, fit):
                continue
        if released and p.kept[k] == 0:
            if not _press_in_as_released(p, lo, hi, k, cpus, mem, speed, fit):
                missed += 1
        elif _press_in(p, lo, hi, k, cpus, mem):
            give(p, k, cpus, mem, speed)
        else:
            missed += 1
    return missed


@entry
def greedy(p: Packing, turn: Ints, lo: int, hi: int, fit: int) -> int:
    """Place these jobs in this order with their best-case demand, or not at all; how many were skipped."""
    left = 0.0
    for n in range(lo, hi):
        left += p.free[n, GPU]
    missed = 0
    for t in range(len(turn)):
        k = turn[t]
        cpus, mem, speed = p.want[k, 0], p.want[k, 1], p.want[k, 2]
        if p.kept[k] == 0 and left < 1:
            missed += 1
        elif place(p, lo, hi, k, cpus, mem, speed, fit) or place_borrowing(p, lo, hi, k, cpus, mem, speed, 0.0):
            left -= p.gpus[k] if p.kept[k] == 0 else 0
        else:
            missed += 1
    return missed
