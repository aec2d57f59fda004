"""Room in leases: how many GPUs each slot still has for gangs of each size.

Gangs up to a node are reserved as powers of two, larger ones as whole nodes (SoCC'21), and a node counts as blocks of
such sizes. A set of gangs then fits onto the nodes, largest first, exactly if for every size of block the gangs of at
least that size need no more than the blocks of that size hold together. So a room is a matrix, one line per size of
block and one column per slot, and a gang takes from the lines of all sizes up to its own. Where all nodes are alike
and nobody is bound to one of them the first line says it all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotenant.core.plan import Slices
from cotenant.core.state import IntMatrix
from cotenant.core.workload import Ints
from cotenant.policies.chronus.leases import whole_share


@dataclass(frozen=True, slots=True)
class Blocks:
    """Nodes, by the GPUs that may be planned with, as blocks. `released`: gangs of several nodes as they are."""

    nodes: Ints
    node_gpus: int  # of the largest node
    released: bool = False

    @property
    def sizes(self) -> Ints:
        """Powers of two up to a node, and the node itself where it is none."""
        powers = 2 ** np.arange(int(np.log2(self.node_gpus)) + 1)
        return powers if powers[-1] == self.node_gpus else np.append(powers, self.node_gpus)

    @property
    def alike(self) -> bool:
        """Whether one line is enough: all nodes that are up are the same power of two."""
        up = self.nodes[self.nodes > 0]
        return self.released or bool((up == self.node_gpus).all() and not self.node_gpus & (self.node_gpus - 1))

    def reserved(self, gpus: Ints) -> Ints:
        """GPUs to reserve for gangs."""
        asked, sizes = np.asarray(gpus, np.int64), self.sizes
        if self.released:
            return whole_share(asked, self.node_gpus)
        within = sizes[np.minimum(np.searchsorted(sizes, asked), len(sizes) - 1)]
        return np.where(asked <= self.node_gpus, within, -(-asked // self.node_gpus) * self.node_gpus)

    def level(self, reserved: Ints) -> Ints:
        """The line of the largest block that a gang needs."""
        return np.searchsorted(self.sizes, np.minimum(reserved, self.node_gpus), side="right") - 1

    def lines(self, free: IntMatrix) -> IntMatrix:
        """Nodes x slots of free GPUs as a room."""
        sizes = self.sizes[:, None, None]
        return np.asarray((free[None] // sizes * sizes).sum(axis=1))


@dataclass(slots=True)
class Slots:
    """What is left in the slots from lease `first` on, on each node for gangs bound to it, and in blocks for others."""

    blocks: Blocks
    first: int
    free: IntMatrix  # nodes x slots
    used: IntMatrix  # lines of a room x slots: what gangs that are bound to no node have
    bound: bool = False  # whether anybody is bound to a node

    @classmethod
    def empty(cls, blocks: Blocks, first: int, length: int) -> Slots:
        """Nobody has anything."""
        free = np.repeat(np.maximum(blocks.nodes, 0)[:, None], length, axis=1)
        return cls(blocks, first, free, np.zeros((len(blocks.sizes), length), np.int64))

    def __len__(self) -> int:
        return self.free.shape[1]

    def bind(self, place: Slices, leases: Ints) -> None:
        """GPUs of these nodes are gone in these leases."""
        slots, self.bound = self._within(leases), True
        for node, gpus in place:
            self.free[node, slots] -= gpus

    def take(self, reserved: int, leases: Ints) -> None:
        """A gang has these leases, wherever."""
        self.used[: int(self.blocks.level(np.array(reserved))) + 1, self._within(leases)] += reserved

    def _within(self, leases: Ints) -> Ints:
        return leases[(leases >= self.first) & (leases < self.first + len(self))] - self.first

    def left(self) -> IntMatrix:
        """The room for gangs that are not bound."""
        if self.blocks.alike and not self.bound:
            return np.asarray(int(self.blocks.nodes.sum()) - self.used[:1])
        return np.asarray(self.blocks.lines(np.maximum(self.free, 0)) - self.used)

    def allows(self, place: Slices, begin: int, end: int) -> bool:
        """Whether a gang may be bound to a place in slots [begin, end): everybody else still fits."""
        free = self.free[:, begin:end].copy()
        for node, gpus in place:
            free[node] -= gpus
            if (free[node] < 0).any():
                return False
        taken = self.used[:, begin:end]
        return not taken.any() or bool((self.blocks.lines(np.maximum(free, 0)) >= taken).all())


def open_slots(room: IntMatrix, gpus: int, level: int, slots: int) -> Ints:
    """Of the first slots of a room those that hold one more such gang."""
    fits = room[0, :slots] >= gpus
    for line in range(1, min(level + 1, len(room))):
        fits &= room[line, :slots] >= gpus
    return np.flatnonzero(fits)
