"""Which nodes are open to whom: jobs that fit on none are set aside, and windows are kept, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from service_kit import ADMIN, EPOCH_S, Rig, play

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.journal import Entry
from cotenant.service.facade import Caller, Conflict, NotFound, Role, Unavailable
from cotenant.service.node_windows import MAINTENANCE, RESERVATION, NodeWindow

ANN, BOB = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "blue")
TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0), NodeInfo("n1", "gpu", 2, 8, 64.0))


def place(rig: Rig, job: str) -> list[str]:
    return [node for node, _ in rig.service.store.book.jobs[job].last.gpus]


def window(rig: Rig, kind: str, after_s: float, for_s: float, *nodes: str, **more: str) -> str:
    begins_s = rig.backend.now_s + after_s
    return rig.service.admin.add_window(ADMIN, NodeWindow("", kind, nodes, begins_s, begins_s + for_s, **more)).id


def test_what_can_never_run_is_refused_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for fields in ({"cpus": 9}, {"mem": "1000G"}, {"gpus": 5}, {"gpus": 2, "nodes": 2}):
        with pytest.raises(InputError, match="field '"):
            rig.submit(**fields)
    job = rig.submit()
    rig.ticks(1)
    assert rig.state(job) == "running"


@pytest.mark.parametrize("policy", ["fifo", "srtf", "gavel"])
def test_what_can_no_longer_run_is_set_aside_and_comes_back(tmp_path: Path, policy: str) -> None:
    """Half of the cluster is gone after a restart, and returns later."""
    rig = Rig(tmp_path, policy, TWO, round_s=5.0)
    wide, small = rig.submit("sleep 5", gpus=4), rig.submit("sleep 5", gpus=1)
    rig.service.desk.hold(ADMIN, wide)
    rig.ticks(1)
    rig.backend.world.nodes.pop("n1")
    rig.restart()
    rig.service.desk.resume(ADMIN, wide)
    later = [rig.submit("sleep 5", gpus=2) for _ in range(2)]
    rig.ticks(30)
    assert [rig.state(job) for job in (small, *later)] == ["succeeded"] * 3
    said = "on the nodes that are there now: field 'gpus' is 4; the largest pool has 2"
    assert rig.service.desk.job(ADMIN, wide).reason == f"set aside, {said}"
    assert rig.service.desk.why(ADMIN, wide)["cause"] == "set aside"
    assert rig.service.desk.jobs(ADMIN)[0].reason == f"set aside, {said}"
    assert "aside" in [event.kind for event in rig.service.desk.events(ADMIN, wide)]
    rig.restart()  # it is still set aside
    rig.backend.world.nodes["n1"] = TWO[1]
    rig.finish(100)
    assert rig.state(wide) == "succeeded"


def test_a_journal_that_cannot_be_written_loses_nobody_who_is_to_be_set_aside(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", TWO)
    rig.service.admin.drain(ADMIN, "n1")
    wide = rig.submit("sleep 5", gpus=4)
    write = rig.service.store.write

    def fails(entries: list[Entry]) -> list[int]:
        if any(entry.kind == "aside" for entry in entries):
            raise Unavailable("the disk is full")
        return write(entries)

    rig.service.store.write = fails  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        rig.service.tick()
    rig.service.store.write = write  # type: ignore[method-assign]
    rig.ticks(1)
    assert "set aside" in rig.service.desk.job(ADMIN, wide).reason


def test_a_drained_node_sets_aside_and_undoing_it_brings_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", TWO)
    rig.service.admin.drain(ADMIN, "n1")
    wide, small = rig.submit("sleep 5", gpus=4), rig.submit("sleep 5", gpus=1)
    rig.ticks(2)
    assert [rig.state(job) for job in (wide, small)] == ["pending", "running"]
    rig.service.admin.drain(ADMIN, "n1", undo=True)
    rig.finish(100)
    assert rig.state(wide) == "succeeded"


def test_without_any_node_nobody_is_set_aside(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.service.admin.drain(ADMIN, "n0")
    job = rig.submit(gpus=4)
    rig.ticks(2)
    assert "set aside" not in rig.service.desk.job(ADMIN, job).reason
    assert rig.service.desk.why(ADMIN, job)["text"]


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "gavel", "gandiva"])
def test_nothing_starts_that_would_not_end_before_a_maintenance(tmp_path: Path, policy: str) -> None:
    """Before it only short jobs are on the node, during it nothing runs there, then all do. (FIFO waits.)"""
    rig = Rig(tmp_path, policy, TWO, round_s=20.0)
    window(rig, MAINTENANCE, 60, 60, "n1")
    long = [rig.submit("sleep 100", gpus=2, max_runtime=110, expected=100) for _ in range(2)]
    short = [rig.submit("sleep 10", gpus=2, max_runtime=15, expected=10) for _ in range(6)]
    while rig.backend.now_s < EPOCH_S + 120:
        play(rig, 1.0)
        on_n1 = [job for job in rig.service.store.book.on_gpus if "n1" in place(rig, job)]
        assert not set(on_n1) & set(long)
        if rig.backend.now_s > EPOCH_S + 61:
            assert not on_n1
    assert policy == "fifo" or any("n1" in place(rig, job) for job in short if rig.attempts(job) != [0])
    rig.finish(800)
    assert [rig.state(job) for job in (*long, *short)] == ["succeeded"] * 8
    assert not rig.service.admin.windows(ADMIN)


def test_a_maintenance_sends_away_who_is_there_and_all_come_back(tmp_path: Path) -> None:
    """They go through the ladder, suspended ones too; nobody is refused, and it survives a restart."""
    rig = Rig(tmp_path)
    runs, stands = rig.submit("sleep 200", gpus=2), rig.submit("sleep 200", gpus=2, expected=200)
    rig.ticks(1)
    rig.service.desk.hold(ADMIN, stands)
    rig.ticks(2)
    assert rig.state(stands) == "suspended"
    window(rig, MAINTENANCE, 10, 50)
    rig.restart()
    rig.ticks(20)
    assert [rig.state(job) for job in (runs, stands)] == ["pending", "pending"]
    assert not rig.backend.world.jobs
    assert rig.service.admin.nodes(ADMIN)[0].state == "maintenance"
    rig.service.desk.resume(ADMIN, stands)
    rig.ticks(45)
    assert [rig.state(job) for job in (runs, stands)] == ["running", "running"]
    assert rig.attempts(runs, stands) == [2, 2]


def test_why_says_which_window_keeps_a_job(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    removed = window(rig, MAINTENANCE, 100, 100)
    job, short = rig.submit(expected=500), rig.submit("sleep 10", max_runtime=20)
    rig.ticks(2)
    assert [rig.state(one) for one in (job, short)] == ["pending", "running"]
    assert "would not end before the maintenance" in rig.service.desk.why(ADMIN, job)["text"]
    rig.service.admin.remove_window(ADMIN, removed)
    rig.ticks(2)
    assert rig.state(job) == "running"
    with pytest.raises(NotFound):
        rig.service.admin.remove_window(ADMIN, removed)


def test_a_reservation_is_for_its_owner_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", TWO)
    there = rig.submit("sleep 300", caller=BOB, gpus=2)
    also = rig.submit("sleep 300", caller=BOB, gpus=2)
    rig.ticks(1)
    assert [place(rig, job) for job in (there, also)] == [["n0"], ["n1"]]
    window(rig, RESERVATION, 20, 100, "n1", tenant="red")
    rig.ticks(30)
    assert [rig.state(job) for job in (there, also)] == ["running", "pending"]
    mine, theirs = rig.submit("sleep 30", caller=ANN, gpus=2), rig.submit("sleep 30", caller=BOB, gpus=1)
    rig.ticks(3)
    assert (rig.state(mine), place(rig, mine), rig.state(theirs)) == ("running", ["n1"], "pending")
    rig.ticks(100)
    assert rig.state(also) == "running"


def test_windows_are_checked(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", TWO)
    with pytest.raises(NotFound, match="n9"):
        window(rig, MAINTENANCE, 10, 10, "n9")
    with pytest.raises(InputError, match="over already"):
        window(rig, MAINTENANCE, -20, 10, "n0")
    with pytest.raises(InputError, match="tenant"):
        window(rig, RESERVATION, 10, 10, "n0")
    window(rig, RESERVATION, 10, 10, "n0", tenant="red")
    with pytest.raises(Conflict, match="n0"):
        window(rig, RESERVATION, 15, 10, "n0", tenant="blue")
    begins_s = rig.backend.now_s + 15
    made = rig.service.admin.add_window(ADMIN, NodeWindow("", RESERVATION, (), begins_s, begins_s + 5, "blue"), gpus=2)
    assert made.nodes == ("n1",)
    with pytest.raises(InputError, match="at most 0"):
        rig.service.admin.add_window(ADMIN, NodeWindow("", RESERVATION, (), begins_s, begins_s + 5, "blue"), gpus=2)


def test_a_node_that_goes_away_is_left_in_time(tmp_path: Path) -> None:
    """Its time is nearly over: nothing starts there, and who is there saves and goes on elsewhere."""
    rig = Rig(tmp_path, nodes=TWO)
    first, second = rig.submit("sleep 100", gpus=2), rig.submit("sleep 100", gpus=1)
    rig.ticks(2)
    (left,), (stays,) = place(rig, first), place(rig, second)
    nodes = rig.backend.world.nodes
    nodes[left] = replace(nodes[left], leaves_s=rig.backend.now_s + 10)
    rig.ticks(5)
    assert rig.state(first) == "running"
    rig.ticks(20)
    assert rig.state(first) == "pending"
    assert rig.attempts(first, second) == [1, 1]
    nodes[left] = replace(nodes[left], leaves_s=0.0)
    rig.ticks(2)
    assert (rig.state(first), place(rig, first), place(rig, second)) == ("running", [left], [stays])
