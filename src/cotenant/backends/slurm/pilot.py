"""Whole nodes of Slurm, held by pilots, with our policies inside: exact GPUs, sharing, suspending, ways into jobs.

No administrator is needed: a pilot is a job like any other. Nodes come and go with the queue (`power_rules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant.backends.agent.backend import AgentBackend
from cotenant.backends.agent.gangs import AgentPlacement
from cotenant.backends.agent.logs import AgentLog, AgentTimes, PieceOrder
from cotenant.backends.base import BackendError, NodeInfo, Observed, Stream, check_key
from cotenant.backends.local import logs
from cotenant.backends.slurm.pilot_agent import node_folder
from cotenant.backends.slurm.pilots import Pilots


class PilotBackend(AgentBackend):
    """Agents that pilots hold: see there how jobs are launched and gangs kept together.

    `rules` say how many nodes are to be held (`power.queue`), unless the service is told otherwise.
    """

    def __init__(self, pilots: Pilots, home: Path, listen: str = "", rules: str = "", owns_link: bool = True) -> None:
        super().__init__(pilots, home, listen or f"tcp:{pilots.host}:0", owns_link)
        self._pilots, self._at, self.power_rules = pilots, home, rules
        self._pieces = PieceOrder(pilots.call)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """All of the partition: up where a pilot runs, asleep where one could, down where others are."""
        self._pilots.nodes()
        try:
            found = self._pilots.list.all()
        except BackendError:
            found = self._pilots.list.known()
        memory = {row["name"]: row["facts"]["gpu_mem_gib"] for row in self._pilots.table if row["facts"]}
        nodes = []
        for name, node in sorted(found.items()):
            state, leaves_s = self._pilots.state(node)
            more: dict[str, Any] = {"state": state, "leaves_s": leaves_s, "gpu_mem_gib": memory.get(name, 0.0)}
            more["faults"] = (*node.info.faults, *self.faults(name))
            nodes.append(replace(node.info, **more))
        return nodes

    def wake_nodes(self, names: Sequence[str]) -> None:
        """A pilot for each."""
        self._pilots.wake(names)

    def sleep_nodes(self, names: Sequence[str]) -> None:
        """Give nodes back, unless something lives there."""
        for one in self.observe():
            held = [name for name in self._names(one.key) if name in names]
            if one.alive and held:
                raise BackendError(f"node {held[0]} has job {one.key}: it cannot be given back")
        self._pilots.sleep(names)

    def observe(self) -> list[Observed]:
        """See there. Nodes whose time is nearly over, and on which nothing is left, are given back."""
        found = super().observe()
        busy = {name for one in found if one.alive for name in self._names(one.key)}
        if over := self._pilots.over(busy):
            self._pilots.sleep(over)
        return found

    # -- output that was kept of nodes that are no longer held -------------------------------------------------------

    def _names(self, key: str) -> list[str]:
        """On which nodes a key is, or its output was kept."""
        data = self._pilots.call("get", f"job/{key}") or self._pilots.call("get", f"log/{key}")
        return [name for _, name in AgentPlacement.unpacked(data).nodes] if data is not None else []

    def _read(self, names: Sequence[str], act: str, *given: Any, timeout_s: float = 15.0) -> list[Any]:
        """Through the agent of each node, or from the home, on which all of it lies."""
        lives = {row["name"]: row["id"] for row in self._pilots.nodes() if row["facts"]}
        found = []
        for name in names:
            kind, what = "away", None
            if name in lives:
                ((kind, what),) = self._pilots.ask([(lives[name], act, given)], timeout_s)
            found.append(what if kind == "ok" else self._from_home(name, act, *given))
        return found

    def _from_home(self, node: str, act: str, key: str, *given: Any) -> Any:
        folder = node_folder(self._at, node)
        places = (*sorted(folder.glob(f"lives/*/jobs/{key}")), folder / "logs" / key)
        if act == "marks":
            return logs.LocalTimes(logs.LocalLog(key, "times", places, lambda: False)).marks(*given)
        log = logs.LocalLog(key, given[0], places, lambda: False)
        if act == "log_read":
            part = log.read(*given[1:])
            return part.at, part.data
        return (*log.span(), True)

    def open_log(self, key: str, stream: Stream) -> AgentLog:
        """Through the agents, or from the home."""
        check_key(key)
        return AgentLog(key, stream, lambda: self._names(key), self._read, self._pieces)

    def open_times(self, key: str) -> AgentTimes:
        """Likewise."""
        check_key(key)
        return AgentTimes(key, lambda: self._names(key), self._read)
