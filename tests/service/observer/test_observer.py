"""What really runs against what the book says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from parts_kit import EPOCH_S, NODE, PartsRig

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake import read_script
from cotenant.service.observer.observer import MOST_UNDONE
from cotenant.service.options import Keep
from cotenant.service.planner.decision import Act, LiveDecision


@pytest.fixture
def rig(tmp_path: Path) -> PartsRig:
    return PartsRig(tmp_path)


def _start(rig: PartsRig, job: str, at: int = 0) -> None:
    gpus = rig.book.jobs[job].spec.gpus
    rig.does(Act("start", job, (("n0", tuple(range(at, at + gpus))),)))


def test_starts_and_ends_have_the_times_of_the_world(rig: PartsRig) -> None:
    job = rig.submit("sleep 2; exit 3", retries=1)
    _start(rig, job)
    rig.backend.advance(50)
    rig.core.tick()
    last = rig.book.jobs[job].last
    assert (last.started_s, last.ended_s, last.exit_code) == (EPOCH_S, EPOCH_S + 2, 3)
    assert (rig.state(job), rig.book.jobs[job].failures) == ("pending", 1)
    assert rig.backend.world.jobs == {}
    assert rig.core.counters["lost_work_s"] == 2


def test_a_launch_without_a_trace_did_not_happen(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.backend, "launch", lambda spec: None)
    job = rig.submit()
    for _ in range(MOST_UNDONE):
        assert rig.state(job) == "pending"
        _start(rig, job)
        assert rig.state(job) == "starting"
        rig.core.tick()
    assert (rig.state(job), len(rig.book.jobs[job].attempts)) == ("failed", MOST_UNDONE)


def test_a_launch_that_completes_late_is_waited_for(rig: PartsRig) -> None:
    rig.backend.behave = lambda spec: replace(read_script(spec), start_s=30.0)
    job = rig.submit("sleep 5")
    _start(rig, job)
    rig.ticks(29)
    assert rig.state(job) == "starting"
    rig.restart()
    assert rig.state(job) == "starting"
    rig.ticks(2)
    assert rig.state(job) == "running"
    rig.play(10)
    assert (rig.state(job), len(rig.book.jobs[job].attempts)) == ("succeeded", 1)


def test_a_launch_that_was_only_journaled_is_undone_by_the_next_start(rig: PartsRig) -> None:
    job, cancelled = rig.submit(), rig.submit()
    acts = tuple(Act("start", one, (("n0", (at,)),)) for at, one in enumerate((job, cancelled)))
    rig.core.executor.carry_out(LiveDecision(0, "", acts))
    rig.tell("stop", cancelled, why="cancel")
    rig.restart()
    assert [rig.state(job), rig.state(cancelled)] == ["pending", "cancelled"]
    assert rig.book.jobs[job].message.startswith("launch undone")
    assert rig.core.observer.ready


def test_what_nobody_owns_is_cleared_away(rig: PartsRig) -> None:
    job = rig.start("sleep infinity")
    rig.backend.advance(1)
    spec = rig.spec(job)
    rig.tell("exit", job, to="failed", why="a test says so")
    rig.ticks(2)
    assert rig.backend.world.jobs == {}
    rig.backend.launch(spec)
    rig.restart()
    assert rig.backend.world.jobs[f"{job}-1"].told == ["kill"]
    rig.ticks(1)
    assert rig.backend.world.jobs == {}


def test_whoever_is_woken_from_outside_is_suspended_again(rig: PartsRig) -> None:
    job = rig.start()
    rig.does(Act("suspend", job, why="preempt"))
    rig.backend.resume(f"{job}-1")
    rig.core.tick()
    assert rig.backend.world.jobs[f"{job}-1"].state == "suspended"


def test_a_lost_node_gives_its_jobs_back_and_shows(tmp_path: Path) -> None:
    rig = PartsRig(tmp_path, (NODE, NodeInfo("n1", "gpu", 4, 8, 64.0)))
    running, suspended = rig.start(retries=0), rig.start(at=1, retries=0)
    rig.does(Act("suspend", suspended, why="preempt"))
    rig.backend.set_node("n0", up=False)
    assert [node.state for node in rig.core.observer.nodes] == ["up", "up"]
    rig.core.tick()
    assert [node.state for node in rig.core.observer.nodes] == ["down", "up"]
    assert [rig.state(running), rig.state(suspended)] == ["pending", "pending"]
    assert [rig.book.jobs[job].failures for job in (running, suspended)] == [0, 0]


def test_those_after_a_failed_job_are_given_up_at_once(rig: PartsRig) -> None:
    first = rig.submit("exit 1", name="first")
    second, third = rig.submit(after=[first]), rig.submit(after=["2"])
    _start(rig, first)
    rig.ticks(1)
    assert [rig.state(job) for job in (first, second, third)] == ["failed", "cancelled", "cancelled"]
    assert rig.book.jobs[third].message == "job 2, which it comes after, has been cancelled"


def test_a_crash_of_the_service_costs_a_job_nothing(rig: PartsRig) -> None:
    job = rig.start("sleep 7200")
    rig.backend.advance(6000)
    rig.restart()
    rig.play(2000)
    (attempt,) = rig.book.jobs[job].attempts
    assert (rig.state(job), attempt.ended_s) == ("succeeded", EPOCH_S + 7200)


def test_old_jobs_are_retired_with_all_that_is_theirs(tmp_path: Path) -> None:
    rig = PartsRig(tmp_path, keep=Keep(100.0, checkpoints_s=100.0))
    old = rig.start("sleep 2")
    rig.ticks(5)
    assert rig.backend.world.checkpoints == {old}
    rig.backend.advance(50)
    new = rig.start("sleep 2")
    rig.ticks(60)
    assert (rig.core.retention.retire(), list(rig.book.jobs)) == (1, [new])
    assert rig.backend.world.checkpoints == {new}
    assert {key.split("-")[0] for key in rig.backend.world.kept} <= {new}
    assert rig.records(old) == []
    rig.backend.advance(3600)
    rig.core.tick()
    assert rig.book.jobs == {}
    rig.restart()
    assert rig.book.next_id == 3
