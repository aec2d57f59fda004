"""The waiting line as a line of classes: each stands where its first job belongs."""

from __future__ import annotations

from cotenant.core.columns import C_LEN, C_MOVED, C_OFFSET, N_LINES
from cotenant.core.jit import kernel
from cotenant.core.state import State
from cotenant.engine.heaps import ahead


@kernel
def line_up(s: State) -> None:
    """Order the classes that have waiting jobs by their first ones.

    They are taken in the order in which they stood last, which is nearly right. A negative length marks who is in line.
    """
    moved = count = 0
    for c in range(s.cls.shape[0]):
        moved += s.cls[c, C_MOVED]
        count += 1 if s.cls[c, C_LEN] > 0 else 0
    if moved == 0 and count == s.x[N_LINES]:
        return
    count = 0
    for k in range(s.x[N_LINES]):
        c = s.lines[k]
        if s.cls[c, C_LEN] > 0:
            insert_line(s, c, count)
            s.cls[c, C_LEN] = -s.cls[c, C_LEN]
            count += 1
    for c in range(s.cls.shape[0]):
        s.cls[c, C_MOVED] = 0
        if s.cls[c, C_LEN] < 0:
            s.cls[c, C_LEN] = -s.cls[c, C_LEN]
        elif s.cls[c, C_LEN] > 0:
            insert_line(s, c, count)
            count += 1
    s.x[N_LINES] = count


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
    s.cls[c, C_MOVED] = 0
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
