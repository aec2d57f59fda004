"""Slurm's nodes as nodes of ours: those of one partition, with what each has and whether it takes jobs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotenant.backends.base import NodeInfo
from cotenant.backends.slurm.commands import Slurm
from cotenant.core.errors import InputError, unknown
from cotenant.core.node_faults import NodeFault

_GPU = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)")
_TAKES = frozenset(("IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "CLOUD", "POWERED_DOWN", "POWERING_UP"))
_AILING = ("DOWN", "DRAIN", "FAIL", "ERROR")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node: as we call it, where it is, and whether nobody has anything on it."""

    info: NodeInfo
    address: str
    idle: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """The partition that jobs go to, and how long they may run there at most (0: for ever)."""

    name: str
    most_s: float


def partition_of(found: Sequence[Mapping[str, str]], name: str) -> Partition:
    """The one of this name, or Slurm's default one."""
    names = [one["PartitionName"] for one in found]
    chosen = next(
        (one for one in found if one["PartitionName"] == name or (not name and one["Default"] == "YES")), None
    )
    if chosen is None and name:
        raise unknown("partition", name, names)
    if chosen is None:
        raise InputError(f"backend 'slurm': there is no default partition: choose one, partition={'|'.join(names)}")
    return Partition(chosen["PartitionName"], seconds_of(chosen.get("MaxTime", "")))


def seconds_of(text: str) -> float:
    """A time limit as Slurm writes it, `[days-][hours:]minutes:seconds`; 0 where there is none."""
    match = _TIME.fullmatch(text)
    if match is None:
        return 0.0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def read_node(fields: Mapping[str, str]) -> SlurmNode:
    """One line of `scontrol show node -o`. A node with GPUs of several types counts as one of its first type."""
    gpus = [(kind, int(count)) for kind, count in _GPU.findall(fields.get("Gres", ""))]
    count = sum(number for _, number in gpus)
    kind = next((name for name, _ in gpus if name), "gpu") if count else "cpu"
    states = set(re.split(r"[+]", fields.get("State", "UNKNOWN").rstrip("*~#!%$@^-")))
    up = states <= _TAKES and not fields.get("State", "").endswith("*")
    idle = states <= {"IDLE", "CLOUD", "POWERED_DOWN", "PLANNED"} and up
    mem_gib = float(fields.get("RealMemory", "0")) / 1024
    info = NodeInfo(
        fields["NodeName"], kind, count, int(fields.get("CPUTot", "1")), mem_gib, state="up" if up else "down",
        faults=_faults(fields.get("State", ""), fields.get("Reason", "")),
    )  # fmt: skip
    return SlurmNode(info, fields.get("NodeAddr", "") or fields["NodeName"], idle)


def _faults(state: str, reason: str) -> tuple[NodeFault, ...]:
    """What Slurm holds against a node. One that it drains or fails is to be left; one that is down already was."""
    bad = [word for word in re.findall(r"[A-Z_]+", state) if word.startswith(_AILING)]
    if not bad:
        return ()
    return (NodeFault("slurm", f"Slurm says {'+'.join(bad)}: {reason or 'without a reason'}", leave="DOWN" not in bad),)


class NodeList:
    """The nodes of a partition, asked for at most every so often; as they were last known while nobody answers."""

    def __init__(self, slurm: Slurm, partition: str, every_s: float) -> None:
        self._slurm, self._every_s = slurm, every_s
        self.partition = partition_of(slurm.partitions(), partition)
        self._lock, self._asked_s = threading.Lock(), -1e9
        self._known: dict[str, SlurmNode] = {}

    def all(self, fresh: bool = False) -> dict[str, SlurmNode]:
        """By name."""
        with self._lock:
            if fresh or time.monotonic() - self._asked_s > self._every_s:
                mine = [
                    one for one in self._slurm.nodes() if self.partition.name in one.get("Partitions", "").split(",")
                ]
                self._known = {one["NodeName"]: read_node(one) for one in mine}
                self._asked_s = time.monotonic()
            return self._known

    def known(self) -> dict[str, SlurmNode]:
        """As last heard, without asking."""
        return self._known

    def stale(self) -> None:
        """Something happened: ask at the next chance."""
        self._asked_s = -1e9
