"""What is known to be wrong with nodes and GPUs, as the journal says: nothing starts there, and jobs may have to leave.

A fault is known by its place and kind. What an operator has excused does not count again in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cotenant.core.node_faults import WHOLE_NODE, NodeFault
from cotenant.service.store.job import Gpus

FaultKey = tuple[str, int, str]
"""Node, GPU (`WHOLE_NODE` for all of it), kind."""


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A fault of a node, and since when."""

    node: str
    gpu: int
    kind: str
    why: str
    leave: bool
    passes: bool
    since_s: float

    @property
    def key(self) -> FaultKey:
        """By which it is known."""
        return self.node, self.gpu, self.kind

    @property
    def words(self) -> str:
        """For people."""
        return f"node {self.node}{f' GPU {self.gpu}' * (self.gpu != WHOLE_NODE)}: {self.why}"

    def as_dict(self) -> dict[str, Any]:
        """For the journal's snapshot, and for people."""
        return asdict(self)


def told(node: str, fault: NodeFault) -> dict[str, Any]:
    """A fault as a record's data."""
    return {"node": node, **asdict(fault)}


class BookHealth:
    """Part of the book: changed by records only."""

    def __init__(self, rows: Mapping[str, Any] | None = None) -> None:
        rows = rows or {}
        self.faults: dict[FaultKey, KnownFault] = {}
        self.excused: dict[FaultKey, tuple[str, float]] = {}  # in which words, and when
        for row in rows.get("faults", ()):
            self._keep(KnownFault(**row))
        for node, gpu, kind, why, at_s in rows.get("excused", ()):
            self.excused[node, gpu, kind] = why, at_s

    def _keep(self, fault: KnownFault) -> None:
        self.faults = {**self.faults, fault.key: fault}  # replaced and not changed: pictures of the book have it too

    def add(self, data: Mapping[str, Any], now_s: float) -> None:
        """A record `unhealthy`."""
        names = ("node", "gpu", "kind", "why", "leave", "passes")
        self._keep(KnownFault(**{name: data[name] for name in names}, since_s=now_s))
        self.excused.pop((data["node"], data["gpu"], data["kind"]), None)

    def end(self, data: Mapping[str, Any], now_s: float) -> None:
        """A record `healthy`: it has passed, or somebody has excused it."""
        key = data["node"], data["gpu"], data["kind"]
        fault = self.faults.get(key)
        self.faults = {name: one for name, one in self.faults.items() if name != key}
        if data.get("by"):
            self.excused[key] = (fault.why if fault is not None else ""), now_s
        else:
            self.excused.pop(key, None)

    def rows(self) -> dict[str, Any]:
        """For the snapshot."""
        excused = [[*key, *what] for key, what in self.excused.items()]
        return {"faults": [fault.as_dict() for fault in self.faults.values()], "excused": excused}

    # -- what follows ----------------------------------------------------------------------------------------------

    def of(self, node: str) -> list[KnownFault]:
        """What is wrong with a node and its GPUs."""
        return [fault for fault in self.faults.values() if fault.node == node]

    def out(self, node: str, used: Iterable[int]) -> tuple[int, ...]:
        """GPUs of a node that are left out of everything: those with a fault, once nobody is on them."""
        gpus = {fault.gpu for fault in self.of(node)} - {WHOLE_NODE}
        return tuple(sorted(gpus - set(used))) if gpus else ()

    def must_leave(self, gpus: Gpus) -> str:
        """Why whoever has these GPUs has to go elsewhere; empty where it need not."""
        if not self.faults:
            return ""
        has = {(node, index) for node, indexes in gpus for index in (WHOLE_NODE, *indexes)}
        return next((fault.words for key, fault in self.faults.items() if fault.leave and key[:2] in has), "")
