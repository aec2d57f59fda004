"""The GPUs, cores and memory that a policy has not given away yet while it makes a plan.

Where a gang goes is decided by the rules of `cotenant.placement.fit`, the very ones of compiled orders. Pools, quotas,
named numbers of nodes, cores and host memory bind as everywhere. Nothing here touches the engine's tables; what comes
out are places for a `Plan`.

`Room` counts GPUs per node, from a cluster that nobody uses yet: `keep`, `find` and `claim` take, `release` undoes, and
whatever is taken inside `trial` is given back. `SharedRoom` knows each GPU and who sits on it now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core.jit import entry
from cotenant.core.plan import Places, Slices
from cotenant.core.state import IntMatrix
from cotenant.core.view import View
from cotenant.core.workload import Floats, Ints
from cotenant.placement.fit import IDLE_NOW, fed_by, gather, seek, usable

Mask = NDArray[np.bool_]


def as_places(gpus: Iterable[int], first: Sequence[int]) -> Places:
    """GPUs, numbered over all nodes, as places of a plan; `first` is the first GPU of each node."""
    masks: dict[int, int] = {}
    for gpu in gpus:
        node = bisect_right(first, gpu) - 1
        masks[node] = masks.get(node, 0) | 1 << (gpu - first[node])
    return tuple((node, mask.bit_count(), mask) for node, mask in sorted(masks.items()))


class Room:
    """What is free on each node; jobs are rows."""

    def __init__(self, view: View) -> None:
        self.view, self.site = view, view.site
        self.free: Ints = view.site.node[:, col.NODE_CAP].copy()
        self.left = int(self.free.sum())
        self.quota: Ints = view.site.quota[:, col.Q_LIMIT].copy()
        self._tables(view.site.host[:, [col.HOST_CPU_CAP, col.HOST_MEM_CAP]])

    def _tables(self, left: Floats) -> None:
        """What the rules of `fit` work on: open GPUs, cores and GiB left, and the place found."""
        site = self.site
        self._open = np.zeros((len(site.node), 4), np.int64)
        self._open_host = np.repeat(left, 2, axis=1)  # cores twice, then memory twice
        self.hosts = self._open_host[:, 1::2]
        self._pick = np.zeros((int(site.node[:, col.NODE_SIZE].sum()) + 1, 2), np.int64)
        self._fixed = site.host, site.node, site.pool
        self._kinds: list[int] | None = None  # in step with the view, once somebody has asked

    # -- jobs --------------------------------------------------------------------------------------------------

    def kind(self, row: int) -> int:
        """Kind of a job."""
        if self._kinds is None:
            self._kinds = self.view.kind.tolist()
        return self._kinds[self.view.at(row)]

    def tenant(self, row: int) -> int:
        """Tenant of a job."""
        return int(self.view.tenant[self.view.at(row)])

    def asked(self, row: int) -> int:
        """GPUs that a job asked for, whatever it sits on."""
        return int(self.view.asked_gpus[self.view.at(row)])

    def parts(self, row: int) -> int:
        """On how many nodes a job wants equal parts; 0: it leaves that open."""
        return int(self.view.parts[self.view.at(row)])

    def pools(self, row: int) -> list[int]:
        """Pools in which a job may run."""
        bits = int(self.view.open_pools[self.view.at(row)])
        return [p for p in range(len(self.site.pool)) if (bits >> p) & 1]

    def nodes(self, pool: int) -> range:
        """Nodes of a pool."""
        return range(int(self.site.pool[pool, col.POOL_LO]), int(self.site.pool[pool, col.POOL_HI]))

    def per_gpu(self, row: int) -> tuple[float, float]:
        """Cores and GiB of a job on each of its GPUs, the same at any size."""
        view, at = self.view, self.view.at(row)
        size = max(int(view.gpus[at]), 1)
        return float(view.cpus[at]) / size, float(view.mem_gib[at]) / size

    def fed(self, row: int, node: int) -> int:
        """For how many GPUs of a job a node still has the cores and memory."""
        most = int(self.site.node[node, col.NODE_SIZE])
        if self.site.hosts_bind:
            for each, left in zip(self.per_gpu(row), self.hosts[node].tolist(), strict=True):
                most = int(fed_by(max(left, 0.0), each, most))
        return most

    # -- rules -------------------------------------------------------------------------------------------------

    def _seek(
        self, row: int, gpus: int, pool: int, free: Ints, mode: int, *, apart: bool = False, spread: bool = False
    ) -> Slices:
        """Where a gang goes if so many GPUs of each node are free; () for nowhere.

        `apart` takes the smallest gaps, whatever the mode; with `spread` as few nodes as possible will do in the end.
        """
        parts, (cpus, mem) = self.parts(row), self.per_gpu(row)
        host, node, table = self._fixed
        self._open[:, IDLE_NOW] = free
        bound = self._open, self._open_host, host, node, table, pool, cpus, mem, IDLE_NOW, int(self.site.hosts_bind)
        largest = int(usable(*bound))
        lo, hi, count = self.nodes(pool).start, self.nodes(pool).stop, 0
        if parts and gpus % parts:
            return ()
        if apart and not parts:
            count = gather(self._open, self._pick, lo, hi, gpus, True)
        else:
            args = host, node, table, pool, gpus, parts, cpus, mem, mode, largest, False
            count = seek(self._open, self._pick, *args)
        if count == 0 and spread and not parts:
            count = gather(self._open, self._pick, lo, hi, gpus, False)
        found = [(int(n), int(taken)) for n, taken in self._pick[:count].tolist()]
        return tuple(sorted(found) if parts else found)

    # -- taking and giving back --------------------------------------------------------------------------------

    def find(
        self, row: int, gpus: int, *, apart: bool = False, near: Slices = (), spread: bool = True
    ) -> Slices | None:
        """A place for a gang in the first pool that has one, by its mode of placement and, with `spread`, anywhere.

        `apart` asks for the smallest gaps first, to leave whole nodes to others. Only the pool of `near` is looked at
        where that is given: gangs are not spread over GPU types.
        """
        if gpus > self._allowed(row) or gpus > self.left:
            return None
        pools = [int(self.site.node[near[0][0], col.NODE_POOL])] if near else self.pools(row)
        for pool in pools:
            mode = int(self.view.mode[self.view.at(row)])
            place = self._seek(row, gpus, pool, self.free, mode, apart=apart, spread=spread)
            if place:
                return self.claim(row, place)
        return None

    def keep(self, row: int) -> Slices | None:
        """The place where a running job sits, if nobody has taken any of it; None otherwise."""
        place = self.view.placement(row)
        if not place or sum(gpus for _, gpus in place) > self._allowed(row):
            return None
        if any(min(int(self.free[node]), self.fed(row, node)) < gpus for node, gpus in place):
            return None
        return self.claim(row, place)

    def room_on(self, row: int, node: int) -> int:
        """GPUs of one node that a job could have."""
        return max(min(int(self.free[node]), self.fed(row, node), self._allowed(row), self.left), 0)

    def claim(self, row: int, place: Slices) -> Slices:
        """Take a place."""
        each, total = self.per_gpu(row), sum(gpus for _, gpus in place)
        for node, gpus in place:
            self.free[node] -= gpus
            if self.site.hosts_bind:
                self.hosts[node] -= [gpus * need for need in each]
        self.left -= total
        self.quota[self.tenant(row)] -= total
        return place

    def release(self, row: int, place: Slices) -> None:
        """Undo a claim."""
        self.claim(row, tuple((node, -gpus) for node, gpus in place))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Whatever is claimed inside is given back at the end, to the last bit."""
        free, left, quota, hosts = self.free.copy(), self.left, self.quota.copy(), self.hosts.copy()
        try:
            yield
        finally:
            self.free, self.left, self.quota = free, left, quota
            self.hosts[:] = hosts

    def _allowed(self, row: int) -> int:
        return int(self.quota[self.tenant(row)])


class SharedRoom(Room):
    """GPUs with the jobs on them as they are now; GPUs are numbers over all nodes. Quotas are the policy's business.

    Whoever decides again and again keeps its room: `following` looks anew only at GPUs whose jobs are others.
    """

    def __init__(self, view: View) -> None:
        site = view.site
        self.view, self.site = view, site
        self._tables(site.host[:, [col.HOST_CPU_FREE, col.HOST_MEM_FREE]])
        self.first: list[int] = site.gpu_first.tolist()
        self.node_of: Ints = site.gpu_node
        self._nodes: list[int] = self.node_of.tolist()
        self.pool_of: Ints = site.node[self.node_of, col.NODE_POOL]
        self.type_of: Ints = site.node_type[self.node_of]
        self.up: NDArray[np.bool_] = site.open
        self.all_up = bool(self.up.all())
        self._open_on = _open_on(tuple(self.first), self.up.tobytes())
        self.users: list[list[int]] = [[] for _ in range(len(site.users))]
        self.gpus_of: dict[int, list[int]] = {}  # lists that nobody changes in place
        self.changed: set[int] = set()  # nodes on which somebody sat down or got up; emptied by who follows that
        self.reseated: set[int] = set()  # rows that sat down or got up since the decision before this one
        self.former: dict[int, list[int]] = {}  # of whoever was reseated since the last look at the view; [] for nobody
        self.new = True  # nobody has followed this room yet
        self._touched: set[int] = set()  # GPUs on which they did so since the last look at the view
        self._need: dict[int, float] = {}
        self._seat(site.users, np.flatnonzero((site.users >= 0).any(axis=1)).tolist())
        self.capacity: Floats = site.gpu_gib[self.type_of]

    def following(self, view: View) -> SharedRoom:
        """The room as it is now: this one brought up to date, or another where the cluster has changed."""
        before, site = self.site, view.site
        same = site.gpu_first is before.gpu_first and site.users.shape == before.users.shape and not site.hosts_bind
        if not same or (site.open is not before.open and (site.open != before.open).any()):
            return SharedRoom(view)
        others = np.empty(len(site.users), np.int64)
        count = list_changed(site.users, before.users, others)
        changed = self._touched.union(others[:count].tolist())
        self.view, self.site, self.new = view, site, False
        self._fixed = site.host, site.node, site.pool
        self._kinds, self._need = None, {}
        self.reseated, self._touched, self.former = set(), set(), {}
        self._seat(site.users, sorted(changed))
        return self

    def _seat(self, users: Ints, gpus: list[int]) -> None:
        """Let those sit on these GPUs whom the view shows there, and nobody else."""
        found: dict[int, list[int]] = {job: [] for gpu in gpus for job in self.users[gpu]}
        for gpu, jobs in zip(gpus, users[gpus].tolist(), strict=True):
            self.users[gpu] = [job for job in jobs if job >= 0]
            for job in self.users[gpu]:
                found.setdefault(job, []).append(gpu)
        anew = set(gpus)
        for job, here in found.items():
            seats = [gpu for gpu in self.gpus_of.get(job, ()) if gpu not in anew] + here
            if seats:
                self.gpus_of[job] = sorted(seats)
            else:
                del self.gpus_of[job]
        self.changed.update(self._nodes[gpu] for gpu in gpus)
        self.reseated.update(found)

    def need_gib(self, row: int) -> float:
        """Memory of a seated job on each of its GPUs."""
        return self._need[row] if row in self._need else float(self.view.gpu_gib[self.view.at(row)])

    def gang(self, row: int) -> int:
        """GPUs of a job: as many as it sits on here, or has asked for."""
        return len(self.gpus_of[row]) if row in self.gpus_of else self.asked(row)

    def gpus(self, node: int) -> list[int]:
        """GPUs of a node that may be given away."""
        return list(self._open_on[node])

    def free_gib(self, gpu: int) -> float:
        """Memory left on a GPU."""
        return float(self.capacity[gpu]) - sum(self.need_gib(job) for job in self.users[gpu])

    def limit_by_hosts(self, row: int, gpus: Iterable[int]) -> list[int]:
        """Of these GPUs, in order, those that their nodes can still feed."""
        left: dict[int, int] = {}
        kept = []
        for gpu in gpus:
            node = self._nodes[gpu]
            room = left.setdefault(node, self.fed(row, node))
            if room > 0:
                left[node] = room - 1
                kept.append(gpu)
        return kept

    def put(self, row: int, gpus: Iterable[int], need_gib: float) -> None:
        """Seat a job."""
        self.former.setdefault(row, [])
        self.gpus_of[row] = sorted(gpus)
        self._need[row] = need_gib
        for gpu in self.gpus_of[row]:
            self.users[gpu].append(row)
        self._feed(row, -1)

    def remove(self, row: int) -> None:
        """Let a job get up."""
        self._feed(row, 1)
        before = self.gpus_of.pop(row, [])
        self.former.setdefault(row, before)
        for gpu in before:
            self.users[gpu].remove(row)
        self._need.pop(row, None)

    def _feed(self, row: int, sign: int) -> None:
        """Give a job cores and memory (-1), or take them back (1), and note where that happened."""
        gpus = self.gpus_of.get(row, ())
        self.changed |= self.nodes_of(row)
        self.reseated.add(row)
        self._touched.update(gpus)
        if self.site.hosts_bind:
            each = self.per_gpu(row)
            for gpu in gpus:
                self.hosts[self._nodes[gpu]] += [sign * amount for amount in each]

    def resize(self, row: int, gpus: Iterable[int]) -> None:
        """Let a job sit on these GPUs instead; what it needs on each of them stays."""
        need = self.need_gib(row)
        self.remove(row)
        self.put(row, gpus, need)

    def nodes_of(self, row: int) -> set[int]:
        """Nodes on which a job sits."""
        return {self._nodes[gpu] for gpu in self.gpus_of.get(row, ())}

    def mates(self, row: int) -> set[int]:
        """Everybody who sits on any of its GPUs, itself included."""
        return {job for gpu in self.gpus_of[row] for job in self.users[gpu]}

    def places(self, row: int) -> Places:
        """The GPUs of a job as places of a plan."""
        return as_places(self.gpus_of[row], self.first)

    def consolidated(self, row: int, usable: Sequence[bool] | Mask, prefer: Floats | None = None) -> list[int]:
        """GPUs for a job on as few nodes as it needs, among usable ones; [] if there are none.

        On a node the GPUs with the lowest `prefer` come first, and of several nodes that hold the whole gang those
        where that is lowest for all of it; the rest is best fit, as always. Gangs larger than a node need not wait for
        whole ones.
        """
        rank = np.zeros(len(self.users)) if prefer is None else prefer
        gang, open_ = self.gang(row), np.flatnonzero(np.asarray(usable, bool) & self.up)
        for pool in self.pools(row):
            nodes = self.nodes(pool)
            here = open_[(open_ >= self.first[nodes.start]) & (open_ < self.first[nodes.stop])]
            here = here[np.lexsort((here, rank[here], self.node_of[here]))]
            begin = np.searchsorted(self.node_of[here], np.arange(len(self.site.node) + 1))
            free = np.diff(begin).astype(np.int64)
            for node in np.flatnonzero(free).tolist() if self.site.hosts_bind else ():
                free[node] = min(int(free[node]), self.fed(row, node))
            holds = np.flatnonzero(free >= gang)
            if len(holds) and prefer is not None and not self.parts(row):
                price = rank[here[begin[holds][:, None] + np.arange(gang)]].sum(axis=1)
                kept, free = free[holds[price == price.min()]], np.zeros_like(free)
                free[holds[price == price.min()]] = kept
            wide = gang > int(self.site.pool[pool, col.POOL_LARGEST])
            place = self._seek(row, gang, pool, free, col.CONSOLIDATED, spread=wide)
            if place:
                return [int(gpu) for node, taken in place for gpu in here[begin[node] : begin[node] + taken]]
        return []


@entry
def list_changed(users: IntMatrix, before: IntMatrix, out: Ints) -> int:
    """Write the GPUs on which others sit than before; how many."""
    count = 0
    for gpu in range(users.shape[0]):
        same = True
        for place in range(users.shape[1]):
            same = same and users[gpu, place] == before[gpu, place]
        if not same:
            out[count] = gpu
            count += 1
    return count


@lru_cache(maxsize=16)
def _open_on(first: tuple[int, ...], up: bytes) -> list[list[int]]:
    """GPUs of each node that may be given away; a byte says so of each."""
    return [[gpu for gpu in range(a, b) if up[gpu]] for a, b in pairwise(first)]
