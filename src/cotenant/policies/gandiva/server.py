"""Servers as Gandiva sees them: load, affinity to a GPU count, and where an arriving job goes."""

from __future__ import annotations

from itertools import chain

import numpy as np

from cotenant.core import columns as col
from cotenant.core.workload import Ints
from cotenant.placement.room import SharedRoom


def size_class(gpus: int) -> int:
    """GPU-count class of a job: the next power of two."""
    return 1 << max(gpus - 1, 0).bit_length()


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
        board.changed.clear()

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
        for node in self.board.changed:
            users = [self.board.users[gpu] for gpu in self.board.gpus(node)]
            own = [job for jobs in users for job in jobs if job not in self.packed]
            self._slots[node], self._empty[node] = len(own), sum(1 for jobs in users if not jobs)
            self._affinity[node] = max((size_class(self.board.gang(job)) for job in set(own)), default=0)
        self.board.changed.clear()

    def jobs(self, node: int) -> list[int]:
        """Jobs with GPUs on a node, each once, without those packed onto others."""
        found = {job for gpu in self.board.gpus(node) for job in self.board.users[gpu]}
        return sorted(job for job in found if job not in self.packed)

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
        return [int(node) for node in np.flatnonzero((self._slots > self.size) & (self.size > 0))]

    def sparse(self) -> list[int]:
        """Nodes in use of which at least three quarters are free."""
        self._look()
        return [int(node) for node in np.flatnonzero((self._slots > 0) & (4 * self._empty >= 3 * self.size))]

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
            nodes = self._nodes(pool)
            own, empty = nodes[self._affinity[nodes] == size_class(gang)], nodes[self._affinity[nodes] == 0]
            for group in (own, empty):
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
