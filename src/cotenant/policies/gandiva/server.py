"""Servers as Gandiva sees them: load, affinity to a GPU count, and where an arriving job goes."""

from __future__ import annotations

import numpy as np

from cotenant.core import columns as col
from cotenant.placement.room import SharedRoom


def size_class(gpus: int) -> int:
    """GPU-count class of a job: the next power of two."""
    return 1 << max(gpus - 1, 0).bit_length()


class Servers:
    """Slots and affinity per node. Jobs packed together take one set of slots; `packed` names the others."""

    def __init__(self, board: SharedRoom, packed: dict[int, int]) -> None:
        self.board, self.packed = board, packed

    def jobs(self, node: int) -> list[int]:
        """Jobs with GPUs on a node, each once, without those packed onto others."""
        found = {job for gpu in self.board.gpus(node) for job in self.board.users[gpu]}
        return sorted(job for job in found if job not in self.packed)

    def slots(self, node: int) -> int:
        """GPU slots handed out on a node, over-subscription counted."""
        return sum(sum(1 for job in self.board.users[gpu] if job not in self.packed) for gpu in self.board.gpus(node))

    def load(self, node: int) -> float:
        """Slots per GPU."""
        size = len(self.board.gpus(node))
        return self.slots(node) / size if size else float("inf")

    def affinity(self, node: int) -> int:
        """The largest class of the jobs on a node; 0 when it is empty."""
        return max((size_class(self.board.gang(job)) for job in self.jobs(node)), default=0)

    def free(self, node: int) -> list[int]:
        """GPUs without any job."""
        return [gpu for gpu in self.board.gpus(node) if not self.board.users[gpu]]

    def place(self, row: int, *, oversubscribe: bool) -> list[int]:
        """GPUs for an arriving job by the first rule that applies; [] means that it waits.

        1 the least loaded servers of its class with free GPUs, 2 empty servers, 3 any free GPUs, 4 (if allowed) the
        least loaded servers of its class, taking turns.
        """
        board, gang = self.board, self.board.gang(row)
        if board.parts(row):
            most = col.SLOTS if oversubscribe else 1
            used = np.array([len(users) for users in board.users], np.float64)
            return board.consolidated(row, [len(users) < most for users in board.users], used)
        for pool in board.pools(row):
            nodes = [node for node in board.nodes(pool) if board.gpus(node)]
            own = [node for node in nodes if self.affinity(node) == size_class(gang)]
            empty = [node for node in nodes if self.affinity(node) == 0]
            for group in (own, empty):
                fits = [node for node in group if self._room(row, node) >= gang]
                if fits:
                    best = min(fits, key=lambda node: (self.load(node), node))
                    return self.free(best)[:gang]
            wide = [node for node in empty if self._room(row, node) == len(board.gpus(node))]
            if gang > max((len(board.gpus(node)) for node in nodes), default=0):
                gpus = [gpu for node in wide for gpu in self.free(node)]
                if len(gpus) >= gang:
                    return gpus[:gang]
            gpus = board.limit_by_hosts(row, [gpu for node in nodes for gpu in self.free(node)])
            if len(gpus) >= gang:
                return gpus[:gang]
        return self._take_turns(row) if oversubscribe else []

    def _room(self, row: int, node: int) -> int:
        return min(len(self.free(node)), self.board.fed(row, node))

    def _take_turns(self, row: int) -> list[int]:
        """GPUs with the fewest jobs on the least loaded server of its class; of any, for gangs larger than a server."""
        board, gang = self.board, self.board.gang(row)
        for pool in board.pools(row):
            nodes = [node for node in board.nodes(pool) if board.gpus(node)]
            own = [node for node in nodes if self.affinity(node) == size_class(gang)]
            for node in sorted(own, key=lambda node: (self.load(node), node)):
                gpus = self.least_used(row, node)
                if len(gpus) >= gang:
                    return gpus[:gang]
            wide = [
                gpu for node in sorted(nodes, key=lambda n: (self.load(n), n)) for gpu in self.least_used(row, node)
            ]
            largest = max((len(board.gpus(node)) for node in nodes), default=0)
            if gang > largest and len(wide) >= gang:
                return wide[:gang]
        return []

    def least_used(self, row: int, node: int) -> list[int]:
        """GPUs of a node that can take one more, fewest jobs first."""
        open_ = [gpu for gpu in self.board.gpus(node) if len(self.board.users[gpu]) < col.SLOTS]
        open_.sort(key=lambda gpu: (len(self.board.users[gpu]), gpu))
        return open_[: self.board.fed(row, node)]
