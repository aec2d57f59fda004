"""The waiting line as a line of classes: each stands where its first job belongs."""

from __future__ import annotations

from cotenant.core.columns import C_LEN, C_MOVED, C_OFFSET, IN_LINE, N_LINES, N_MOVED
from cotenant.core.jit import kernel
from cotenant.core.state import State
from cotenant.engine.heaps import ahead


@kernel
def line_up(s: State) -> None:
    """Order the classes that have waiting jobs by their first ones: those of which it is another are put in anew."""
    if s.x[IN_LINE] == 0:
        _line_up_all(s)
        return
    if s.x[N_MOVED] == 0:
        return
    count = 0
    for k in range(s.x[N_LINES]):
        c = s.lines[k]
        s.lines[count] = c
        count += 1 if s.cls[c, C_MOVED] != 1 else 0
    for k in range(s.x[N_MOVED]):
        c = s.moved[k]
        if s.cls[c, C_MOVED] == 1 and s.cls[c, C_LEN] > 0:
            insert_line(s, c, count)
            count += 1
        s.cls[c, C_MOVED] = 0
    s.x[N_MOVED], s.x[N_LINES] = 0, count


@kernel
def _line_up_all(s: State) -> None:
    """The same from the beginning."""
    count = 0
    for c in range(s.cls.shape[0]):
        s.cls[c, C_MOVED] = 0
        if s.cls[c, C_LEN] > 0:
            insert_line(s, c, count)
            count += 1
    s.x[N_MOVED], s.x[N_LINES], s.x[IN_LINE] = 0, count, 1


@kernel
def insert_line(s: State, c: int, end: int) -> None:
    """Insert a class before position `end` of the lines, by its first job."""
    job = s.heap[s.cls[c, C_OFFSET]]
    low, high = 0, end
    if end > 0 and not ahead(s.f, job, s.heap[s.cls[s.lines[end - 1], C_OFFSET]]):
        low = end
    while low < high:
        middle = (low + high) // 2
        if ahead(s.f, job, s.heap[s.cls[s.lines[middle], C_OFFSET]]):
            high = middle
        else:
            low = middle + 1
    for at in range(end, low, -1):
        s.lines[at] = s.lines[at - 1]
    s.lines[low] = c


@kernel
def advance_line(s: State, at: int) -> None:
    """The first job of the class at position `at` was taken: put the class where its next job belongs."""
    c = s.lines[at]
    last = s.x[N_LINES]
    s.cls[c, C_MOVED] = min(s.cls[c, C_MOVED] * 2, 2)
    if s.cls[c, C_LEN] == 0:
        last -= 1
        for k in range(at, last):
            s.lines[k] = s.lines[k + 1]
        s.x[N_LINES] = last
        return
    job = s.heap[s.cls[c, C_OFFSET]]
    while at + 1 < last and ahead(s.f, s.heap[s.cls[s.lines[at + 1], C_OFFSET]], job):
        s.lines[at] = s.lines[at + 1]
        at += 1
    s.lines[at] = c
