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
def _waiting_up(f: Matrix, i: IntMatrix, heap: Ints, base: int, at: int) -> int:
    job = heap[base + at]
    while at > 0:
        parent = (at - 1) >> 1
        other = heap[base + parent]
        if not ahead(f, job, other):
            break
        heap[base + at] = other
        i[other, HEAP_AT] = at
        at = parent
    heap[base + at] = job
    i[job, HEAP_AT] = at
    return at


@kernel
def _waiting_down(f: Matrix, i: IntMatrix, heap: Ints, base: int, size: int, at: int) -> None:
    job = heap[base + at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and ahead(f, heap[base + child + 1], heap[base + child]):
            child += 1
        other = heap[base + child]
        if not ahead(f, other, job):
            break
        heap[base + at] = other
        i[other, HEAP_AT] = at
        at = child
    heap[base + at] = job
    i[job, HEAP_AT] = at


@kernel
def push_waiting(f: Matrix, i: IntMatrix, cls: IntMatrix, heap: Ints, job: int) -> None:
    """Put a job into the heap of its class."""
    c = i[job, CLASS]
    at = cls[c, C_LEN]
    heap[cls[c, C_OFFSET] + at] = job
    cls[c, C_LEN] = at + 1
    _waiting_up(f, i, heap, cls[c, C_OFFSET], at)


@entry
def remove_waiting(f: Matrix, i: IntMatrix, cls: IntMatrix, heap: Ints, job: int) -> None:
    """Take a job out of the heap of its class, wherever it stands."""
    c = i[job, CLASS]
    base = cls[c, C_OFFSET]
    at = i[job, HEAP_AT]
    last = cls[c, C_LEN] - 1
    cls[c, C_LEN] = last
    i[job, HEAP_AT] = -1
    if at == last:
        return
    heap[base + at] = heap[base + last]
    if _waiting_up(f, i, heap, base, at) == at:
        _waiting_down(f, i, heap, base, last, at)


@kernel
def _sooner(f: Matrix, i: IntMatrix, a: int, b: int) -> bool:
    if f[a, EVENT] != f[b, EVENT]:
        return bool(f[a, EVENT] < f[b, EVENT])
    if i[a, EVENT_KIND] != i[b, EVENT_KIND]:
        return bool(i[a, EVENT_KIND] < i[b, EVENT_KIND])
    return a < b


@kernel
def _event_up(f: Matrix, i: IntMatrix, events: Ints, at: int) -> int:
    job = events[at]
    while at > 0:
        parent = (at - 1) >> 1
        other = events[parent]
        if not _sooner(f, i, job, other):
            break
        events[at] = other
        i[other, EVENT_AT] = at
        at = parent
    events[at] = job
    i[job, EVENT_AT] = at
    return at


@kernel
def _event_down(f: Matrix, i: IntMatrix, events: Ints, size: int, at: int) -> None:
    job = events[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _sooner(f, i, events[child + 1], events[child]):
            child += 1
        other = events[child]
        if not _sooner(f, i, other, job):
            break
        events[at] = other
        i[other, EVENT_AT] = at
        at = child
    events[at] = job
    i[job, EVENT_AT] = at


@kernel
def set_event(f: Matrix, i: IntMatrix, events: Ints, x: Ints, job: int, time_s: float, kind: int) -> None:
    """Give a job its next event, in place of the one it had."""
    f[job, EVENT] = time_s
    i[job, EVENT_KIND] = kind
    at = i[job, EVENT_AT]
    if at < 0:
        at = x[N_EVENTS]
        events[at] = job
        x[N_EVENTS] = at + 1
    if _event_up(f, i, events, at) == at:
        _event_down(f, i, events, x[N_EVENTS], at)


@kernel
def drop_event(f: Matrix, i: IntMatrix, events: Ints, x: Ints, job: int) -> None:
    """Forget the job's next event, if it has one."""
    at = i[job, EVENT_AT]
    if at < 0:
        return
    last = x[N_EVENTS] - 1
    x[N_EVENTS] = last
    i[job, EVENT_AT] = -1
    if at == last:
        return
    events[at] = events[last]
    if _event_up(f, i, events, at) == at:
        _event_down(f, i, events, last, at)
