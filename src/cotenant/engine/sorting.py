"""Sorting the list of running jobs by their keys, together with the rows that stand beside it.

From one walk to the next the order hardly changes: a few new jobs at the end, a few that moved. Those are
inserted one by one. When many are out of place (a round of attained service), positions are merge-sorted
and the rows moved once.
"""

from __future__ import annotations

from cotenant.core.columns import N_RUN
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import before_running

_FEW = 12


@kernel
def _before(keys: Matrix, run: Ints, a: int, b: int) -> bool:
    if keys[0, a] != keys[0, b]:
        return bool(keys[0, a] < keys[0, b])
    if keys[1, a] != keys[1, b]:
        return bool(keys[1, a] < keys[1, b])
    if keys[2, a] != keys[2, b]:
        return bool(keys[2, a] < keys[2, b])
    if keys.shape[0] > 3 and keys[3, a] != keys[3, b]:
        return bool(keys[3, a] < keys[3, b])
    return bool(run[a] < run[b])


@kernel
def _insert(run: Ints, hot: Matrix, keys: Matrix, at: int, to: int) -> None:
    """Move row `at` up to position `to`; the rows between move down by one."""
    job, k1, k2, k3 = run[at], keys[0, at], keys[1, at], keys[2, at]
    for k in range(at, to, -1):
        run[k] = run[k - 1]
        keys[0, k], keys[1, k], keys[2, k] = keys[0, k - 1], keys[1, k - 1], keys[2, k - 1]
    run[to], keys[0, to], keys[1, to], keys[2, to] = job, k1, k2, k3
    for c in range(hot.shape[0]):
        kept = hot[c, at]
        for k in range(at, to, -1):
            hot[c, k] = hot[c, k - 1]
        hot[c, to] = kept
    if keys.shape[0] > 3:
        kept = keys[3, at]
        for k in range(at, to, -1):
            keys[3, k] = keys[3, k - 1]
        keys[3, to] = kept


@kernel
def _merge_sort(keys: Matrix, run: Ints, order: IntMatrix, first: int, count: int) -> int:
    """Sort `count` positions from `first` on by their keys; which of the two rows of `order` holds the result."""
    for k in range(count):
        order[0, k] = first + k
    side, width = 0, 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for k in range(low, high):
                if left < middle and (right >= high or not _before(keys, run, order[side, right], order[side, left])):
                    order[1 - side, k] = order[side, left]
                    left += 1
                else:
                    order[1 - side, k] = order[side, right]
                    right += 1
        side = 1 - side
        width *= 2
    return side


@kernel
def _permute(run: Ints, hot: Matrix, keys: Matrix, order: Ints, scratch: Floats, first: int, count: int) -> None:
    """Move rows so that position first + k gets what stood at order[k], column by column."""
    for k in range(count):
        scratch[k] = run[order[k]]
    for k in range(count):
        run[first + k] = int(scratch[k])
    for c in range(hot.shape[0]):
        for k in range(count):
            scratch[k] = hot[c, order[k]]
        for k in range(count):
            hot[c, first + k] = scratch[k]
    for c in range(keys.shape[0]):
        for k in range(count):
            scratch[k] = keys[c, order[k]]
        for k in range(count):
            keys[c, first + k] = scratch[k]


@kernel
def sort_running(s: State, first: int) -> None:
    """Sort running jobs from position `first` on by the keys in `s.keys`; `s.run` and `s.hot` move along."""
    run, hot, keys, count = s.run, s.hot, s.keys, s.x[N_RUN]
    misplaced = 0
    for k in range(first + 1, count):
        if _before(keys, run, k, k - 1):
            misplaced += 1
            if misplaced > _FEW:
                break
    if misplaced == 0:
        return
    if misplaced > _FEW:
        side = _merge_sort(keys, run, s.order, first, count - first)
        _permute(run, hot, keys, s.order[side], s.scratch, first, count - first)
        return
    for k in range(first + 1, count):
        to = k
        while to > first and _before(keys, run, k, to - 1):
            to -= 1
        if to < k:
            _insert(run, hot, keys, k, to)


@kernel
def part_running(s: State, waiting: int) -> int:
    """Bring the running jobs that come after a waiting one to the end of the list; where they begin.

    Only those can lose their place, so only they need sorting.
    """
    f, run, hot, keys = s.f, s.run, s.hot, s.keys
    low, high = 0, s.x[N_RUN]
    while True:
        while low < high and not before_running(f, waiting, keys, low, run[low]):
            low += 1
        while low < high and before_running(f, waiting, keys, high - 1, run[high - 1]):
            high -= 1
        if low >= high:
            break
        high -= 1
        run[low], run[high] = run[high], run[low]
        for c in range(hot.shape[0]):
            hot[c, low], hot[c, high] = hot[c, high], hot[c, low]
        for c in range(keys.shape[0]):
            keys[c, low], keys[c, high] = keys[c, high], keys[c, low]
        low += 1
    return int(low)
