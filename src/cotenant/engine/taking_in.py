"""One event of the world, taken into the tables by the kernel that is made for it."""

from __future__ import annotations

import math

from cotenant.core import columns as col
from cotenant.core.decision import Event, Kind
from cotenant.core.state import Rule, State
from cotenant.engine.events import (
    adopt,
    adopt_suspended,
    arrive,
    pin,
    ran_out,
    rekey,
    shut_node,
    stands_still,
    unpin,
    withdraw,
)
from cotenant.engine.leaving import gone
from cotenant.engine.ledger import resize, start
from cotenant.engine.observe import places_of
from cotenant.engine.resizing import lay_slices


def take_in(s: State, rule: Rule, event: Event, now_s: float) -> None:
    """The tables after it. What is told twice, or too late, changes nothing."""
    kind, at = event.kind, event.at
    if kind in (Kind.OVER, Kind.AGAIN):
        ran_out(s, rule, at, now_s, kind == Kind.AGAIN, event.lost_s)
    elif kind == Kind.LEFT:
        gone(s, rule, at, now_s)
    elif kind == Kind.STANDS:
        stands_still(s, rule, at, now_s)
    elif kind == Kind.WITHDRAWN:
        withdraw(s, rule, at, now_s)
    elif kind in (Kind.SHUT, Kind.OPEN):
        shut_node(s, rule, at, kind == Kind.SHUT, now_s)
    elif kind == Kind.PINNED:
        if s.i[at, col.STATE] == col.RUNNING and not s.i[at, col.PROMISED]:
            pin(s, rule, at, now_s)
    elif kind == Kind.LOOSE:
        if s.i[at, col.STATE] == col.PINNED:
            unpin(s, rule, at)
    else:
        _place(s, rule, event, now_s)


def _place(s: State, rule: Rule, event: Event, now_s: float) -> None:
    kind, row, state = event.kind, event.at, int(s.i[event.at, col.STATE])
    if kind == Kind.ARRIVED:
        if state not in (col.WAITING, col.RUNNING):
            arrive(s, rule, row, now_s)
            _waits_since(s, row, event.since_s, now_s)
    elif kind == Kind.ADOPTED and state == col.WAITING and event.places:
        size = sum(gpus for _, gpus, _ in event.places)
        if size != s.i[row, col.GPUS]:
            resize(s, row, size)
        adopt(s, rule, row, lay_slices(s, event.places), event.since_s, now_s)
        s.i[row, col.HOST] = _host_of(s, row)
    elif kind == Kind.ADOPTED_STILL and state == col.WAITING and event.places:
        adopt_suspended(s, rule, row, lay_slices(s, event.places), now_s)
    elif kind == Kind.ENDING and state == col.WAITING:
        s.i[row, col.LEAVING] = 1  # for a process, without GPUs
        s.f[row, col.LOST] += (s.f[row, col.DONE] - s.f[row, col.SAVED]) * s.i[row, col.GPUS]
        s.f[row, col.DONE] = s.f[row, col.SAVED]
        s.i[row, col.OWES] = int(s.f[row, col.DONE] > 0)
    elif kind == Kind.PROMISED and state == col.WAITING and _free(s, event):
        if s.x[col.ROTATES]:  # until the policy says otherwise it takes turns with whoever else is there
            s.i[row, col.TURN] = row + 1
        leaving = s.i[row, col.LEAVING]
        s.i[row, col.LEAVING] = 1  # it begins once it is decided that the promise still holds
        start(s, rule, row, lay_slices(s, event.places), now_s)
        s.i[row, col.LEAVING] = leaving
        _waits_since(s, row, event.since_s, now_s)
    elif kind == Kind.CHANGED and state == col.WAITING:
        rekey(s, rule, row, now_s)
    elif kind == Kind.CHANGED and state == col.ASIDE:  # it may ask for something else now
        s.x[col.UNSURE] = 2
    elif kind == Kind.CHANGED:  # nobody may trust any longer that those who run stay ahead
        s.x[col.EPOCH] += 1
        s.x[col.DIRTY] = 1


def _host_of(s: State, row: int) -> int:
    """Who was on all its GPUs before it; -1 if nobody was."""
    node, _, mask = places_of(s, row)[0]
    first = int(s.gpu[int(s.gpu_first[node]) + (mask & -mask).bit_length() - 1, 0])
    return first if first not in (-1, row) and places_of(s, first) == places_of(s, row) else -1


def _waits_since(s: State, row: int, since_s: float, now_s: float) -> None:
    """It began to wait a while ago."""
    if not math.isnan(since_s):
        s.f[row, col.WAITED] -= now_s - since_s
        s.f[row, col.SINCE] = since_s


def _free(s: State, event: Event) -> bool:
    """Whether GPUs that were promised are still as many as the job takes, and given to nobody else.

    Where jobs take turns there may be others, so many as share a GPU at most.
    """
    place = s.gpu.shape[1] - 1 if s.x[col.ROTATES] else 0
    if sum(gpus for _, gpus, _ in event.places) != s.i[event.at, col.GPUS]:
        return False
    for node, gpus, mask in event.places:
        first = int(s.gpu_first[node])
        cells = [first + k for k in range(int(s.node[node, col.NODE_SIZE])) if (mask >> k) & 1]
        if s.node[node, col.NODE_SHUT] or s.node[node, col.NODE_FREE if place == 0 else col.NODE_CAP] < gpus:
            return False
        users = s.gpu[cells]
        if (users[:, place] >= 0).any() or (s.i[users[users >= 0], col.STATE] == col.PINNED).any():
            return False
    return True
