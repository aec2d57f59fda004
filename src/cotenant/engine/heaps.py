"""Two heaps with tracked positions: waiting jobs per class by their keys, and jobs by their next event.

Tracked positions make removal from the middle cheap, so nothing stale is ever left inside.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix
from cotenant.core.workload import Ints


@kernel
def ahead(f: Matrix, a: int, b: int) -> bool:
    """Whether job a comes before job b: by the keys, then by row."""
    if f[a, KEY1] != f[b, KEY1]:
        return bool(f[a, KEY1] < f[b, KEY1])
    if f[a, KEY2] != f[b, KEY2]:
        return bool(f[a, KEY2] < f[b, KEY2])
    if f[a, KEY3] != f[b, KEY3]:
        return bool(f[a, KEY3] < f[b, KEY3])
    if f[a, KEY4] != f[b, KEY4]:
        return bool(f[a, KEY4] < f[b, KEY4])
    return a < b


@kernel
def _sooner(f: Matrix, i: IntMatrix, a: int, b: int) -> bool:
    if f[a, EVENT] != f[b, EVENT]:
        return bool(f[a, EVENT] < f[b, EVENT])
    if i[a, EVENT_KIND] != i[b, EVENT_KIND]:
        return bool(i[a, EVENT_KIND] < i[b, EVENT_KIND])
    return a < b


@kernel
def _precedes(f: Matrix, i: IntMatrix, track: int, a: int, b: int) -> bool:
    """Which of two jobs is nearer to the top of the heap whose positions are in the column `track`."""
    return _sooner(f, i, a, b) if track == EVENT_AT else ahead(f, a, b)


@kernel
def _up(f: Matrix, i: IntMatrix, heap: Ints, base: int, at: int, track: int) -> int:
    job = heap[base + at]
    while at > 0:
        parent = (at - 1) >> 1
        other = heap[base + parent]
        if not _precedes(f, i, track, job, other):
            break
        heap[base + at] = other
        i[other, track] = at
        at = parent
    heap[base + at] = job
    i[job, track] = at
    return at


@kernel
def _down(f: Matrix, i: IntMatrix, heap: Ints, base: int, size: int, at: int, track: int) -> None:
    job = heap[base + at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _precedes(f, i, track, heap[base + child + 1], heap[base + child]):
            child += 1
        other = heap[base + child]
        if not _precedes(f, i, track, other, job):
            break
        heap[base + at] = other
        i[other, track] = at
        at = child
    heap[base + at] = job
    i[job, track] = at


@kernel
def _fill_gap(f: Matrix, i: IntMatrix, heap: Ints, base: int, last: int, at: int, track: int) -> None:
    """The job at `at` is taken out of a heap that ended at `last`: the last one takes its place, and moves from it."""
    if at != last:
        heap[base + at] = heap[base + last]
        if _up(f, i, heap, base, at, track) == at:
            _down(f, i, heap, base, last, at, track)


@kernel
def push_waiting(f: Matrix, i: IntMatrix, cls: IntMatrix, heap: Ints, job: int) -> None:
    """Put a job into the heap of its class."""
    c = i[job, CLASS]
    at = cls[c, C_LEN]
    heap[cls[c, C_OFFSET] + at] = job
    cls[c, C_LEN] = at + 1
    if _up(f, i, heap, cls[c, C_OFFSET], at, HEAP_AT) == 0:
        cls[c, C_MOVED] = 1


@entry
def remove_waiting(f: Matrix, i: IntMatrix, cls: IntMatrix, heap: Ints, job: int) -> None:
    """Take a job out of the heap of its class, wherever it stands."""
    c, at = i[job, CLASS], i[job, HEAP_AT]
    cls[c, C_LEN] -= 1
    i[job, HEAP_AT] = -1
    if at == 0:
        cls[c, C_MOVED] = 1
    _fill_gap(f, i, heap, cls[c, C_OFFSET], cls[c, C_LEN], at, HEAP_AT)


@entry
def set_event(f: Matrix, i: IntMatrix, events: Ints, x: Ints, job: int, time_s: float, kind: int) -> None:
    """Give a job its next event, in place of the one it had."""
    f[job, EVENT] = time_s
    i[job, EVENT_KIND] = kind
    at = i[job, EVENT_AT]
    if at < 0:
        at = x[N_EVENTS]
        events[at] = job
        x[N_EVENTS] = at + 1
    if _up(f, i, events, 0, at, EVENT_AT) == at:
        _down(f, i, events, 0, x[N_EVENTS], at, EVENT_AT)


@kernel
def drop_event(f: Matrix, i: IntMatrix, events: Ints, x: Ints, job: int) -> None:
    """Forget the job's next event, if it has one."""
    at = i[job, EVENT_AT]
    if at >= 0:
        x[N_EVENTS] -= 1
        i[job, EVENT_AT] = -1
        _fill_gap(f, i, events, 0, x[N_EVENTS], at, EVENT_AT)
