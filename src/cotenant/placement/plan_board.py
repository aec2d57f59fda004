"""GPUs that a plan has not given away yet, for policies that decide places themselves.

The same rules as the compiled placement (`cotenant.placement.fit`): best fit on one node, else whole nodes and the
emptiest other one for the rest, else, where a job may be spread, as few nodes as possible. Pools, quotas, named numbers
of nodes, cores and memory bind as everywhere.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from cotenant.core import columns as col
from cotenant.core.plan import Slices
from cotenant.core.view import View


class Board:
    """Free GPUs per node while a plan is made. `keep` and `find` claim what they give."""

    def __init__(self, view: View) -> None:
        site = view.site
        self.view, self.site = view, site
        self.free = np.array(site.node[:, col.NODE_CAP], np.int64)
        self.left = int(self.free.sum())
        self._quota = site.quota[:, col.Q_LIMIT].copy()
        self._hosts = site.hosts_bind
        if self._hosts:
            self._cpu = np.array(site.host[:, col.HOST_CPU_CAP])
            self._mem = np.array(site.host[:, col.HOST_MEM_CAP])

    def copy(self) -> Board:
        """Another board in the same state, to try things on."""
        other = copy(self)
        other.free, other._quota = self.free.copy(), self._quota.copy()
        if self._hosts:
            other._cpu, other._mem = self._cpu.copy(), self._mem.copy()
        return other

    def keep(self, row: int) -> Slices | None:
        """The place where a running job sits, if nobody has taken any of it; None otherwise."""
        place = self.view.placement(row)
        if not place or sum(gpus for _, gpus in place) > self._allowed(row):
            return None
        if any(self._usable(row, node) < gpus for node, gpus in place):
            return None
        return self.claim(row, place)

    def find(
        self, row: int, gpus: int, *, spread: bool = True, apart: bool = False, near: Slices = ()
    ) -> Slices | None:
        """A place for a gang in the first pool that has one; with `spread` any GPUs will do in the end.

        `apart` asks for the smallest gaps first, to leave whole nodes to others. Only the pool of `near` is looked at
        where that is given: gangs are not spread over GPU types.
        """
        if gpus > self._allowed(row) or gpus > self.left:
            return None
        view, at = self.view, self.view.at(row)
        pools = int(view.open_pools[at]) if not near else 1 << int(self.site.node[near[0][0], col.NODE_POOL])
        for p in range(len(self.site.pool)):
            if not pools >> p & 1:
                continue
            lo, hi = int(self.site.pool[p, col.POOL_LO]), int(self.site.pool[p, col.POOL_HI])
            place = self._in_pool(row, gpus, lo, hi, int(view.parts[at]), int(view.mode[at]), spread, apart)
            if place is not None:
                return self.claim(row, place)
        return None

    def room_on(self, row: int, node: int) -> int:
        """GPUs of one node that a job could have."""
        return max(min(self._usable(row, node), self._allowed(row), self.left), 0)

    def claim(self, row: int, place: Slices) -> Slices:
        """Take a place off the board."""
        view, at = self.view, self.view.at(row)
        total = sum(gpus for _, gpus in place)
        for node, gpus in place:
            self.free[node] -= gpus
            if self._hosts:
                share = gpus / max(int(view.gpus[at]), 1)
                self._cpu[node] -= share * view.cpus[at]
                self._mem[node] -= share * view.mem_gib[at]
        self.left -= total
        self._quota[view.tenant[at]] -= total
        return place

    def release(self, row: int, place: Slices) -> None:
        """Put a place back that was claimed."""
        self.claim(row, tuple((node, -gpus) for node, gpus in place))

    def _allowed(self, row: int) -> int:
        return int(self._quota[self.view.tenant[self.view.at(row)]])

    def _usable(self, row: int, node: int) -> int:
        return int(self._room(row, node, node + 1)[0])

    def _room(self, row: int, lo: int, hi: int) -> np.ndarray:
        """GPUs of each node that this job could use: free, and fed by cores and memory."""
        room = self.free[lo:hi].copy()
        if not self._hosts:
            return room
        view, at = self.view, self.view.at(row)
        asked = max(int(view.gpus[at]), 1)
        for need, left in ((view.cpus[at], self._cpu), (view.mem_gib[at], self._mem)):
            if need > 0:
                room = np.minimum(room, np.floor(left[lo:hi] / (need / asked) + 1e-9)).astype(np.int64)
        return room

    def _in_pool(
        self, row: int, gpus: int, lo: int, hi: int, parts: int, mode: int, spread: bool, apart: bool
    ) -> Slices | None:
        room = self._room(row, lo, hi)
        if parts > 0:
            fits = np.flatnonzero(room >= gpus // parts)
            if gpus % parts or len(fits) < parts:
                return None
            best = fits[np.argsort(room[fits], kind="stable")][:parts]
            return tuple((lo + int(n), gpus // parts) for n in np.sort(best))
        if apart:
            return _gather(room, gpus, lo, fullest=True) if int(room.sum()) >= gpus else None
        fits = np.flatnonzero(room >= gpus)
        if len(fits) and mode != col.SPREAD:
            return ((lo + int(fits[np.argmin(room[fits])]), gpus),)
        if int(room.sum()) < gpus:
            return None
        largest = max(int(self.site.node[lo:hi, col.NODE_SIZE].max(initial=1)), 1)
        if gpus > largest and mode != col.SPREAD:
            place = _whole_nodes(room, gpus, largest, lo)
            if place is not None:
                return place
        return _gather(room, gpus, lo) if spread or mode != col.CONSOLIDATED or gpus > largest else None


def _whole_nodes(room: np.ndarray, gpus: int, largest: int, lo: int) -> Slices | None:
    """Whole empty nodes in order, the remainder on the fullest node that holds it."""
    needed, rest = divmod(gpus, largest)
    empty = np.flatnonzero(room == largest)
    if len(empty) < needed:
        return None
    place = [(lo + int(n), largest) for n in empty[:needed]]
    if rest:
        others = np.setdiff1d(np.flatnonzero(room >= rest), empty[:needed])
        if not len(others):
            return None
        place.append((lo + int(others[np.argmin(room[others])]), rest))
    return tuple(place)


def _gather(room: np.ndarray, gpus: int, lo: int, fullest: bool = False) -> Slices | None:
    """GPUs from the emptiest nodes first (few nodes), or from the fullest (small gaps)."""
    place = []
    for n in np.argsort(room if fullest else -room, kind="stable").tolist():
        take = min(int(room[n]), gpus)
        if take > 0:
            place.append((lo + n, take))
            gpus -= take
        if gpus == 0:
            return tuple(place)
    return None
