"""Whom a job displaces: the last ones in the order, and no more of them than it takes.

A job that finds no idle place may sit down where others run that come behind it. Among all such places it takes
one that becomes free when only the shortest tail of the order leaves: then nobody further ahead loses its place only
to be moved onto the GPUs of somebody who has to stop anyway.
"""

from __future__ import annotations

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import State
from cotenant.core.workload import Ints
from cotenant.engine.slices import shift
from cotenant.placement.fit import IDLE_NOW, LATEST, TAIL, UNCLAIMED, find_place


@kernel
def _add_tail(s: State, order: Ints, first: int, end: int) -> None:
    """Count the GPUs of running jobs at these places of the order as free."""
    for k in range(first, end):
        job = order[k]
        if job >= 0 and s.i[job, STATE] == RUNNING:
            shift(s, job, s.i[job, SLICE], TAIL, 1)


@kernel
def _open_tail(s: State, order: Ints, first: int, end: int) -> None:
    """What is free when everybody from `first` on leaves."""
    for n in range(s.node.shape[0]):
        s.open[n, TAIL] = s.open[n, IDLE_NOW]
    _add_tail(s, order, first, end)


@kernel
def displace_latest(s: State, c: int, job: int, order: Ints, first: int, end: int) -> int:
    """A place for a job of class c that costs only the tail of `order[first:end]`; pairs as in `find_place`.

    The shortest tail is found by doubling, then by halving. Where cores or memory bind, or where GPUs are only
    counted, any place will do: there nobody is moved for nothing.
    """
    count = find_place(s, c, job, UNCLAIMED)
    if count == 0 or s.x[USE_HOST] == 1 or s.node.shape[0] == s.pool.shape[0] or end - first < 2:
        return count
    _open_tail(s, order, end, end)
    enough, short, step = end, end, 1  # the tail from `short` on is too short
    while True:
        enough = max(first, short - step)
        _add_tail(s, order, enough, short)
        count = find_place(s, c, job, LATEST)
        if count > 0 or enough == first:
            break
        short = enough
        step *= 2
    while short - enough > 1:
        middle = (short + enough) // 2
        _open_tail(s, order, middle, end)
        if find_place(s, c, job, LATEST) > 0:
            enough = middle
        else:
            short = middle
    _open_tail(s, order, enough, end)
    return find_place(s, c, job, LATEST)
