"""The agents of all nodes, by name, and where the parts of each job are: asked by whoever acts on a key.

What leads to them (Ray's gateway, pilots of Slurm) is a link: a table of nodes, a small store that outlives the
service, and acts at agents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cotenant.backends.agent.gangs import AgentPlacement
from cotenant.backends.base import BackendError, Unreachable, check_key
from cotenant.core.errors import InputError

ACT_S = 15.0


class AgentsLink(Protocol):
    """What leads to the agents of one service. `table`: a row for each node, with its agent's `facts` if any."""

    table: list[dict[str, Any]]
    news: list[Callable[[], object]]  # to be called when something may have changed

    @property
    def host(self) -> str:
        """By which the nodes know this machine; empty where it is not known."""
        ...

    def nodes(self) -> list[dict[str, Any]]:
        """The table, unless it is too old to be true (`Unreachable`)."""
        ...

    def call(self, op: str, name: str, /, *given: Any, timeout_s: float = ...) -> Any:
        """`get`, `put`, `drop` and `list` values of the store."""
        ...

    def ask(self, requests: list[tuple[str, str, tuple[Any, ...]]], timeout_s: float) -> list[tuple[str, Any]]:
        """One act at each of several agents, at the same time: ok, input or backend; `away` who does not answer."""
        ...

    def close(self) -> None:
        """Let go of it. Agents and jobs stay."""
        ...


class Agents:
    """Acts by names of nodes and by keys. `places` is guarded by `lock`."""

    def __init__(self, link: AgentsLink) -> None:
        self.link, self.lock = link, threading.Lock()
        self.places: dict[str, AgentPlacement] = {}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Living nodes of the table, by name."""
        return {row["name"]: row for row in self.link.nodes() if row["alive"]}

    def ask(self, names: Sequence[str], act: str, *given: Any, timeout_s: float = ACT_S) -> list[Any]:
        """The same act at several nodes, at once; None of nodes that are gone. Errors are raised after all are done."""
        rows = self.rows()
        there = [name for name in names if name in rows]
        answers = self.link.ask([(rows[name]["id"], act, given) for name in there], timeout_s)
        found = dict(zip(there, (answered(*answer) for answer in answers), strict=True))
        for name, value in found.items():
            if isinstance(value, Unreachable) and name not in self.rows():
                found[name] = None
            elif isinstance(value, Exception):
                raise Unreachable(f"node {name}: {value}") if isinstance(value, Unreachable) else value
        return [found.get(name) for name in names]

    def place_of(self, key: str) -> AgentPlacement | None:
        """Where the parts of a key are, as far as it was ever launched and not forgotten."""
        with self.lock:
            place = self.places.get(key)
        if place is None and (data := self.link.call("get", f"job/{key}")) is not None:
            place = AgentPlacement.unpacked(data)
            with self.lock:
                self.places[key] = place
        return place

    def act(self, key: str, act: str, *given: Any) -> list[bool]:
        """Of each part of a key whether it was there; of nobody's key nothing."""
        place = self.place_of(check_key(key))
        if place is None:
            return []
        return [bool(done) for done in self.ask(self.alive(place), act, key, *given)]

    def alive(self, place: AgentPlacement) -> list[str]:
        """Its nodes that are still those on which it was launched."""
        lives = {name: row["id"] for name, row in self.rows().items()}
        return [name for life, name in place.nodes if lives.get(name) == life]

    def is_noted(self, key: str) -> bool:
        """Whether nobody has forgotten it: no agent can tell of a node that is gone."""
        return self.link.call("get", f"job/{key}") is not None


def answered(kind: str, what: Any) -> Any:
    """What an agent answered, or the error to raise."""
    errors = {"input": InputError, "backend": BackendError, "away": Unreachable}
    return errors[kind](what) if kind in errors else what
