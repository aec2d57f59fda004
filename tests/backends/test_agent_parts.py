"""What needs no Ray: parts of gangs put together, output of several nodes as one log."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from cotenant._version import __version__
from cotenant.backends.agent.gangs import AgentPlacement, has_failed, split, together
from cotenant.backends.agent.logs import AgentLog, PieceOrder
from cotenant.backends.base import LaunchSpec, NodeInfo, Observed
from cotenant.backends.ray import gateway
from cotenant.testing.backend_kit import whole

PLACE = AgentPlacement((("id0", "n0"), ("id1", "n1")), 5.0)


def part(state: Any, alive: bool, code: int | None = None, number: int | None = None, at: float = 1.0) -> Observed:
    return Observed("a-1", state, alive, code, number, at, at + 10 if state == "exited" else None)


RUNS, WAITS, STILL = part("running", True), part("starting", True), part("suspended", True)
GOOD, BAD, HIT = part("exited", False, 0), part("exited", False, 3, at=5.0), part("exited", False, None, 15, at=6.0)


@pytest.mark.parametrize(
    ("parts", "state", "alive", "how"),
    [
        ((RUNS, RUNS), "running", True, (None, None)),
        ((RUNS, WAITS), "starting", True, (None, None)),
        ((RUNS, STILL), "running", True, (None, None)),
        ((STILL, STILL), "suspended", True, (None, None)),
        ((GOOD, RUNS), "running", True, (None, None)),
        ((GOOD, GOOD), "exited", False, (0, None)),
        ((GOOD, BAD), "exited", False, (3, None)),
        ((HIT, BAD), "exited", False, (3, None)),
        ((RUNS, "down"), "lost", True, (None, None)),
        ((GOOD, "down"), "lost", False, (None, None)),
        ((RUNS, "none"), "lost", True, (None, None)),
        ((GOOD, "none"), "exited", False, (0, None)),
    ],
)
def test_parts_are_one_job(parts: Any, state: str, alive: bool, how: tuple[int | None, int | None]) -> None:
    one = together("a-1", PLACE, parts, launching=False)
    assert one is not None
    assert (one.state, one.alive, (one.exit_code, one.signal)) == (state, alive, how)
    assert ("n1" in one.message) == ("down" in parts)


def test_what_is_being_launched_is_starting() -> None:
    assert together("a-1", PLACE, ("none", "none"), launching=False) is None
    for parts in (("none", "none"), (RUNS, "none")):
        assert together("a-1", PLACE, parts, launching=True) == Observed("a-1", "starting", True)
    assert [has_failed(parts) for parts in ((RUNS, BAD), (RUNS, GOOD), (BAD, BAD), (RUNS, "none"))] == [
        *(True, False, False, False)
    ]


def test_nodes_of_one_host_are_machines_of_their_own() -> None:
    nodes = {name: NodeInfo(name, "gpu", 4, 8, 64.0) for name in ("n0", "n1")}
    spec = LaunchSpec("a-1", "a", env={"A": "b"}, gpus=(("n1", (0, 3)), ("n0", (1,))))
    first, second = split(spec, nodes, {"n0": "10.0.0.1", "n1": "10.0.0.1"})
    assert (first.gpus, second.gpus) == ((("n1", (0, 3)),), (("n0", (1,)),))
    assert {one.env["MASTER_ADDR"] for one in (first, second)} == {"10.0.0.1"}
    assert [one.env["COTENANT_NODE_RANK"] for one in (first, second)] == ["0", "1"]
    assert second.env["COTENANT_FIRST_GPU"] == "2"
    (alone,) = split(LaunchSpec("a-1", "a", gpus=(("n1", (0,)),)), nodes, {})
    assert alone.env == {}


def test_output_of_a_gang_is_one_row_of_bytes() -> None:
    """A byte keeps its number, whoever asks and whatever is printed or rotated away later."""
    store: dict[str, bytes] = {}

    def call(op: str, name: str, *given: Any) -> Any:
        if op == "put":
            store[name] = given[0]
        return store.get(name) if op == "get" else store.pop(name, None) if op == "drop" else None

    outputs, oldest = [b"a1\n", b"b1\n"], [0, 0]

    def ask(names: Any, act: str, key: str, stream: str, *given: Any) -> list[Any]:
        found = []
        for name in names:
            at = int(name[1:])
            if act == "log_state":
                found.append((oldest[at], len(outputs[at]), False))
            else:
                begin = max(given[0], oldest[at])
                found.append((begin, outputs[at][begin : begin + given[1]]))
        return found

    log = AgentLog("a-1", "stdout", lambda: ["n0", "n1"], ask, PieceOrder(call))
    assert (whole(log), log.span()) == (b"a1\nb1\n", (0, 6))
    outputs[0] += b"a2\n"
    assert whole(log, 2) == b"a1\nb1\na2\n"
    outputs[1] += b"b2\n"
    again = AgentLog("a-1", "stdout", lambda: ["n0", "n1"], ask, PieceOrder(call))
    for size in (1, 4, 100):
        assert whole(again, size) == b"a1\nb1\na2\nb2\n"
    oldest[0] = 4
    assert again.span() == (3, 12)
    assert again.read(0, 99).at == 3
    assert whole(again) == b"b1\n2\nb2\n"
    PieceOrder(call).drop("a-1")
    assert store == {}


class Beginning:
    """An actor of Ray that fails to begin, or does not."""

    def __init__(self, fails: bool) -> None:
        self.hello, self.fails = self, fails

    def remote(self) -> Beginning:
        return self


def test_an_agent_that_failed_to_begin_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray does not start an actor again whose beginning failed: it has to be created anew, and not all the time."""
    made = [Beginning(True), Beginning(False)]
    clock = [0.0]

    def get(one: Beginning) -> dict[str, str]:
        if one.fails:
            raise RuntimeError("it is dead")
        return {"version": __version__}

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(wait=lambda some, timeout: (some, []), get=get))
    monkeypatch.setattr(gateway, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    found = gateway.RayGateway(Connection(os.open(os.devnull, os.O_RDWR)), gateway.RaySettings("", "label", ""))
    monkeypatch.setattr(found, "create", lambda node: made.pop(0))
    node = {
        "NodeID": "n0", "Alive": True, "Resources": {"CPU": 1}, "NodeName": "n0", "NodeManagerAddress": "127.0.0.1",
    }  # fmt: skip
    for clock[0] in (0.0, 0.5, 1.0):
        found.attend(node)
    assert len(made) == 1
    assert found.row(node)["trouble"] == "it is dead"
    for clock[0] in (3.0, 3.5):
        found.attend(node)
    assert made == []
    assert found.row(node)["facts"] == {"version": __version__}
    assert not found.row(node)["trouble"]
