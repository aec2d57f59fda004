"""Leases in a row on named nodes, for jobs that cannot be stopped and moved without losing what they have done.

Who cannot save, may not be stopped, or can use some of the nodes only, is promised one window: so many leases one
after the other, and the GPUs of certain nodes in them. It is not stopped before its end then.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Slices
from cotenant.core.view import View
from cotenant.core.workload import Ints
from cotenant.placement.room import Room
from cotenant.policies.chronus.rooms import Slots

_TRIALS = 400  # windows that are looked at for one answer


def is_bound(view: View, which: Ints) -> np.ndarray:
    """Whether each job can be promised a window only: it is not free to stop and to go on anywhere."""
    bonds, site = view.facts.bonds, view.site
    up = view.pool_gpus > 0
    bound = (view.rates[which][:, up] <= 0).any(axis=1) | (view.parts[which] > 0)
    bound |= site.quota[view.tenant[which], col.Q_GUARANTEED] < view.cluster_gpus
    if site.hosts_bind:
        bound |= (view.cpus[which] > 0) | (view.mem_gib[which] > 0)
    return bound if bonds is None else bound | bonds.loses[view.rows[which]]


def slowest(view: View, which: Ints) -> np.ndarray:
    """Seconds of work per second that each job makes at least, wherever its GPUs are."""
    rates = view.rates[which][:, view.pool_gpus > 0]
    return np.asarray(np.where(rates > 0, rates, np.inf).min(axis=1, initial=np.inf))


def find_window(
    view: View, slots: Slots, row: int, need: int, end: int, free: Ints, beside: Iterable[tuple[int, Slices, Ints]] = (),
    *, latest: bool = True,
) -> tuple[int, Slices] | None:  # fmt: skip
    """Where a window of `need` slots begins that ends by slot `end`, and on which nodes; None if there is none.

    `free` is what the tenant may have in each slot; `beside` are windows of others as (row, place, leases).
    """
    gpus = int(view.gpus[view.at(row)])
    end = min(end, len(slots))
    open_ = (np.maximum(slots.free[:, :end], 0).sum(axis=0) >= gpus) & (free[:end] >= gpus)
    closed = np.concatenate([[0], np.cumsum(~open_)])
    begins = np.flatnonzero(closed[need:] == closed[: max(len(closed) - need, 0)]) if end >= need else np.zeros(0, int)
    for begin in (begins[::-1] if latest else begins)[:_TRIALS].tolist():
        place = _place(view, slots, row, gpus, begin, begin + need, beside)
        if place is not None:
            return begin, place
    return None


def _place(
    view: View, slots: Slots, row: int, gpus: int, begin: int, end: int, beside: Iterable[tuple[int, Slices, Ints]]
) -> Slices | None:
    """The nodes for a gang in these slots, as few as it needs."""
    board = Room(view)
    if view.site.hosts_bind:
        for other, place, leases in beside:
            if ((leases >= slots.first + begin) & (leases < slots.first + end)).any():
                board.claim(other, place)
    board.free = np.maximum(slots.free[:, begin:end].min(axis=1), 0)
    board.left = int(board.free.sum())
    board.quota[board.tenant(row)] = board.left
    place = board.find(row, gpus)
    if place is None or len(place) > max(board.parts(row), -(-gpus // view.site.largest_node)):
        return None
    return place if slots.allows(place, begin, end) else None
