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
def _lift(rows: Matrix, at: int, to: int) -> None:
    """In every row, move what stands at `at` up to position `to`; what is between moves down by one."""
    for c in range(rows.shape[0]):
        kept = rows[c, at]
        for k in range(at, to, -1):
            rows[c, k] = rows[c, k - 1]
        rows[c, to] = kept


@kernel
def _insert(run: Ints, hot: Matrix, keys: Matrix, at: int, to: int) -> None:
    """The same for a running job and all that stands beside it."""
    job = run[at]
    for k in range(at, to, -1):
        run[k] = run[k - 1]
    run[to] = job
    _lift(hot, at, to)
    _lift(keys, at, to)


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
def _permute(rows: Matrix, order: Ints, scratch: Floats, first: int, count: int) -> None:
    """In every row, let position first + k have what stood at order[k]."""
    for c in range(rows.shape[0]):
        for k in range(count):
            scratch[k] = rows[c, order[k]]
        for k in range(count):
            rows[c, first + k] = scratch[k]


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
        order, scratch = s.order[side], s.scratch
        for k in range(count - first):
            scratch[k] = run[order[k]]
        for k in range(count - first):
            run[first + k] = int(scratch[k])
        _permute(hot, order, scratch, first, count - first)
        _permute(keys, order, scratch, first, count - first)
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
