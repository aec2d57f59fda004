"""The second rung of the ladder: jobs that cannot be asked are suspended, and go on where they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import Capabilities, NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.beliefs.live_profiles import LiveProfiles
from cotenant.core.errors import InvariantError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Record
from cotenant.runtime.protocol import Progress
from cotenant.service.executor.ladder import can_suspend
from cotenant.service.observer import outcomes
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.phases import GUESSED
from cotenant.service.store.book import Book
from cotenant.service.store.job import SUSPEND, Attempt
from cotenant.service.store.learned import SUSPENDING, phase_keys


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, "srtf:weigh=false")


def _kinds(rig: Rig, job: str) -> list[str]:
    return [event.kind for event in rig.service.desk.events(ADMIN, job)]


def _suspended(rig: Rig, **more: Any) -> tuple[str, str]:
    """A long job that was suspended for a short one which runs for ever."""
    long = rig.submit("sleep 30", gpus=4, expected=500, **more)
    rig.ticks(3)
    short = rig.submit("sleep infinity", gpus=4, expected=1, preemptible=False)
    rig.ticks(2)
    assert [rig.state(long), rig.state(short)] == ["suspended", "running"]
    return long, short


def test_a_job_that_cannot_save_is_suspended_and_goes_on(rig: Rig) -> None:
    long = rig.submit("sleep 30", gpus=4, expected=100)
    rig.ticks(10)
    short = rig.submit("sleep 5", gpus=4, expected=5)
    rig.ticks(2)
    assert [rig.state(long), rig.state(short)] == ["suspended", "running"]
    assert [job.state for job in rig.backend.world.jobs.values()] == ["suspended", "running"]
    rig.finish()
    info = rig.service.desk.job(ADMIN, long)
    (attempt,) = info.attempts
    assert (str(info.state), attempt.lost_s, attempt.exit_code) == ("succeeded", 0.0, 0)
    away = (rig.service.desk.job(ADMIN, short).ended_s or 0) - (rig.service.desk.job(ADMIN, short).started_s or 0)
    assert (info.ended_s or 0) - (info.started_s or 0) == pytest.approx(30 + away, abs=3)
    kinds = ["submit", "launch", "started", "stop", "rung", "suspended", "continue", "continued", "exit"]
    assert _kinds(rig, long) == kinds
    assert rig.service.admin.metrics()["cotenant_suspensions_total"] == 1


def test_the_job_behind_starts_as_soon_as_the_other_stands_still(rig: Rig) -> None:
    rig.submit("sleep 100", gpus=4, expected=100)
    rig.ticks(3)
    short = rig.submit("sleep 5", gpus=4, expected=5)
    assert rig.service.tick() == 0.0
    rig.service.tick()
    assert rig.state(short) == "starting"
    assert rig.service.admin.nodes(ADMIN)[0].gpus_used == 4


def test_a_deaf_job_is_suspended_too(rig: Rig) -> None:
    deaf = rig.submit("trap '' TERM; sleep 20", gpus=4, expected=100)
    rig.ticks(2)
    rig.submit("sleep 1", gpus=4, expected=1)
    rig.finish()
    assert len(rig.service.desk.job(ADMIN, deaf).attempts) == 1


def test_one_that_was_asked_in_vain_is_suspended_after_the_grace_period(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = rig.submit("sleep 100", gpus=4, expected=100)
    rig.ticks(2)
    listening = {job}
    monkeypatch.setattr(rig.service.reports, "ask_to_stop", lambda name, grace_s: name in listening)
    monkeypatch.setattr(rig.service.reports, "listens", lambda name: name in listening)
    rig.says(job, Progress(1, None, saves=True))
    rig.submit("sleep 1", gpus=4, expected=1)
    rig.ticks(4)
    assert rig.state(job) == "stopping"
    rig.ticks(3)
    assert _kinds(rig, job)[3:6] == ["stop", "rung", "suspended"]
    assert rig.service.store.book.costs.of(SUSPEND).free_s == pytest.approx(6, abs=1.1)
    rig.finish()
    assert rig.state(job) == "succeeded"


def test_a_job_not_seen_yet_is_waited_for(rig: Rig) -> None:
    rig.backend.behave = lambda spec: replace(FakeBackend().behave(spec), start_s=2.0 if spec.job == "1" else 0.0)
    slow = rig.submit("sleep 10", gpus=4, expected=100)
    rig.service.tick()
    short = rig.submit("sleep 1", gpus=4, expected=1)
    rig.ticks(1)
    assert [rig.state(slow), rig.state(short)] == ["stopping", "pending"]
    rig.ticks(2)
    assert rig.state(slow) == "suspended"
    rig.finish()
    assert len(rig.service.desk.job(ADMIN, slow).attempts) == 1


def test_at_most_so_many_are_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf:weigh=false", max_suspended=1)
    long = [rig.submit("sleep 50", gpus=2, expected=100 + k) for k in range(2)]
    rig.ticks(3)
    rig.submit("sleep infinity", gpus=4, expected=1, preemptible=False)
    rig.ticks(3)
    assert sorted(rig.state(job) for job in long) == ["pending", "suspended"]


def test_suspended_jobs_may_hold_half_the_memory(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf:weigh=false", (NodeInfo("n0", "gpu", 4, 8, 64.0),))
    long = [rig.submit("sleep 50", gpus=2, expected=100, mem=size) for size in ("20G", "14G")]
    rig.ticks(3)
    rig.submit("sleep infinity", gpus=4, expected=1, preemptible=False)
    rig.ticks(3)
    assert sorted(rig.state(job) for job in long) == ["pending", "suspended"]


def test_a_backend_that_cannot_suspend_stops(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.backend, "suspend", lambda key: False)
    long = rig.submit("trap '' TERM; sleep 50", gpus=4, expected=100)
    rig.ticks(3)
    rig.submit("sleep 1", gpus=4, expected=1)
    rig.ticks(4)
    assert rig.state(long) == "stopping"
    rig.ticks(4)
    info = rig.service.desk.job(ADMIN, long)
    assert info.attempts[0].signal == 9
    assert info.attempts[0].lost_s > 3
    assert [event.data["rung"] for event in rig.service.desk.events(ADMIN, long) if event.kind == "rung"] == [
        "suspend",
        "stop",
    ]


@pytest.mark.parametrize(
    ("gpu", "suspend", "driver", "able"),
    [
        ("virtual", "sigstop", "none", True),
        ("none", "freezer", "none", True),
        ("virtual", "none", "none", False),
        ("nvml", "freezer", "none", False),
        ("nvml", "freezer", "driver", True),
        ("nvml", "sigstop", "cuda-checkpoint", True),
    ],
)
def test_real_gpus_are_given_back_only_with_the_drivers_help(gpu: Any, suspend: Any, driver: Any, able: bool) -> None:
    assert can_suspend(Capabilities(gpu, True, True, True, suspend, driver, "cgroup", True)) is able


def test_time_stands_still_for_a_suspended_job(rig: Rig) -> None:
    long, short = _suspended(rig, max_runtime=20)
    before = rig.service.store.book.jobs[long].attained_s(rig.backend.now_s)
    rig.ticks(100)
    assert rig.state(long) == "suspended"
    assert rig.service.store.book.jobs[long].attained_s(rig.backend.now_s) == before
    rig.service.desk.cancel(ADMIN, short)
    rig.finish()
    info = rig.service.desk.job(ADMIN, long)
    assert (str(info.state), info.reason) == ("failed", "ran longer than max_runtime 20 s")
    assert rig.service.store.book.jobs[long].attained_s(rig.backend.now_s) == pytest.approx(20, abs=2.1)


def test_a_suspended_job_can_be_cancelled(rig: Rig) -> None:
    long, short = _suspended(rig)
    rig.service.desk.cancel(ADMIN, long)
    rig.ticks(1)
    assert rig.state(long) == "cancelled"
    assert rig.service.desk.job(ADMIN, long).attempts[0].signal == 9
    assert [rig.state(short), rig.service.admin.nodes(ADMIN)[0].gpus_used] == ["running", 4]


def test_a_suspended_job_can_be_held(rig: Rig) -> None:
    long, short = _suspended(rig)
    assert rig.service.desk.job(ADMIN, long).reason.startswith("suspended")
    assert rig.service.desk.why(ADMIN, long)["cause"] == "waiting for capacity"
    rig.service.desk.hold(ADMIN, long)
    rig.service.desk.cancel(ADMIN, short)
    rig.ticks(5)
    assert (rig.state(long), rig.service.desk.job(ADMIN, long).reason) == ("suspended", "held")
    assert rig.service.desk.why(ADMIN, long)["cause"] == "held"
    rig.service.desk.resume(ADMIN, long)
    rig.finish()
    assert len(rig.service.desk.job(ADMIN, long).attempts) == 1


def test_a_restart_keeps_it_suspended(rig: Rig) -> None:
    long, short = _suspended(rig)
    rig.backend.advance(500)
    before = rig.service.store.book.freeze()
    rig.restart()
    assert rig.service.store.book.freeze() == before
    rig.ticks(3)
    assert rig.state(long) == "suspended"
    assert rig.backend.world.jobs["1-1"].told == ["suspend"]
    rig.service.store.snapshot()
    rig.restart()
    rig.service.desk.cancel(ADMIN, short)
    rig.finish()
    (attempt,) = rig.service.desk.job(ADMIN, long).attempts
    assert attempt.exit_code == 0


def test_whoever_is_woken_from_outside_is_suspended_again(rig: Rig) -> None:
    _suspended(rig)
    rig.backend.resume("1-1")
    rig.service.tick()
    assert rig.backend.world.jobs["1-1"].state == "suspended"


def test_killed_while_suspended_costs_no_retry(rig: Rig) -> None:
    long, short = _suspended(rig, retries=0)
    rig.backend.kill("1-1")
    rig.ticks(1)
    info = rig.service.desk.job(ADMIN, long)
    assert (str(info.state), info.reason) == ("pending", "signal 9 while it was suspended; tries again")
    assert info.attempts[0].lost_s == pytest.approx(3, abs=1.1)
    rig.service.desk.cancel(ADMIN, short)
    rig.finish()
    assert (rig.state(long), rig.service.store.book.jobs[long].failures) == ("succeeded", 0)


def test_new_jobs_keep_off_the_gpus_of_suspended_ones(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf:weigh=false", (NodeInfo("n0", "gpu", 4, 8, 64.0),))
    low = rig.submit("sleep 30", gpus=2, expected=500)
    rig.ticks(1)
    high = rig.submit("sleep 20", gpus=2, expected=400)
    rig.ticks(2)
    first = rig.submit("sleep 60", gpus=3, expected=3, preemptible=False)
    rig.ticks(1)
    assert [rig.state(job) for job in (low, high)] == ["suspended"] * 2
    rig.service.desk.cancel(ADMIN, first)
    rig.service.desk.hold(ADMIN, high)
    rig.ticks(1)
    assert rig.state(low) == "running"
    ((_, home),) = rig.service.desk.job(ADMIN, high).attempts[0].nodes
    rig.service.desk.cancel(ADMIN, low)
    rig.ticks(1)
    small = rig.submit("sleep 5", gpus=1, expected=5, preemptible=False)
    rig.ticks(1)
    ((_, taken),) = rig.service.desk.job(ADMIN, small).attempts[0].nodes
    assert not set(taken) & set(home)
    rig.service.desk.resume(ADMIN, high)
    rig.finish()
    assert (rig.state(high), len(rig.service.desk.job(ADMIN, high).attempts)) == ("succeeded", 1)


def test_without_its_gpus_it_waits_and_then_starts_again_elsewhere(tmp_path: Path) -> None:
    """Suspended on two GPUs, which a fixed job then has; the other two come free."""
    rig = Rig(tmp_path, "srtf:weigh=false", (NodeInfo("n0", "gpu", 4, 8, 64.0),))
    long = rig.submit("sleep 30", gpus=2, expected=500)
    other = rig.submit("sleep 40", gpus=2, expected=400, preemptible=False)
    rig.ticks(10)
    rig.submit("sleep infinity", gpus=2, expected=1, preemptible=False)
    rig.ticks(1)
    assert rig.state(long) == "suspended"
    while rig.state(other) == "running":
        rig.ticks(1)
    rig.ticks(3)
    assert rig.state(long) == "suspended", "it waits for its own GPUs, up to the grace period"
    rig.ticks(5)
    first, second = rig.service.desk.job(ADMIN, long).attempts
    ((_, before),), ((_, after),) = first.nodes, second.nodes
    assert sorted(before + after) == [0, 1, 2, 3]
    assert first.lost_s == pytest.approx(10, abs=2)
    cost = rig.service.store.book.costs.of(SUSPEND)
    assert (cost.taken, cost.lost_s) == (1, first.lost_s)
    rig.ticks(40)
    assert rig.state(long) == "succeeded"


@pytest.mark.parametrize("policy", ["srtf", "chronus", "optimus", "sjf-bsbf", "antman", "gandiva"])
def test_it_goes_on_at_home_though_others_are_free(tmp_path: Path, policy: str) -> None:
    rig = Rig(
        tmp_path, "srtf:weigh=false", tuple(NodeInfo(name, "gpu", 2, 8, 64.0) for name in ("a", "b")), budget_s=60.0
    )
    long = rig.submit("sleep 30", gpus=2, expected=500)
    rig.ticks(5)
    home = rig.service.desk.job(ADMIN, long).attempts[0].nodes
    shorts = [rig.submit("sleep 5", gpus=2, expected=5, preemptible=False) for _ in range(2)]
    rig.ticks(2)
    assert rig.state(long) == "suspended"
    rig.service.admin.set_policy(ADMIN, policy)
    rig.finish()
    assert [rig.state(job) for job in (long, *shorts)] == ["succeeded"] * 3
    assert [attempt.nodes for attempt in rig.service.desk.job(ADMIN, long).attempts] == [home]


def test_a_job_that_will_not_wake_starts_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = _suspended(rig)
    monkeypatch.setattr(rig.backend, "resume", lambda key: False)
    rig.service.desk.cancel(ADMIN, short)
    rig.finish()
    info = rig.service.desk.job(ADMIN, long)
    assert [attempt.exit_code for attempt in info.attempts] == [None, 0]
    assert rig.state(long) == "succeeded"


def test_cancelled_while_the_driver_still_works(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is free meanwhile: a cancel that comes then wins."""
    long = rig.submit("sleep 50", gpus=4, expected=100)
    rig.ticks(3)
    suspend = rig.backend.suspend

    def slow(key: str) -> bool:
        rig.service.desk.cancel(ADMIN, long)
        return suspend(key)

    monkeypatch.setattr(rig.backend, "suspend", slow)
    rig.submit("sleep 1", gpus=4, expected=1)
    rig.finish()
    assert rig.state(long) == "cancelled"
    assert "suspended" not in _kinds(rig, long)


def test_suspended_processes_on_a_lost_node_are_lost(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf:weigh=false", tuple(NodeInfo(name, "gpu", 2, 8, 64.0) for name in ("a", "b")))
    job = rig.submit("sleep 50", gpus=2, expected=500)
    rig.submit("sleep 100", gpus=2, expected=400, preemptible=False)
    rig.ticks(5)
    rig.submit("sleep 100", gpus=2, expected=3, preemptible=False)
    rig.ticks(2)
    assert rig.state(job) == "suspended"
    rig.backend.set_node(rig.service.desk.job(ADMIN, job).attempts[0].nodes[0][0], up=False)
    rig.ticks(1)
    assert rig.state(job) == "pending"
    assert rig.service.desk.job(ADMIN, job).attempts[0].lost_s == pytest.approx(5, abs=1.1)


def test_measured_times_are_what_is_believed(rig: Rig) -> None:
    """Of its kind first, then of whatever runs the same, then on such GPUs; before that it is a guess."""
    book = rig.service.store.book
    beliefs = LiveBeliefs(book, rig.service.reports, LiveProfiles("none", ("gpu",), {}), shares_hosts=False)
    mine, same, other = rig.submit("slow 30"), rig.submit("slow 40", gpus=2), rig.submit("else 5")
    believed = [beliefs.phases(book.jobs[job]).suspend_s for job in (mine, same, other)]
    assert believed == [GUESSED.suspend_s] * 3
    book.learned.add(SUSPENDING, phase_keys(book.jobs[mine], "gpu"), 40.0)
    book.learned.add(SUSPENDING, phase_keys(book.jobs[same], "gpu"), 10.0)
    believed = [beliefs.phases(book.jobs[job]).suspend_s for job in (mine, same, other)]
    assert believed == pytest.approx([40.0, 10.0, 20.0])
    assert beliefs.phases(book.jobs[mine]).restore_s == GUESSED.restore_s


def test_lost_work_counts_only_time_in_which_it_ran() -> None:
    attempt = Attempt(1, (), 0.0, started_s=10.0, since_s=10.0)
    assert attempt.lost_if_ended_s(25.0, None) == 15.0
    assert attempt.lost_if_ended_s(25.0, 20.0) == 5.0
    attempt.unsaved_s = attempt.lost_if_ended_s(25.0, 20.0)
    attempt.pause(25.0)
    assert (attempt.active_s(99.0), attempt.lost_if_ended_s(99.0, 20.0)) == (15.0, 5.0)
    attempt.since_s = 100.0
    assert (attempt.active_s(103.0), attempt.lost_if_ended_s(103.0, 20.0)) == (18.0, 8.0)
    assert attempt.lost_if_ended_s(103.0, 102.0) == 1.0


def test_snapshots_of_before_are_read() -> None:
    """A snapshot of a version that could not suspend: times of attempts and mean costs are taken over."""
    book = Book()
    spec = {"spec": {"run": "x"}, "tenant": "t", "user": "u"}
    book.apply(Record(1, 5.0, "submit", "1", spec))
    book.apply(Record(2, 6.0, "launch", "1", {"gpus": [["n", [0]]]}))
    book.apply(Record(3, 7.0, "started", "1", {}))
    data = json.loads(book.freeze())
    del data["rungs"]
    data["costs"] = [[2, 8.0], [1, 3.0]]
    for name in ("rung", "rung_s", "losses"):
        del data["jobs"][0][name]
    for name in ("since_s", "ran_s", "unsaved_s", "suspensions", "rung"):
        del data["jobs"][0]["attempts"][0][name]
    old = Book.thaw(json.dumps(data).encode())
    assert old.jobs["1"].attained_s(10.0) == 3.0
    assert old.preemption_cost_s(0.0) == 7.0


def test_only_written_moves_are_possible() -> None:
    book = Book()
    book.apply(Record(1, 5.0, "submit", "1", {"spec": {"run": "x"}, "tenant": "t", "user": "u"}))
    book.jobs["1"].attempts.append(Attempt(1, (), 0.0))
    with pytest.raises(InvariantError, match="pending to suspended"):
        book.apply(Record(2, 6.0, "suspended", "1", {"unsaved_s": 0.0}))
    assert book.jobs["1"].state == JobState.PENDING


def test_what_takes_every_process_with_it_is_given_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", tuple(NodeInfo(name, "gpu", 2, 8, 64.0) for name in ("a", "b")))
    job = rig.submit("sleep 100", gpus=2, retries=0)
    for _ in range(outcomes.MOST_LOSSES):
        rig.ticks(2)
        assert rig.state(job) == "running"
        ((node, _),) = rig.service.desk.job(ADMIN, job).attempts[-1].nodes
        rig.backend.set_node(node, up=False)
        rig.ticks(1)
        rig.backend.set_node(node, up=True)
    info = rig.service.desk.job(ADMIN, job)
    assert (str(info.state), len(info.attempts)) == ("failed", outcomes.MOST_LOSSES)
    assert info.reason == f"node {node} is down; lost {outcomes.MOST_LOSSES} times"
    assert rig.service.store.book.jobs[job].failures == 0
