"""The backend that the service calls: names of nodes and keys here, agents of nodes behind `link`.

A launch is noted in the link's store before anybody is told, with the nodes of its parts, and only the first such note
of a key counts: so whoever launches a key again, or finds it after a crash, asks the same agents. Those know the
rest. A gang is refused before anything starts if one of its nodes refuses, and undone if one fails to start its part.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cotenant.backends.agent.agents import ACT_S, Agents, AgentsLink, answered
from cotenant.backends.agent.gangs import AgentPlacement, Part, has_failed, split, together
from cotenant.backends.agent.logs import AgentChannel, AgentLog, AgentTimes, PieceOrder
from cotenant.backends.base import (
    BackendError,
    Capabilities,
    GpuUse,
    LaunchSpec,
    NodeGone,
    NodeInfo,
    Observed,
    Stream,
    Unreachable,
    check_key,
    check_spec,
)
from cotenant.backends.channels import ChannelSpec
from cotenant.backends.checkpoints import checkpoint_folder, drop_checkpoint_folder
from cotenant.core.node_faults import NodeFault

_LOOK_S = 4.0
_OPEN_S = 90.0
_HEALTH_S = 5.0
_UNKEPT: dict[str, Any] = {"faults": (), "out": (), "slices": None}  # of a node: true for the moment, or here, only
_UNKNOWN = Capabilities("none", False, False, False, "none", "none", "none", True)


class AgentBackend:
    """A handle on the agents of one service; `link` may be shared by several handles, of which one owns it."""

    def __init__(self, link: AgentsLink, shared: Path, listen: str = "", owns_link: bool = False) -> None:
        self._agents, self._shared, self._listen, self._owns = Agents(link), shared, listen, owns_link
        self._waking = threading.Event()
        self._last: dict[str, dict[str, Observed]] = {}  # by node, what its agent said last
        self._launching: dict[str, int] = {}
        self._ending: dict[str, float] = {}  # gangs that failed: when to kill what is left of them
        self._known: dict[str, NodeInfo] = {}
        self._faults: dict[str, tuple[NodeFault, ...]] = {}
        self._health_s = -_HEALTH_S
        self._order = PieceOrder(link.call)
        self._capabilities = _UNKNOWN
        link.news.append(self._waking.set)
        self._read_store()

    def close(self) -> None:
        """Let go of the gateway. Agents and jobs stay."""
        self._agents.link.news.remove(self._waking.set)
        if self._owns:
            self._agents.link.close()

    # -- nodes -----------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeInfo]:
        """Those with an agent, by name; one that is gone is down for as long as anybody remembers it."""
        rows = self._agents.rows()
        shared = [row["address"] for row in rows.values()]
        with self._agents.lock:
            known = dict(self._known)
        found = {name: replace(node, state="down") for name, node in known.items()}
        for name, row in rows.items():
            if row["facts"] is not None:
                one = row["address"] if shared.count(row["address"]) == 1 else ""
                found[name] = replace(_info(row, one), faults=self.faults(name))
        for name in found.keys() - known.keys():
            self._agents.link.call("put", f"node/{name}", json.dumps(_kept(found[name])).encode(), True)
        with self._agents.lock:
            self._known |= found
        return [found[name] for name in sorted(found)]

    def _read_store(self) -> None:
        """What was written down by those before: launches, and nodes that had an agent."""
        for key, data in self._agents.link.call("list", "job/").items():
            self._agents.places[key.removeprefix("job/")] = AgentPlacement.unpacked(data)
        alive = {row["name"] for row in self._agents.link.nodes() if row["alive"]}
        used = {name for place in self._agents.places.values() for _, name in place.nodes}
        for key, data in self._agents.link.call("list", "node/").items():
            node = NodeInfo(**{**json.loads(data), **_UNKEPT})
            if node.name in alive | used:
                self._known[node.name] = node
            else:
                self._agents.link.call("drop", key)

    def capabilities(self) -> Capabilities:
        """Of the local backend on the nodes, as the first of them found."""
        facts = [row["facts"]["capabilities"] for row in self._agents.link.table if row["facts"] is not None]
        if facts:
            self._capabilities = replace(facts[0], notes=(f"{len(facts)} nodes with agents", *facts[0].notes))
        return self._capabilities

    def gpu_use(self) -> tuple[GpuUse, ...]:
        """See `Measures`."""
        names = [name for name, row in self._agents.rows().items() if row["facts"] and row["gpus"]]
        return tuple(use for found in self._agents.ask(names, "gpu_use") for use in found or ())

    # -- what is there ---------------------------------------------------------------------------------------------

    def observe(self) -> list[Observed]:
        """Ask every agent; of one that does not answer though its node lives, what it said last still holds."""
        parts = self._parts()
        with self._agents.lock:
            places, launching = dict(self._agents.places), set(self._launching)
        for key in {key for found in parts.values() for key in found} - places.keys():  # launched by another handle
            if (place := self._agents.place_of(key)) is not None:
                places[key] = place
        found = []
        for key in sorted(places):
            mine = [self._part(key, node, parts) for node in places[key].nodes]
            one = together(key, places[key], mine, key in launching)
            if one is not None and one.state == "lost" and not self._agents.is_noted(key):
                one = None
            if one is None:
                self._forget_place(key)
                continue
            found.append(one)
            if has_failed(mine):
                self._end_rest(key, places[key])
        return found

    def _parts(self) -> dict[str, dict[str, Observed]]:
        """What the agent of each living node says, by the id of each life of a node."""
        with self._agents.lock:
            used = {life for place in self._agents.places.values() for life, _ in place.nodes}
        alive = [row for row in self._agents.link.nodes() if row["alive"]]
        lives = [row["id"] for row in alive if row["facts"] is not None or row["id"] in used]
        asked = [(life, "observe", ()) for life in lives]
        asked += [(life, "health", ()) for life in lives] if self._health_due() else []
        answers = self._agents.link.ask(asked, _LOOK_S)
        told = {life: what for life, (kind, what) in zip(lives, answers[len(lives) :], strict=False) if kind == "ok"}
        self._faults |= {row["name"]: told[row["id"]] for row in alive if row["id"] in told}
        for life, (kind, what) in zip(lives, answers[: len(lives)], strict=True):
            if kind == "ok":
                self._last[life] = {one.key: one for one in what}
            elif life not in self._last:
                with self._agents.lock:
                    self._last[life] = {
                        key: Observed(key, "starting", True, message=f"the agent of node {name} does not answer")
                        for key, place in self._agents.places.items()
                        for at, name in place.nodes
                        if at == life
                    }
        self._last = {life: self._last.get(life, {}) for life in lives}
        return self._last

    def _health_due(self) -> bool:
        """Whether it is time to ask how GPUs are."""
        now_s = time.monotonic()
        due = now_s - self._health_s > _HEALTH_S
        self._health_s = now_s if due else self._health_s
        return due

    def faults(self, name: str) -> tuple[NodeFault, ...]:
        """What the agent of a node said last to be wrong there."""
        return self._faults.get(name, ())

    def _part(self, key: str, node: tuple[str, str], parts: dict[str, dict[str, Observed]]) -> Part:
        life, _ = node
        return parts[life].get(key, "none") if life in parts else "down"

    def _forget_place(self, key: str) -> None:
        with self._agents.lock:
            self._agents.places.pop(key, None)
            self._ending.pop(key, None)

    def _end_rest(self, key: str, place: AgentPlacement) -> None:
        """One part of a gang has failed: ask the others to end, and end them when their time is over."""
        begins, now_s = key not in self._ending, time.monotonic()
        if begins:
            self._ending[key] = now_s + place.grace_s
            threading.Timer(place.grace_s + 0.05, self._waking.set).start()
        if begins or now_s > self._ending[key]:
            with suppress(BackendError):  # the next look tries again
                self._agents.ask(self._agents.alive(place), "terminate" if begins else "kill", key)

    def wait_change(self, timeout_s: float | None) -> bool:
        """Until an agent, or what holds it, has news."""
        heard = self._waking.wait(timeout_s)
        self._waking.clear()
        return heard

    def wake(self) -> None:
        """End a wait."""
        self._waking.set()

    # -- starting and ending ---------------------------------------------------------------------------------------

    def launch(self, spec: LaunchSpec) -> None:
        """Note where, ask all whether they can, tell all."""
        nodes = {node.name: node for node in self.nodes()}
        check_spec(spec, nodes)
        rows = self._agents.rows()
        told = split(spec, nodes, {name: row["address"] for name, row in rows.items()})
        names = [part.gpus[0][0] for part in told] if spec.gpus else [_some(spec.key, nodes)]
        if gone := [name for name in names if nodes[name].state != "up"]:
            raise NodeGone(f"job {spec.key}: node {gone[0]} is down")
        checks = [(rows[name]["id"], "check", (part,)) for name, part in zip(names, told, strict=True)]
        for name, (kind, what) in zip(names, self._agents.link.ask(checks, ACT_S), strict=True):
            _raise(NodeGone(f"job {spec.key}: node {name}: {what}") if kind == "away" else answered(kind, what))
        mine = AgentPlacement(tuple((rows[name]["id"], name) for name in names), spec.grace_s, secrets.token_hex(8))
        with self._being_launched(spec.key):
            place = AgentPlacement.unpacked(self._agents.link.call("put", f"job/{spec.key}", mine.packed(), False))
            with self._agents.lock:
                self._agents.places[spec.key] = place
            if place.nodes == mine.nodes or not spec.gpus:  # else the key was launched before, elsewhere
                self._tell(spec.key, place, told, undo=place.by == mine.by)

    def _tell(self, key: str, place: AgentPlacement, told: Sequence[LaunchSpec], undo: bool) -> None:
        requests = [(life, "launch", (part,)) for (life, _), part in zip(place.nodes, told, strict=True)]
        values = [answered(*answer) for answer in self._agents.link.ask(requests, ACT_S)]
        wrong = [value for value in values if isinstance(value, Exception)]
        if any(isinstance(one, Unreachable) for one in wrong):
            raise next(one for one in wrong if isinstance(one, Unreachable))
        if wrong and undo:  # all or nothing
            self._undo(key, place)
        if wrong:
            raise wrong[0]

    def _undo(self, key: str, place: AgentPlacement) -> None:
        """Nothing is left of a launch that failed; if it will not die just now, whoever looks next sees it lost."""
        until = time.monotonic() + ACT_S
        with suppress(Unreachable):
            while time.monotonic() < until:
                self._agents.ask(self._agents.alive(place), "kill", key)
                try:
                    return self.forget(key)
                except BackendError:
                    time.sleep(0.05)

    @contextmanager
    def _being_launched(self, key: str) -> Iterator[None]:
        with self._agents.lock:
            self._launching[key] = self._launching.get(key, 0) + 1
        try:
            yield
        finally:
            with self._agents.lock:
                self._launching[key] -= 1
                if not self._launching[key]:
                    del self._launching[key]

    def terminate(self, key: str) -> bool:
        """SIGTERM to all of it."""
        return any(self._agents.act(key, "terminate"))

    def kill(self, key: str) -> bool:
        """SIGKILL to all of it."""
        return any(self._agents.act(key, "kill"))

    def suspend(self, key: str) -> bool:
        """All of it or nothing."""
        done = self._agents.act(key, "suspend")
        if any(done) and not all(done):
            self._agents.act(key, "resume")
        return bool(done) and all(done)

    def resume(self, key: str) -> bool:
        """All of it."""
        done = self._agents.act(key, "resume")
        return bool(done) and all(done)

    def set_limits(
        self,
        key: str,
        cpus: Sequence[int] | None = None,
        cpu_share: float | None = None,
        mem_gib: float | None = None,
    ) -> bool:
        """The same on each of its nodes."""
        return any(self._agents.act(key, "set_limits", cpus, cpu_share, mem_gib))

    def forget(self, key: str, keep_log: bool = False) -> None:
        """At all of its agents, then in the store; where its node is gone, its leash has done the former."""
        place = self._agents.place_of(check_key(key))
        if place is None:
            return
        names = self._agents.alive(place)
        if len(names) > 1:
            found = [part for part in self._agents.ask(names, "observe") for part in part or () if part.key == key]
            if any(part.alive for part in found):
                raise BackendError(f"job {key} still runs: kill it before forgetting it")
        self._agents.ask(names, "forget", key, keep_log)
        if keep_log:
            self._agents.link.call("put", f"log/{key}", place.packed(), True)
        else:
            self._order.drop(key)
        self._agents.link.call("drop", f"job/{key}")
        self._forget_place(key)

    # -- what is left of it ----------------------------------------------------------------------------------------

    def launched(self, key: str) -> LaunchSpec | None:
        """See `Recalls`: from the parts."""
        place = self._agents.place_of(key)
        parts = self._agents.ask(self._agents.alive(place), "launched", key) if place is not None else []
        known = [part for part in parts if part is not None]
        gpus = tuple(cell for part in known for cell in part.gpus)
        return replace(known[0], gpus=gpus) if known and len(known) == len(parts) else None

    def ended(self, key: str) -> Observed | None:
        """See `Recalls`: from what was kept with the log."""
        data = self._agents.link.call("get", f"log/{key}")
        if data is None:
            return None
        place = AgentPlacement.unpacked(data)
        parts = [part for part in self._agents.ask([name for _, name in place.nodes], "ended", key) if part is not None]
        return together(key, place, parts, False) if len(parts) == len(place.nodes) else None

    def _log_names(self, key: str) -> list[str]:
        """On which nodes output of a key is, or was kept."""
        place = self._agents.place_of(key)
        if place is None and (data := self._agents.link.call("get", f"log/{key}")) is not None:
            place = AgentPlacement.unpacked(data)
        return [name for _, name in place.nodes] if place is not None else []

    def open_log(self, key: str, stream: Stream) -> AgentLog:
        """Through the agents."""
        check_key(key)
        return AgentLog(key, stream, lambda: self._log_names(key), self._agents.ask, self._order)

    def open_times(self, key: str) -> AgentTimes:
        """Through the agent."""
        check_key(key)
        return AgentTimes(key, lambda: self._log_names(key), self._agents.ask)

    def open_channel(self, key: str, asked: ChannelSpec) -> AgentChannel:
        """Through the agent of its first node."""
        place = self._agents.place_of(check_key(key))
        names = self._agents.alive(place)[:1] if place is not None else []
        if not names:
            raise BackendError(f"job {key} does not run")

        def ask(act: str, *given: Any) -> Any:
            return self._agents.ask(names, act, *given, timeout_s=_OPEN_S)[0]

        return AgentChannel(ask("open_channel", key, asked), ask)

    def drop_log(self, key: str) -> None:
        """At the agents, and in the store."""
        if self._agents.place_of(check_key(key)) is None and (names := self._log_names(key)):
            self._agents.ask(names, "drop_log", key)
            self._order.drop(key)
            self._agents.link.call("drop", f"log/{key}")

    def checkpoint_dir(self, job: str, asked: str = "") -> str:
        """A folder that all nodes share, or the one asked for."""
        return checkpoint_folder(self._shared, job, asked)

    def drop_checkpoints(self, job: str) -> None:
        """Delete the folder that was chosen here."""
        drop_checkpoint_folder(self._shared, job)

    def listen_at(self) -> tuple[str, ...]:
        """Over TCP, at the address by which the nodes know this one."""
        return (self._listen or f"tcp:{self._agents.link.host or '127.0.0.1'}:0",)


def _kept(node: NodeInfo) -> dict[str, Any]:
    """What is written down of a node."""
    return {name: value for name, value in asdict(node).items() if name not in _UNKEPT}


def _info(row: dict[str, Any], address: str) -> NodeInfo:
    facts = row["facts"]
    return NodeInfo(
        row["name"], facts["gpu_type"] if row["gpus"] else "cpu", row["gpus"], max(row["cpus"], 1), row["mem_gib"],
        gpu_mem_gib=facts["gpu_mem_gib"], address=address,
    )  # fmt: skip


def _raise(value: Any) -> None:
    if isinstance(value, Exception):
        raise value


def _some(key: str, nodes: dict[str, NodeInfo]) -> str:
    """A node for a job without GPUs: any, the same at every try, and not the same for all jobs."""
    up = sorted(name for name, node in nodes.items() if node.state == "up")
    if not up:
        raise BackendError(f"job {key}: no node is up")
    return up[zlib.crc32(key.encode()) % len(up)]
