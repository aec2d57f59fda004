"""Servers as Gandiva sees them: load, affinity to a GPU count, and where an arriving job goes."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from cotenant.core import columns as col
from cotenant.core.jit import entry
from cotenant.core.workload import Ints
from cotenant.placement.room import SharedRoom


def size_class(gpus: int) -> int:
    """GPU-count class of a job: the next power of two."""
    return 1 << max(gpus - 1, 0).bit_length()


@entry
def best_server(
    affinity: Ints, empty: Ints, slots: Ints, size: Ints, begin: int, end: int, wanted: int, gang: int
) -> int:
    """The least loaded of some servers of a class with free GPUs for a gang, else an empty one; -1: there is none."""
    for kind in (wanted, 0):
        best, least = -1, math.inf
        for node in range(begin, end):
            if affinity[node] == kind and size[node] > 0 and empty[node] >= gang:
                load = slots[node] / size[node]
                if load < least:
                    best, least = node, load
        if best >= 0:
            return best
    return -1


class Servers:
    """Slots and affinity per node. Jobs packed together take one set of slots; `packed` names the others.

    Counts are made once for all nodes, and anew only for those on which somebody sat down or got up.
    """

    def __init__(self, board: SharedRoom, packed: dict[int, int]) -> None:
        self.board, self.packed = board, packed
        nodes, seats = len(board.first) - 1, [len(gpus) for gpus in board.gpus_of.values()]
        gpus = np.fromiter(chain.from_iterable(board.gpus_of.values()), np.int64, sum(seats))
        classes = [0 if job in packed else size_class(size) for job, size in zip(board.gpus_of, seats, strict=True)]
        class_of = np.where(board.up[gpus], np.repeat(np.array(classes, np.int64), seats), 0)
        empty = board.up & (np.bincount(gpus, minlength=len(board.users)) == 0)
        self.size: Ints = np.bincount(board.node_of, board.up, nodes).astype(np.int64)
        self._slots: Ints = np.bincount(board.node_of[gpus], class_of > 0, nodes).astype(np.int64)
        self._empty: Ints = np.bincount(board.node_of, empty, nodes).astype(np.int64)
        self._affinity: Ints = np.zeros(nodes, np.int64)
        np.maximum.at(self._affinity, board.node_of[gpus], class_of)
        self.looks: Ints = np.zeros(nodes, np.int64)  # how often each was counted anew
        self._pools: list[int] = board.site.node[:, col.NODE_POOL].tolist()
        self._sizes: list[int] = self.size.tolist()
        most = max(self._sizes, default=0) + 1
        self._gaps = [[0] * most for _ in board.site.pool]  # by pool: how many nodes in use have 0, 1, ... free GPUs
        self._crowded: set[int] = set()
        self._sparse: dict[int, int] = {}  # node -> free GPUs
        for node, (slots, free) in enumerate(zip(self._slots.tolist(), self._empty.tolist(), strict=True)):
            self._list(node, slots, free, 1)
        self._jobs: dict[int, list[int]] = {}
        board.changed.clear()

    def _list(self, node: int, slots: int, empty: int, sign: int) -> None:
        """Count a node among those that are in use, sparse or crowded (1), or no longer (-1)."""
        size = self._sizes[node]
        if slots > 0:
            self._gaps[self._pools[node]][empty] += sign
            if sign < 0:
                self._sparse.pop(node, None)
                self._crowded.discard(node)
                return
            if 4 * empty >= 3 * size:
                self._sparse[node] = empty
            if slots > size > 0:
                self._crowded.add(node)

    def following(self, board: SharedRoom, packed: dict[int, int]) -> Servers:
        """The servers as they are now: these ones, where the room was kept."""
        if board is not self.board:
            return Servers(board, packed)
        for guest in self.packed.keys() ^ packed.keys():
            board.changed |= board.nodes_of(guest)
        self.packed = packed
        return self

    def pack(self, guest: int, host: int) -> None:
        """A job shares the slots of another from now on."""
        self.packed[guest] = host
        self.board.changed |= self.board.nodes_of(guest)

    def unpack(self, guest: int) -> None:
        """It does so no longer."""
        self.packed.pop(guest, None)
        self.board.changed |= self.board.nodes_of(guest)

    def _look(self) -> None:
        """Count anew where anything has changed."""
        board, packed = self.board, self.packed
        if not board.changed:
            return
        for node in board.changed:
            self._list(node, int(self._slots[node]), int(self._empty[node]), -1)
            slots = empty = largest = 0
            for gpu in board.gpus(node):
                jobs = board.users[gpu]
                empty += not jobs
                for job in jobs:
                    if job not in packed:
                        slots, largest = slots + 1, max(largest, len(board.gpus_of[job]))
            self._slots[node], self._empty[node] = slots, empty
            self._affinity[node] = size_class(largest) if largest else 0
            self._list(node, slots, empty, 1)
            self.looks[node] += 1
            self._jobs.pop(node, None)
        board.changed.clear()

    def jobs(self, node: int) -> list[int]:
        """Jobs with GPUs on a node, each once, without those packed onto others."""
        self._look()
        if node not in self._jobs:
            found = {job for gpu in self.board.gpus(node) for job in self.board.users[gpu]}
            self._jobs[node] = sorted(job for job in found if job not in self.packed)
        return list(self._jobs[node])

    def slots(self, node: int) -> int:
        """GPU slots handed out on a node, over-subscription counted."""
        self._look()
        return int(self._slots[node])

    def load(self, node: int) -> float:
        """Slots per GPU."""
        self._look()
        return float(self._slots[node] / self.size[node]) if self.size[node] else float("inf")

    def affinity(self, node: int) -> int:
        """The largest class of the jobs on a node; 0 when it is empty."""
        self._look()
        return int(self._affinity[node])

    def free(self, node: int) -> list[int]:
        """GPUs without any job."""
        self._look()
        return [gpu for gpu in self.board.gpus(node) if not self.board.users[gpu]] if self._empty[node] else []

    def free_count(self, node: int) -> int:
        """How many these are."""
        self._look()
        return int(self._empty[node])

    def crowded(self) -> list[int]:
        """Nodes on which jobs take turns."""
        self._look()
        return sorted(self._crowded)

    def is_crowded(self) -> bool:
        """Whether there are any."""
        self._look()
        return bool(self._crowded)

    def sparse(self) -> list[int]:
        """Nodes in use of which at least three quarters are free, the emptiest first."""
        self._look()
        return sorted(self._sparse, key=lambda node: (-self._sparse[node], node))

    def has_fuller(self, row: int, node: int) -> bool:
        """Whether there is any node that is `fuller`."""
        self._look()
        board, pool = self.board, self._pools[node]
        if not any(self._gaps[pool][board.gang(row) : int(self._empty[node])]):
            return False
        return bool(self.fuller(row, node)) if board.site.hosts_bind else self._may_have(row, pool)

    def _may_have(self, row: int, pool: int) -> bool:
        return self.board.parts(row) <= 1 and pool in self.board.pools(row)

    def fuller(self, row: int, node: int) -> list[int]:
        """Nodes in use in the pool of another one, with free GPUs for a job there but fewer of them, fullest first."""
        self._look()
        board, gang, empty = self.board, self.board.gang(row), self._empty
        pool = int(board.site.node[node, col.NODE_POOL])
        if not self._may_have(row, pool):
            return []
        lo, hi = board.nodes(pool).start, board.nodes(pool).stop
        here = empty[lo:hi]
        found = lo + np.flatnonzero((here >= gang) & (here < empty[node]) & (self._slots[lo:hi] > 0))
        best: list[int] = found[np.argsort(empty[found], kind="stable")].tolist()
        return [other for other in best if board.fed(row, other) >= gang]

    def could_hold(self, row: int, nodes: int) -> bool:
        """Whether so many nodes of its pool have enough GPUs that are free, or its own."""
        self._look()
        board, gpus = self.board, self.board.gpus_of[row]
        pool = board.nodes(int(board.pool_of[gpus[0]]))
        free = self._empty[pool.start : pool.stop].copy()
        np.add.at(free, board.node_of[gpus] - pool.start, 1)
        return int(np.sort(free)[len(free) - nodes :].sum()) >= min(len(gpus), board.asked(row))

    def free_elsewhere(self, homes: set[int]) -> int:
        """GPUs without any job on all other nodes."""
        self._look()
        return int(self._empty.sum() - self._empty[list(homes)].sum())

    def place(self, row: int, *, oversubscribe: bool) -> list[int]:
        """GPUs for an arriving job by the first rule that applies; [] means that it waits.

        1 the least loaded servers of its class with free GPUs, 2 empty servers, 3 any free GPUs, 4 (if allowed) the
        least loaded servers of its class, taking turns.
        """
        board, gang = self.board, self.board.gang(row)
        if board.parts(row):
            most = col.SLOTS if oversubscribe else 1
            used = np.array([len(users) for users in board.users], np.float64)
            return board.consolidated(row, used < most, used)
        self._look()
        for pool in board.pools(row):
            if not board.site.hosts_bind:
                here, counts = board.nodes(pool), (self._affinity, self._empty, self._slots, self.size)
                best = best_server(*counts, here.start, here.stop, size_class(gang), gang)
                if best >= 0:
                    return self.free(int(best))[:gang]
            nodes = self._nodes(pool)
            own, empty = nodes[self._affinity[nodes] == size_class(gang)], nodes[self._affinity[nodes] == 0]
            for group in (own, empty) if board.site.hosts_bind else ():
                fits = group[self._room(row, group) >= gang]
                if len(fits):
                    best = fits[np.argmin(self._slots[fits] / self.size[fits])]
                    return self.free(int(best))[:gang]
            if gang > self.size[nodes].max(initial=0):
                wide = empty[self._room(row, empty) == self.size[empty]]
                gpus = [gpu for node in wide.tolist() for gpu in self.free(node)]
                if len(gpus) >= gang:
                    return gpus[:gang]
            if self._empty[nodes].sum() >= gang:
                gpus = board.limit_by_hosts(row, [gpu for node in nodes.tolist() for gpu in self.free(node)])
                if len(gpus) >= gang:
                    return gpus[:gang]
        return self._take_turns(row) if oversubscribe else []

    def _nodes(self, pool: int) -> Ints:
        """Nodes of a pool with open GPUs."""
        nodes = self.board.nodes(pool)
        return nodes.start + np.flatnonzero(self.size[nodes.start : nodes.stop])

    def _room(self, row: int, nodes: Ints) -> Ints:
        """Free GPUs of nodes that these can feed."""
        if not self.board.site.hosts_bind:
            return self._empty[nodes]
        return np.minimum(self._empty[nodes], [self.board.fed(row, node) for node in nodes.tolist()])

    def _take_turns(self, row: int) -> list[int]:
        """GPUs with the fewest jobs on the least loaded server of its class; of any, for gangs larger than a server."""
        board, gang = self.board, self.board.gang(row)
        for pool in board.pools(row):
            nodes = self._nodes(pool)
            by_load = nodes[np.argsort(self._slots[nodes] / self.size[nodes], kind="stable")]
            for node in by_load[self._affinity[by_load] == size_class(gang)].tolist():
                gpus = self.least_used(row, node)
                if len(gpus) >= gang:
                    return gpus[:gang]
            if gang > self.size[nodes].max(initial=0):
                wide = [gpu for node in by_load.tolist() for gpu in self.least_used(row, node)]
                if len(wide) >= gang:
                    return wide[:gang]
        return []

    def least_used(self, row: int, node: int) -> list[int]:
        """GPUs of a node that can take one more, fewest jobs first."""
        open_ = [gpu for gpu in self.board.gpus(node) if len(self.board.users[gpu]) < col.SLOTS]
        open_.sort(key=lambda gpu: (len(self.board.users[gpu]), gpu))
        return open_[: self.board.fed(row, node)]
