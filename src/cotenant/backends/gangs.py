"""Gangs over several machines: who is who, and where they meet.

Each machine runs the job's command once. Its rank is its place among the nodes of the launch; the first one is the
master, at whose address and port the others find it, as `torchrun` and PyTorch's `env://` expect:

    torchrun --nnodes $COTENANT_NODES --node-rank $COTENANT_NODE_RANK --nproc-per-node $COTENANT_NODE_GPUS
             --master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py

A job on one machine needs none of this and sees none of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cotenant.backends.base import LaunchSpec, NodeInfo

_PORTS = range(12000, 32000)  # below those that Linux gives to connections by itself


@dataclass(frozen=True, slots=True)
class Rank:
    """One machine's part in a gang. `first_gpu` is how many GPUs the ranks before it have."""

    rank: int
    ranks: int
    gpus: tuple[tuple[str, tuple[int, ...]], ...]
    first_gpu: int
    master_address: str
    master_port: int

    def environment(self) -> dict[str, str]:
        """What the command is told on this machine; nothing where there is no other."""
        if self.ranks == 1:
            return {}
        return {
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": str(self.master_port),
            "COTENANT_NODES": str(self.ranks),
            "COTENANT_NODE_RANK": str(self.rank),
            "COTENANT_NODE_GPUS": str(sum(len(indexes) for _, indexes in self.gpus)),
            "COTENANT_FIRST_GPU": str(self.first_gpu),
        }


def ranks(spec: LaunchSpec, nodes: Mapping[str, NodeInfo], port: int | None = None) -> tuple[Rank, ...]:
    """The machines of a launch in the order of their ranks; one without GPUs is on one machine.

    Unless a backend has found a free port, it follows from the key: all machines know it at once, also after a crash.
    """
    machines: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for name, indexes in spec.gpus:
        machines.setdefault(nodes[name].address or name, []).append((name, tuple(indexes)))
    machines = machines or {"": []}
    port = port or _PORTS[zlib.crc32(spec.key.encode()) % len(_PORTS)]
    found, before = [], 0
    for rank, gpus in enumerate(machines.values()):
        found.append(Rank(rank, len(machines), tuple(gpus), before, next(iter(machines)), port))
        before += sum(len(indexes) for _, indexes in gpus)
    return tuple(found)
