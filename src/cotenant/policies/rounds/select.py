"""Who runs in this round, and in which pool: a greedy walk by priority (Gavel, section 5 and released code).

A combination is one job or a pair. Its priority in a pool is its target fraction over the time it has
received there; whoever is furthest behind comes first. No combination blocks another: what does not fit is
skipped.
"""

from __future__ import annotations

import numpy as np

from cotenant.core import jit
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Ints

SHORT = 300


@kernel
def _take(
    c: int, k: int, members: IntMatrix, gangs: Ints, usable: IntMatrix, eager: IntMatrix, room: Ints, taken: Ints
) -> bool:
    """Book combination c in pool k if it may be picked there, fits, and none of its jobs runs this round."""
    a, b = members[c, 0], members[c, 1]
    if gangs[c] > room[k] or usable[c, k] == 0 or eager[c, k] == 0 or taken[a] == 1:
        return False
    if b >= 0 and taken[b] == 1:
        return False
    taken[a] = 1
    if b >= 0:
        taken[b] = 1
    room[k] -= gangs[c]
    return True


@entry
def pick(
    order: IntMatrix, members: IntMatrix, gangs: Ints, usable: IntMatrix, eager: IntMatrix, pool_order: Ints,
    room: Ints, taken: Ints, out: IntMatrix,
) -> int:  # fmt: skip
    """Walk `order[k]` (combinations by priority in pool k), pool by pool; picked ones go to `out`.

    `members` are one or two job indices (-1: alone), `usable` says where a combination may run, `eager` where
    it may be picked (all zeros forbids picking for the sake of work alone), `room` is GPUs left per pool,
    `taken` marks jobs that already run this round. Returns how many were picked.
    """
    count = 0
    for at in range(len(pool_order)):
        k = pool_order[at]
        for n in range(order.shape[1]):
            if room[k] <= 0:
                break
            c = order[k, n]
            if _take(c, k, members, gangs, usable, eager, room, taken):
                out[count, 0], out[count, 1] = c, k
                count += 1
    return count


@entry
def pick_in_line(
    line: IntMatrix, members: IntMatrix, gangs: Ints, usable: IntMatrix, eager: IntMatrix, room: Ints, taken: Ints,
    out: IntMatrix,
) -> int:  # fmt: skip
    """The same with all pools in one line of (combination, pool): whoever is furthest behind, wherever, comes first."""
    count = 0
    for n in range(len(line)):
        c, k = line[n, 0], line[n, 1]
        if _take(c, k, members, gangs, usable, eager, room, taken):
            out[count, 0], out[count, 1] = c, k
            count += 1
    return count


@entry
def fill(rows: Ints, rates: Matrix, gangs: Ints, room: Ints, taken: Ints, out: IntMatrix) -> int:
    """Give what is idle to jobs that have nothing, in the order of `rows`, each in its fastest pool with room."""
    count = 0
    for n in range(len(rows)):
        j = rows[n]
        if taken[j] == 1:
            continue
        best, best_rate = -1, 0.0
        for k in range(len(room)):
            if room[k] >= gangs[j] and rates[j, k] > best_rate:
                best, best_rate = k, rates[j, k]
        if best >= 0:
            taken[j] = 1
            room[best] -= gangs[j]
            out[count, 0], out[count, 1] = j, best
            count += 1
    return count


@kernel
def _sooner(priority: Matrix, deficit_s: Matrix, target: Matrix, k: int, one: int, other: int) -> bool:
    """Whether a combination comes before another one in pool k, whatever their numbers."""
    if priority[one, k] != priority[other, k]:
        return bool(priority[one, k] > priority[other, k])
    if deficit_s[one, k] != deficit_s[other, k]:
        return bool(deficit_s[one, k] > deficit_s[other, k])
    return bool(target[one, k] > target[other, k])


@entry
def rank(
    target: Matrix, received_s: Matrix, deficit_s: Matrix, usable: IntMatrix, priority: Matrix, order: IntMatrix,
    other: Ints,
) -> None:  # fmt: skip
    """Priorities, and the combinations of each pool sorted by (priority, deficit, target), all falling, then index.

    By merging, pieces that are in order already being left as they are; `other` is scratch.
    """
    count, pools = target.shape
    for k in range(pools):
        for c in range(count):
            value = 0.0
            if usable[c, k] > 0 and target[c, k] > 0:
                value = target[c, k] / received_s[c, k] if received_s[c, k] > 0 else target[c, k] * 1e9
            priority[c, k] = value
            order[k, c] = c
        width = 1
        while width < count:
            for low in range(0, count - width, 2 * width):
                middle, high = low + width, min(low + 2 * width, count)
                if not _sooner(priority, deficit_s, target, k, order[k, middle], order[k, middle - 1]):
                    continue
                for at in range(low, middle):
                    other[at] = order[k, at]
                one, two, at = low, middle, low
                while one < middle:
                    if two < high and _sooner(priority, deficit_s, target, k, order[k, two], other[one]):
                        order[k, at] = order[k, two]
                        two += 1
                    else:
                        order[k, at] = other[one]
                        one += 1
                    at += 1
            width *= 2


def by_priority(target: Matrix, received_s: Matrix, deficit_s: Matrix, usable: IntMatrix) -> tuple[Matrix, IntMatrix]:
    """The same, by NumPy where lists are long and kernels are not compiled."""
    order = np.empty((target.shape[1], len(target)), np.int64)
    if len(target) <= SHORT or jit.enabled():
        priority = np.empty_like(target)
        rank(target, received_s, deficit_s, usable, priority, order, np.empty(len(target), np.int64))
        return priority, order
    with np.errstate(divide="ignore", invalid="ignore"):
        priority = np.where(received_s > 0, target / received_s, target * 1e9)
    priority = np.where((usable > 0) & (target > 0), priority, 0.0)
    for k in range(target.shape[1]):
        order[k] = np.lexsort((-target[:, k], -deficit_s[:, k], -priority[:, k]))
    return priority, order


def one_line(priority: Matrix, deficit_s: Matrix, target: Matrix) -> IntMatrix:
    """(combination, pool) of all pools by (priority, deficit, target), all falling, then index."""
    order = np.lexsort((-target.ravel(), -deficit_s.ravel(), -priority.ravel()))
    return np.stack(np.divmod(order, priority.shape[1]), axis=1)
