"""Two heaps with tracked positions: waiting jobs per class by their keys, and jobs by their next event.

Tracked positions make removal from the middle cheap, so nothing stale is ever left inside.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, State
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
def _up(f: Matrix, i: IntMatrix, heap: Ints, base: int, at: int) -> int:
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
def _down(f: Matrix, i: IntMatrix, heap: Ints, base: int, size: int, at: int) -> None:
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
def _note_moved(s: State, c: int) -> None:
    """The first waiting job of a class is another."""
    if s.cls[c, C_MOVED] == 0:
        s.moved[s.x[N_MOVED]] = c
        s.x[N_MOVED] += 1
    s.cls[c, C_MOVED] = 1


@kernel
def push_waiting(s: State, job: int) -> None:
    """Put a job into the heap of its class."""
    c = s.i[job, CLASS]
    at = s.cls[c, C_LEN]
    s.heap[s.cls[c, C_OFFSET] + at] = job
    s.cls[c, C_LEN] = at + 1
    if _up(s.f, s.i, s.heap, s.cls[c, C_OFFSET], at) == 0:
        _note_moved(s, c)


@entry
def remove_waiting(s: State, job: int) -> None:
    """Take a job out of the heap of its class, wherever it stands."""
    c, at = s.i[job, CLASS], s.i[job, HEAP_AT]
    base, last = s.cls[c, C_OFFSET], s.cls[c, C_LEN] - 1
    s.cls[c, C_LEN] = last
    s.i[job, HEAP_AT] = -1
    if at == 0:
        _note_moved(s, c)
    if at != last:
        s.heap[base + at] = s.heap[base + last]
        if _up(s.f, s.i, s.heap, base, at) == at:
            _down(s.f, s.i, s.heap, base, last, at)


@kernel
def _comes_first(s: State, one: int, two: int) -> bool:
    """Of two jobs whose events are at the same time."""
    if s.i[one, EVENT_KIND] != s.i[two, EVENT_KIND]:
        return bool(s.i[one, EVENT_KIND] < s.i[two, EVENT_KIND])
    return one < two


@kernel
def _settle(s: State, job: int, at: int) -> None:
    """Put a job where its event belongs, from a free place of the heap of events on: down to the leaves, then up.

    Whoever is put there was last or is new, so that he hardly rises. Times stand beside the jobs, so that nobody's row
    is read; the choice between two children is a number, not a branch that would be guessed wrong every second time.
    """
    events, when, size, time_s = s.events, s.when, s.x[N_EVENTS], s.f[job, EVENT]
    while 2 * at + 2 < size:
        child = 2 * at + 1
        second = 1 if when[child + 1] < when[child] else 0
        if when[child + 1] == when[child]:
            second = 1 if _comes_first(s, events[child + 1], events[child]) else 0
        child += second
        events[at], when[at] = events[child], when[child]
        s.i[events[at], EVENT_AT] = at
        at = child
    if 2 * at + 1 < size:
        events[at], when[at] = events[2 * at + 1], when[2 * at + 1]
        s.i[events[at], EVENT_AT] = at
        at = 2 * at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if when[parent] < time_s or (when[parent] == time_s and not _comes_first(s, job, events[parent])):
            break
        events[at], when[at] = events[parent], when[parent]
        s.i[events[at], EVENT_AT] = at
        at = parent
    events[at], when[at] = job, time_s
    s.i[job, EVENT_AT] = at


@entry
def set_event(s: State, job: int, time_s: float, kind: int) -> None:
    """Give a job its next event, in place of the one it had."""
    s.f[job, EVENT] = time_s
    s.i[job, EVENT_KIND] = kind
    at = s.i[job, EVENT_AT]
    if at < 0:
        at = s.x[N_EVENTS]
        s.x[N_EVENTS] = at + 1
    _settle(s, job, at)


@kernel
def drop_event(s: State, job: int) -> None:
    """Forget the job's next event, if it has one."""
    at = s.i[job, EVENT_AT]
    if at >= 0:
        last = s.x[N_EVENTS] - 1
        s.x[N_EVENTS] = last
        s.i[job, EVENT_AT] = -1
        if at != last:
            _settle(s, s.events[last], at)
