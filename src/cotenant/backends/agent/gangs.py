"""Gangs over several agents: where each part is, and what the parts together are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cotenant.backends.base import LaunchSpec, NodeInfo, Observed, State
from cotenant.backends.gangs import Rank, ranks

Part = Observed | Literal["none", "down"]
"""What is known of one machine's part: an observation, that there is none, or that its node is gone."""


@dataclass(frozen=True, slots=True)
class AgentPlacement:
    """On which nodes a job's parts are, by the id of the node's life and by name, in the order of their ranks."""

    nodes: tuple[tuple[str, str], ...]
    grace_s: float
    by: str = ""  # whose launch it was

    def packed(self) -> bytes:
        """For the store."""
        return json.dumps({"nodes": self.nodes, "grace_s": self.grace_s, "by": self.by}).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> AgentPlacement:
        """The inverse."""
        found = json.loads(data)
        return cls(tuple((life, name) for life, name in found["nodes"]), found["grace_s"], found["by"])


def split(spec: LaunchSpec, nodes: dict[str, NodeInfo], addresses: dict[str, str]) -> list[LaunchSpec]:
    """What each node of a launch is told. Here every node is a machine of its own, also where several share a host."""
    apart = {name: replace(node, address=name) for name, node in nodes.items()}
    return [_told(spec, rank, addresses) for rank in ranks(spec, apart)]


def _told(spec: LaunchSpec, rank: Rank, addresses: dict[str, str]) -> LaunchSpec:
    at = addresses.get(rank.master_address, rank.master_address)
    return replace(spec, gpus=rank.gpus, env={**spec.env, **replace(rank, master_address=at).environment()})


def together(key: str, place: AgentPlacement, parts: Sequence[Part], launching: bool) -> Observed | None:
    """One observation of all; None where there is nothing of it.

    It is lost with any of its nodes, exited when all parts are, with the end of the first that failed; until then it is
    as its parts that live.
    """
    seen = [part for part in parts if isinstance(part, Observed)]
    alive = any(one.alive for one in seen)
    if down := [name for (_, name), part in zip(place.nodes, parts, strict=True) if part == "down"]:
        return Observed(key, "lost", alive, started_s=_first(seen), message=f"node {', '.join(down)} is down")
    if not seen or (launching and len(seen) < len(parts)):
        return Observed(key, "starting", True) if launching else None
    if lost := [one for one in seen if one.state == "lost"]:
        return replace(lost[0], alive=alive)
    over = [one for one in seen if one.state == "exited"]
    if len(over) == len(seen):
        first = min(over, key=_failed_first)
        return replace(first, started_s=_first(seen), ended_s=max(one.ended_s or 0.0 for one in over))
    if len(seen) < len(parts):
        some = f"only {len(seen)} of its {len(parts)} machines have it"
        return Observed(key, "lost", alive, started_s=_first(seen), message=some)
    living = [one for one in seen if one.alive]
    states = [one.state for one in living]
    state: State = "starting" if "starting" in states else "running" if "running" in states else "suspended"
    return replace(living[0], state=state, started_s=_first(seen))


def has_failed(parts: Sequence[Part]) -> bool:
    """Whether one part failed while others go on: they would wait for it for ever."""
    seen = [part for part in parts if isinstance(part, Observed)]
    return any(one.alive for one in seen) and any(one.state == "exited" and one.exit_code != 0 for one in seen)


def _first(seen: Sequence[Observed]) -> float | None:
    return min((one.started_s for one in seen if one.started_s is not None), default=None)


def _failed_first(one: Observed) -> tuple[bool, float]:
    """Sorts the failure that came first before its consequences, and ends without failure last."""
    return one.exit_code == 0, one.ended_s or 0.0
