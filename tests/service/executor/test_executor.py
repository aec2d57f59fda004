"""Decisions are carried out: started, stopped, suspended, resumed, ended; and what comes of them is journaled."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from parts_kit import EPOCH_S, PartsRig
from service_kit import ADMIN, Rig

from cotenant.backends.base import BackendError, Capabilities, LaunchSpec, NodeGone
from cotenant.backends.fake import FakeBackend, read_script
from cotenant.core.plan import Terms
from cotenant.service.planner.decision import Act


@pytest.fixture
def rig(tmp_path: Path) -> PartsRig:
    return PartsRig(tmp_path)


def _at(*indexes: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return (("n0", indexes),)


def test_a_start_is_journaled_and_launched_on_exactly_these_gpus(rig: PartsRig) -> None:
    job = rig.submit(gpus=2, cpus=3)
    rig.does(Act("start", job, _at(1, 3)))
    assert (rig.state(job), rig.spec(job).gpus, rig.spec(job).cpu_share) == ("starting", _at(1, 3), 3.0)
    rig.play(20)
    assert rig.state(job) == "succeeded"
    assert rig.story(job) == ["submit", "launch", "started", "exit"]
    assert rig.book.jobs[job].last.ended_s == EPOCH_S + 10


def test_all_intents_of_a_decision_are_one_append_in_order(rig: PartsRig) -> None:
    one, two, three = rig.start(), rig.start(at=1), rig.submit()
    before = len(rig.disk.rows)
    rig.planner.promised = {three: _at(0)}
    rig.planner.remembered = {"deficit": {"a": 1.5}}
    four = rig.submit()
    rig.does(
        Act("start", four, _at(2), terms=Terms(level=1)), Act("suspend", two, why="turn"), Act("stop", one, why="split")
    )
    kinds = [row[2] for row in rig.disk.rows[before:]]
    assert kinds[1:8] == ["stop", "stop", "rung", "launch", "promise", "memory", "suspended"]
    assert rig.book.promises == {three: _at(0)}
    assert rig.book.memory == {"deficit": {"a": 1.5}}
    assert rig.book.jobs[four].last.level == 1
    before = len(rig.disk.rows)
    rig.core.tick()
    assert not {"promise", "memory"} & {row[2] for row in rig.disk.rows[before:]}, "only what changed"
    rig.planner.promised = {}
    rig.core.tick()
    assert rig.book.promises == {}


def test_a_job_that_hears_sigterm_leaves_at_once(rig: PartsRig) -> None:
    job = rig.start()
    rig.does(Act("stop", job, why="preempt"))
    rig.ticks(2)
    assert (rig.state(job), rig.book.jobs[job].message) == ("pending", "preempted, signal 15")
    assert rig.core.counters["preemptions"] == 1


def test_the_deaf_are_told_once_and_killed_after_two_periods(rig: PartsRig) -> None:
    job = rig.start("trap '' TERM; sleep infinity")
    asked_s = rig.backend.now_s
    rig.does(Act("stop", job, why="preempt"))
    rig.play(9.9)
    assert (rig.state(job), rig.told(job)) == ("stopping", ["terminate"])
    rig.play(1)
    assert rig.state(job) == "pending"
    assert rig.book.jobs[job].last.ended_s == pytest.approx(asked_s + 10, abs=0.01)


@pytest.mark.parametrize(("why", "then"), [("preempt", "suspended"), ("resize", "pending")])
def test_a_job_that_saves_is_asked_and_waited_for(rig: PartsRig, why: str, then: str) -> None:
    job = rig.start()
    rig.saves(job)
    rig.does(Act("stop", job, why=why))
    rig.play(4.9)
    assert (rig.state(job), rig.told(job)) == ("stopping", [])
    rig.play(0.2)
    assert rig.state(job) == then


def test_one_that_could_save_is_suspended_at_once_where_the_planner_wants_it(rig: PartsRig) -> None:
    job = rig.start()
    rig.saves(job)
    rig.does(Act("suspend", job, why="preempt"))
    assert rig.state(job) == "suspended"
    assert [row.data["rung"] for row in rig.records(job) if row.kind == "rung"] == ["suspend"]


def test_suspended_for_a_turn_without_being_asked_and_resumed(rig: PartsRig) -> None:
    job = rig.start("sleep 20")
    rig.saves(job)
    rig.does(Act("suspend", job, why="turn"))
    assert rig.state(job) == "suspended"
    assert rig.core.counters["suspensions"] == 1
    rig.ticks(50)
    assert rig.state(job) == "suspended"
    rig.does(Act("resume", job))
    assert rig.state(job) == "running"
    rig.play(30)
    assert rig.state(job) == "succeeded"
    kinds = ["submit", "launch", "started", "stop", "rung", "suspended", "continue", "continued", "exit"]
    assert rig.story(job) == kinds


def test_a_job_not_seen_yet_is_suspended_once_it_is(rig: PartsRig) -> None:
    rig.backend.behave = lambda spec: replace(read_script(spec), start_s=2.0)
    job = rig.submit()
    rig.does(Act("start", job, _at(0)))
    rig.does(Act("suspend", job, why="preempt"))
    assert rig.state(job) == "stopping"
    rig.ticks(2)
    assert rig.state(job) == "suspended"


def test_a_suspend_that_fails_becomes_a_stop(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.start("trap '' TERM; sleep infinity")
    monkeypatch.setattr(rig.backend, "suspend", lambda key: False)
    rig.does(Act("suspend", job, why="preempt"))
    assert [row.data["rung"] for row in rig.records(job) if row.kind == "rung"] == ["suspend", "stop"]
    rig.play(4.9)
    assert (rig.state(job), rig.told(job)) == ("stopping", ["terminate"])
    rig.play(0.2)
    assert rig.state(job) == "pending"


def test_a_suspend_that_takes_time_is_asked_for_again(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    job, suspend = rig.start(), rig.backend.suspend
    ready_s = rig.backend.now_s + 3
    monkeypatch.setattr(rig.backend, "suspend", lambda key: suspend(key) if rig.backend.now_s >= ready_s else None)
    rig.does(Act("suspend", job, why="preempt"))
    rig.ticks(2)
    assert rig.state(job) == "stopping"
    rig.ticks(1)
    assert rig.state(job) == "suspended"
    assert rig.records(job)[-1].data["seconds"] == 3


def test_where_there_is_no_room_a_suspend_becomes_a_stop(tmp_path: Path) -> None:
    rig = PartsRig(tmp_path, max_suspended=1)
    one, two = rig.start(), rig.start(at=1)
    rig.does(Act("suspend", one, why="preempt"), Act("suspend", two, why="preempt"))
    rig.ticks(2)
    assert [rig.state(one), rig.state(two)] == ["suspended", "pending"]


def test_a_suspended_job_is_ended_where_its_gpus_are_not_to_be_had(rig: PartsRig) -> None:
    job = rig.start()
    rig.ticks(4)
    rig.does(Act("suspend", job, why="preempt"))
    rig.does(Act("end", job))
    rig.ticks(2)
    found = rig.book.jobs[job]
    assert (rig.state(job), found.last.signal, found.last.lost_s) == ("pending", 9, pytest.approx(5))
    assert found.message == "its GPUs were not to be had: starts again on others"


def test_a_job_that_will_not_wake_is_killed_and_starts_again(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.start()
    rig.does(Act("suspend", job, why="turn"))
    monkeypatch.setattr(rig.backend, "resume", lambda key: False)
    rig.does(Act("resume", job))
    rig.ticks(2)
    assert rig.state(job) == "pending"
    assert rig.book.costs.of("suspend").lost_s > 0


def test_acts_that_come_too_late_are_handed_back(rig: PartsRig) -> None:
    held, gone, runs = rig.submit(), rig.submit(), rig.start(at=2)
    rig.tell("hold", held)
    rig.tell("stop", gone, why="cancel")
    acts = (Act("start", held, _at(0)), Act("start", gone, _at(1)), Act("start", runs, _at(2)), Act("resume", runs))
    before = rig.book.seq
    assert rig.core.executor.carry_out(replace(rig.planner.step(0), acts=acts)) == acts[3:] + acts[:3]
    assert rig.book.seq == before


def test_a_launch_that_fails_says_why_and_leaves_nothing(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: LaunchSpec) -> None:
        raise BackendError("no space")

    monkeypatch.setattr(rig.backend, "launch", refuse)
    job = rig.submit()
    rig.does(Act("start", job, _at(0)))
    assert (rig.state(job), rig.book.jobs[job].message) == ("failed", "it could not be started: no space")
    assert rig.book.on_gpus == {}
    assert rig.backend.world.jobs == {}


# -- what people ask for ---------------------------------------------------------------------------------------------


def test_cancelled_running_suspended_and_starting_jobs(rig: PartsRig) -> None:
    running, suspended, starting = rig.start(), rig.start(at=1), rig.submit()
    rig.does(Act("suspend", suspended, why="preempt"))
    rig.does(Act("start", starting, _at(2)))
    for job in (running, suspended, starting):
        rig.tell("stop", job, why="cancel")
    rig.ticks(1)
    assert [rig.state(job) for job in (running, suspended, starting)] == ["cancelled"] * 3
    assert [rig.book.jobs[job].last.signal for job in (running, suspended)] == [15, 9]


def test_a_cancel_wins_over_a_suspend_under_way(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    job, suspend = rig.start(), rig.backend.suspend

    def slow(key: str) -> bool:
        rig.tell("stop", job, why="cancel")
        return suspend(key)

    monkeypatch.setattr(rig.backend, "suspend", slow)
    rig.does(Act("suspend", job, why="preempt"))
    rig.ticks(2)
    assert rig.state(job) == "cancelled"
    assert "suspended" not in rig.story(job)


def test_held_jobs_leave_and_stay_away(rig: PartsRig) -> None:
    """One that cannot save is suspended where that is possible, else stopped."""
    stands, leaves = rig.start(), rig.start(at=1, preemptible=False)
    for job in (stands, leaves):
        rig.tell("hold", job)
    rig.ticks(2)
    assert (rig.state(stands), len(rig.book.jobs[stands].attempts)) == ("suspended", 1)
    assert (rig.state(leaves), rig.book.jobs[leaves].message) == ("pending", "held, signal 15")
    rig.does(Act("resume", stands), Act("start", leaves, _at(0)))
    assert [rig.state(job) for job in (stands, leaves)] == ["suspended", "pending"]
    rig.tell("resume", leaves)
    rig.does(Act("start", leaves, _at(0)))
    rig.ticks(1)
    assert (rig.state(leaves), rig.book.jobs[leaves].message) == ("running", "")


def test_time_limits_are_kept_to_the_moment_and_without_suspended_time(rig: PartsRig) -> None:
    job = rig.start(max_runtime=20)
    rig.does(Act("suspend", job, why="turn"))
    ran_s = rig.book.jobs[job].last.ran_s
    rig.play(100)
    rig.does(Act("resume", job))
    since_s = rig.backend.now_s
    rig.play(30)
    assert rig.state(job) == "failed"
    assert rig.book.jobs[job].last.ended_s == pytest.approx(since_s + 20 - ran_s, abs=0.01)


def test_another_size_that_people_ask_for(rig: PartsRig) -> None:
    job = rig.start(gpus=1, elastic={"min_gpus": 1, "max_gpus": 4})
    rig.tell("resize", job, gpus=2)
    rig.ticks(2)
    assert (rig.state(job), rig.book.jobs[job].spec.gpus) == ("pending", 2)
    rig.does(Act("start", job, _at(0, 1)))
    assert rig.spec(job).env["COTENANT_GPUS"] == "2"


# -- slow acts, on threads -------------------------------------------------------------------------------------------


def _until(rig: PartsRig, job: str, state: str) -> None:
    waits = threading.Event()
    for _ in range(500):
        rig.backend.advance(0)
        rig.core.tick()
        if rig.state(job) == state:
            return
        waits.wait(0.01)
    raise AssertionError(rig.state(job))


def test_a_slow_suspend_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PartsRig(tmp_path, inline=False)
    first, second = rig.submit("sleep infinity"), rig.submit("sleep infinity")
    rig.does(Act("start", first, _at(0)))
    _until(rig, first, "running")
    entered, go_on = threading.Event(), threading.Event()
    suspend = rig.backend.suspend

    def slow(key: str) -> bool:
        entered.set()
        assert go_on.wait(10)
        return suspend(key)

    monkeypatch.setattr(rig.backend, "suspend", slow)
    rig.does(Act("suspend", first, why="preempt"))
    assert entered.wait(10)
    third = rig.submit("sleep 1")
    rig.does(Act("start", second, _at(1)))
    _until(rig, second, "running")
    assert (rig.state(first), rig.state(third)) == ("stopping", "pending")
    assert rig.core.executor.in_flight == {f"{first}-1"}
    go_on.set()
    _until(rig, first, "suspended")
    rig.core.close()


def test_a_slow_launch_is_not_taken_for_one_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PartsRig(tmp_path, inline=False)
    job, other = rig.submit("sleep infinity"), rig.submit("sleep infinity")
    entered, go_on = threading.Event(), threading.Event()
    launch = rig.backend.launch

    def slow(spec: LaunchSpec) -> None:
        if spec.job == job:
            entered.set()
            assert go_on.wait(10)
        launch(spec)

    monkeypatch.setattr(rig.backend, "launch", slow)
    rig.does(Act("start", job, _at(0)), Act("start", other, _at(1)))
    assert entered.wait(10)
    _until(rig, other, "running")
    assert (rig.state(job), len(rig.book.jobs[job].attempts)) == ("starting", 1)
    rig.tell("stop", job, why="cancel")
    rig.core.tick()
    go_on.set()
    _until(rig, job, "cancelled")
    rig.core.close()


def test_what_nodes_can_do_may_be_known_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend without any node at the start says what it can once it has one: held jobs are suspended then."""
    known, said = FakeBackend.capabilities, [Capabilities("none", False, False, False, "none", "none", "none", True)]
    monkeypatch.setattr(FakeBackend, "capabilities", lambda self: said[0] if said else known(self))
    rig = Rig(tmp_path)
    said.clear()
    job = rig.submit("sleep 100")
    rig.ticks(2.0)
    rig.service.desk.hold(ADMIN, job)
    rig.ticks(2.0)
    assert rig.state(job) == "suspended"


def test_a_node_that_goes_away_before_the_launch_costs_a_job_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: it waits on, and starts when there is a node."""
    launch, gone = FakeBackend.launch, ["n0"] * 8

    def launched(self: FakeBackend, spec: LaunchSpec) -> None:
        if gone:
            raise NodeGone(f"job {spec.key}: node {gone.pop()} is down")
        launch(self, spec)

    monkeypatch.setattr(FakeBackend, "launch", launched)
    rig = Rig(tmp_path)
    job = rig.submit("sleep 5")
    rig.finish()
    assert (rig.state(job), rig.attempts(job)) == ("succeeded", [9])
