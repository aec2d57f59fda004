"""Lining the running jobs up by their keys.

From one walk to the next the order hardly changes: a few new jobs, a few that moved. So the line is kept, as positions
in the list of running jobs, and those out of place are inserted one by one; when many are (a round of attained
service), the line is merge-sorted. The jobs themselves, and all that stands beside them, stay where they are.
"""

from __future__ import annotations

from cotenant.core.columns import N_KEPT, N_LINED, N_RUN
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix, State
from cotenant.core.workload import Ints
from cotenant.engine.keys import before_running

AT, WHO, KEPT = 0, 1, 2  # rows of `State.order`: positions and jobs of those lined up, and the line of all that run
EVERYBODY = -1
_STEPS = 4  # per job that insertions may take


@kernel
def before(keys: Matrix, run: Ints, a: int, b: int) -> bool:
    """Whether the running job at place a comes before the one at place b; who has left stands where he stood."""
    if keys[0, a] != keys[0, b]:
        return bool(keys[0, a] < keys[0, b])
    if keys[1, a] != keys[1, b]:
        return bool(keys[1, a] < keys[1, b])
    if keys[2, a] != keys[2, b]:
        return bool(keys[2, a] < keys[2, b])
    if keys.shape[0] > 3 and keys[3, a] != keys[3, b]:
        return bool(keys[3, a] < keys[3, b])
    one, two = run[a], run[b]
    return bool((one if one >= 0 else -2 - one) < (two if two >= 0 else -2 - two))


@kernel
def _insert_few(keys: Matrix, run: Ints, at: Ints, count: int) -> bool:
    """Sort by inserting those that are out of place; gives up, with part of it done, where they are many."""
    left = _STEPS * count
    for k in range(1, count):
        place = at[k]
        to = k
        while to > 0 and before(keys, run, place, at[to - 1]):
            at[to] = at[to - 1]
            to -= 1
        at[to] = place
        left -= k - to
        if left < 0:
            return False
    return True


@kernel
def _merge_sort(keys: Matrix, run: Ints, order: IntMatrix, count: int) -> int:
    """Sort the positions in the first row of `order`; which of the first two rows holds the result."""
    side, width = 0, 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for k in range(low, high):
                if left < middle and (right >= high or not before(keys, run, order[side, right], order[side, left])):
                    order[1 - side, k] = order[side, left]
                    left += 1
                else:
                    order[1 - side, k] = order[side, right]
                    right += 1
        side = 1 - side
        width *= 2
    return side


@kernel
def line_up_running(s: State, waiting: int) -> int:
    """Sort the running jobs that come after a waiting one, or EVERYBODY, into AT and WHO; how many these are.

    Only those can lose their place, so only they are sorted.
    """
    run, keys, order = s.run, s.keys, s.order
    for k in range(s.x[N_KEPT], s.x[N_RUN]):
        order[KEPT, s.x[N_LINED]] = k
        s.x[N_LINED] += 1
    s.x[N_KEPT] = s.x[N_RUN]
    ahead = count = 0
    for k in range(s.x[N_LINED]):
        place = order[KEPT, k]
        if waiting == EVERYBODY or before_running(s.f, waiting, keys, place, run[place]):
            order[AT, count] = place
            count += 1
        else:
            order[KEPT, ahead] = place
            ahead += 1
    side = AT if _insert_few(keys, run, order[AT], count) else _merge_sort(keys, run, order, count)
    for k in range(count):
        order[KEPT, ahead + k] = order[side, k]
    for k in range(count):
        place = order[KEPT, ahead + k]
        order[AT, k], order[WHO, k] = place, run[place]
    return count
