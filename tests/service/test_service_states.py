from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.service.facade import Conflict

POLICIES = ["fifo", "srtf", "tiresias-l"]


@pytest.fixture(params=POLICIES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    return Rig(tmp_path, request.param)


@pytest.fixture
def fifo(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def srtf(tmp_path: Path) -> Rig:
    return Rig(tmp_path, "srtf:weigh=false", max_suspended=0)


def test_a_job_goes_from_pending_to_succeeded(rig: Rig) -> None:
    job = rig.submit("sleep 3")
    assert rig.state(job) == "pending"
    rig.service.tick()
    assert rig.state(job) == "starting"
    rig.backend.advance(0.1)
    rig.service.tick()
    assert rig.state(job) == "running"
    rig.finish()
    info = rig.service.desk.job(ADMIN, job)
    assert (str(info.state), info.reason, info.attempts[0].exit_code) == ("succeeded", "exit code 0", 0)
    assert info.attempts[0].nodes == (("n0", (0,)),)
    assert info.ended_s is not None
    assert info.started_s is not None
    assert info.ended_s - info.started_s == pytest.approx(3, abs=1.1)


def test_every_kind_of_job_reaches_its_end(rig: Rig) -> None:
    mixed = [rig.submit(f"sleep {1 + k % 5}", gpus=1 + k % 4, expected=1 + k % 5) for k in range(20)]
    fails, retried = rig.submit("exit 3"), rig.submit("exit 4", retries=2)
    killed = rig.submit("kill -9 $$")
    hangs = rig.submit("sleep infinity", max_runtime=20)
    deaf = rig.submit("trap '' TERM; sleep infinity", max_runtime=10)
    array = rig.service.desk.submit(ADMIN, [parse_job({"run": "sleep 1", "array": "0-4"})])[0]
    first = rig.submit("sleep 1")
    second = rig.submit("sleep 1", after=[first])
    third = rig.submit("sleep 1", after=[second, *array])
    late, never = rig.submit("sleep infinity"), rig.submit("sleep 1", after=[fails])
    rig.ticks(2)
    rig.service.desk.cancel(ADMIN, late)
    rig.finish()
    for job in [*mixed, *array, first, second, third]:
        assert rig.state(job) == "succeeded"
    assert [rig.state(job) for job in (fails, retried, killed, hangs, deaf)] == ["failed"] * 5
    assert [rig.state(job) for job in (late, never)] == ["cancelled"] * 2
    tries = rig.service.desk.job(ADMIN, retried).attempts
    assert [attempt.exit_code for attempt in tries if attempt.exit_code is not None] == [4, 4, 4]
    assert rig.service.desk.job(ADMIN, killed).attempts[-1].signal == 9
    assert "max_runtime" in rig.service.desk.job(ADMIN, hangs).reason
    assert rig.service.desk.job(ADMIN, deaf).attempts[-1].signal == 9
    assert fails in rig.service.desk.job(ADMIN, never).reason
    starts = [rig.service.desk.job(ADMIN, job).started_s or 0 for job in (first, second, third)]
    assert starts == sorted(starts)
    assert not rig.backend.world.jobs, "the backend forgets what has ended"
    assert rig.service.admin.nodes(ADMIN)[0].gpus_used == 0


def test_retries_then_success_keeps_the_attempts(fifo: Rig) -> None:
    job = fifo.submit("sleep 2; exit 1", retries=1)
    fifo.ticks(3)
    assert "0 retries left" in fifo.service.desk.job(ADMIN, job).reason or fifo.state(job) in ("starting", "running")
    fifo.finish()
    attempts = fifo.service.desk.job(ADMIN, job).attempts
    assert [(a.number, a.exit_code) for a in attempts] == [(1, 1), (2, 1)]
    assert all(a.lost_s == pytest.approx(2, abs=0.5) for a in attempts)


def test_the_deaf_get_one_grace_period(fifo: Rig) -> None:
    job = fifo.submit("trap '' TERM; sleep infinity")
    fifo.ticks(1)
    asked = fifo.backend.now_s
    fifo.service.desk.cancel(ADMIN, job)
    fifo.ticks(4)
    assert fifo.state(job) == "stopping"
    assert fifo.service.admin.nodes(ADMIN)[0].gpus_used == 1
    fifo.finish()
    info = fifo.service.desk.job(ADMIN, job)
    assert str(info.state) == "cancelled"
    assert 5 < (info.ended_s or 0) - asked < 8


def test_cancel_by_force_waits_for_nobody(fifo: Rig) -> None:
    deaf, asked_before = (fifo.submit("trap '' TERM; sleep infinity") for _ in range(2))
    fifo.ticks(1)
    fifo.service.desk.cancel(ADMIN, asked_before)
    fifo.ticks(1)
    asked = fifo.backend.now_s
    for job in (deaf, asked_before):
        fifo.service.desk.cancel(ADMIN, job, force=True)
    fifo.finish()
    for job in (deaf, asked_before):
        info = fifo.service.desk.job(ADMIN, job)
        assert (str(info.state), info.attempts[-1].signal) == ("cancelled", 9)
        assert (info.ended_s or 0) - asked <= 1


def test_cancel_while_pending_and_after_the_end(fifo: Rig) -> None:
    big, waiting = fifo.submit("sleep 5", gpus=4), fifo.submit()
    fifo.ticks(1)
    fifo.service.desk.cancel(ADMIN, waiting)
    assert fifo.state(waiting) == "cancelled"
    fifo.service.desk.cancel(ADMIN, waiting)
    fifo.finish()
    with pytest.raises(Conflict):
        fifo.service.desk.cancel(ADMIN, big)
    for act in (fifo.service.desk.hold, fifo.service.desk.resume):
        with pytest.raises(Conflict):
            act(ADMIN, big)
    with pytest.raises(Conflict):
        fifo.service.desk.set(ADMIN, big, {"priority": 1})


def test_cancelling_the_predecessor_ends_the_chain(fifo: Rig) -> None:
    first = fifo.submit("sleep infinity", name="prepare")
    second = fifo.submit(after=["prepare"])
    third = fifo.submit(after=[second])
    fifo.ticks(1)
    assert fifo.service.desk.job(ADMIN, second).reason == f"after job {first}"
    fifo.service.desk.cancel(ADMIN, first)
    fifo.finish()
    assert [fifo.state(job) for job in (first, second, third)] == ["cancelled"] * 3
    assert fifo.service.desk.job(ADMIN, second).reason == f"job {first}, which it comes after, has been cancelled"


def test_one_failed_element_cancels_who_waits_for_the_array(fifo: Rig) -> None:
    array = fifo.submit("exit 1", array="0-1")
    last = fifo.submit(after=[array])
    fifo.finish()
    assert fifo.state(last) == "cancelled"
    assert fifo.service.desk.submit(ADMIN, [parse_job({"run": "true", "array": "3,5"})])[0][1].endswith(".5")


def test_after_may_name_jobs_of_the_same_submission(fifo: Rig) -> None:
    specs = [parse_job({"run": "sleep 1", "name": "a"}), parse_job({"run": "sleep 1", "after": ["a"]})]
    (one,), (two,) = fifo.service.desk.submit(ADMIN, specs)
    assert fifo.service.desk.job(ADMIN, two).reason == f"after job {one}"
    fifo.finish()
    assert fifo.state(two) == "succeeded"
    with pytest.raises(InputError, match="nobody"):
        fifo.submit(after=["nobody"])


def test_hold_and_resume(rig: Rig) -> None:
    job = rig.submit("sleep 10")
    rig.service.desk.hold(ADMIN, job)
    rig.ticks(3)
    assert (rig.state(job), rig.service.desk.job(ADMIN, job).reason) == ("pending", "held")
    assert rig.service.desk.why(ADMIN, job)["cause"] == "held"
    rig.service.desk.resume(ADMIN, job)
    rig.ticks(2)
    assert rig.state(job) == "running"
    rig.service.desk.hold(ADMIN, job)
    rig.ticks(3)
    assert (rig.state(job), rig.service.desk.job(ADMIN, job).reason) == ("suspended", "held")
    assert rig.service.admin.nodes(ADMIN)[0].gpus_used == 0
    rig.service.desk.resume(ADMIN, job)
    rig.finish()
    assert rig.state(job) == "succeeded"
    assert len(rig.service.desk.job(ADMIN, job).attempts) == 1


def test_cancel_a_held_and_a_stopping_job(fifo: Rig) -> None:
    held, deaf = fifo.submit(), fifo.submit("trap '' TERM; sleep infinity", preemptible=False)
    fifo.service.desk.hold(ADMIN, held)
    fifo.ticks(1)
    fifo.service.desk.hold(ADMIN, deaf)
    fifo.ticks(1)
    assert fifo.state(deaf) == "stopping"
    for job in (held, deaf):
        fifo.service.desk.cancel(ADMIN, job)
    fifo.finish()
    assert [fifo.state(job) for job in (held, deaf)] == ["cancelled", "cancelled"]


def test_set_changes_what_waits(srtf: Rig) -> None:
    srtf.submit("sleep 30", gpus=4, expected=30, preemptible=False)
    slow = srtf.submit("sleep 5", gpus=4, expected=500)
    quick = srtf.submit("sleep 5", gpus=4, expected=50)
    srtf.ticks(2)
    srtf.service.desk.set(ADMIN, slow, {"expected": "5s", "priority": 3, "name": "new"})
    info = srtf.service.desk.job(ADMIN, slow)
    assert (info.spec["expected_s"], info.priority, info.name) == (5, 3, "new")
    with pytest.raises(InputError, match="field to set"):
        srtf.service.desk.set(ADMIN, slow, {"run": "true"})
    srtf.finish()
    starts = [srtf.service.desk.job(ADMIN, job).started_s or 0 for job in (slow, quick)]
    assert starts[0] < starts[1]


def test_set_max_runtime_takes_hold_of_a_running_job(fifo: Rig) -> None:
    job = fifo.submit("sleep infinity")
    fifo.ticks(3)
    fifo.service.desk.set(ADMIN, job, {"max_runtime": 4})
    fifo.finish()
    assert fifo.state(job) == "failed"


def test_a_drained_node_takes_nothing_new(tmp_path: Path) -> None:
    nodes = tuple(NodeInfo(name, "gpu", 2, 8, 64.0) for name in ("a", "b"))
    rig = Rig(tmp_path, "srtf:weigh=false", nodes, max_suspended=0)
    long = [rig.submit("sleep 100", gpus=2, expected=100) for _ in range(2)]
    rig.ticks(1)
    where = {rig.service.desk.job(ADMIN, job).attempts[0].nodes[0][0]: job for job in long}
    rig.service.admin.drain(ADMIN, "a")
    assert {node.name: node.state for node in rig.service.admin.nodes(ADMIN)} == {"a": "draining", "b": "up"}
    short = [rig.submit("sleep 3", gpus=2, expected=3) for _ in range(3)]
    rig.ticks(30)
    assert rig.state(where["a"]) == "running", "draining stops nobody"
    assert len(rig.service.desk.job(ADMIN, where["b"]).attempts) == 2
    assert all(rig.service.desk.job(ADMIN, job).attempts[0].nodes[0][0] == "b" for job in short)
    rig.ticks(90)
    assert {node.name: node.state for node in rig.service.admin.nodes(ADMIN)}["a"] == "drained"
    rig.service.admin.drain(ADMIN, "a", undo=True)
    again = rig.submit("sleep 1", gpus=2, expected=1)
    rig.finish()
    assert rig.state(again) == "succeeded"


def test_with_every_node_drained_jobs_wait(fifo: Rig) -> None:
    fifo.service.admin.drain(ADMIN, "n0")
    job = fifo.submit("sleep 1")
    fifo.ticks(5)
    assert fifo.state(job) == "pending"
    assert fifo.service.desk.why(ADMIN, job)["cause"] == "waiting for capacity"
    fifo.service.admin.drain(ADMIN, "n0", undo=True)
    fifo.finish()


def test_a_lost_node_gives_its_jobs_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", tuple(NodeInfo(name, "gpu", 2, 8, 64.0) for name in ("a", "b")))
    jobs = [rig.submit("sleep 20", gpus=2, retries=0) for _ in range(2)]
    rig.ticks(2)
    rig.backend.set_node("a", up=False)
    rig.finish()
    assert [rig.state(job) for job in jobs] == ["succeeded"] * 2
    assert sorted(len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs) == [1, 2]
    assert [(job.failures, job.losses) for job in rig.service.store.book.jobs.values()] == [(0, 1), (0, 0)]


def test_short_jobs_displace_long_ones_under_srtf_but_not_those_that_forbid_it(srtf: Rig) -> None:
    fixed = srtf.submit("sleep 100", gpus=2, expected=100, preemptible=False)
    soft = srtf.submit("sleep 100", gpus=2, expected=100)
    srtf.ticks(2)
    short = [srtf.submit("sleep 2", gpus=2, expected=2) for _ in range(3)]
    srtf.ticks(20)
    assert [srtf.state(job) for job in short] == ["succeeded"] * 3
    assert srtf.state(fixed) == "running"
    attempts = srtf.service.desk.job(ADMIN, soft).attempts
    assert len(attempts) == 2
    assert attempts[0].why.startswith("preempted")
    assert attempts[0].lost_s > 0
    assert srtf.service.admin.metrics()["cotenant_preemptions_total"] == 1
    srtf.finish()
    assert len(srtf.service.desk.job(ADMIN, fixed).attempts) == 1


def test_a_job_waits_until_its_victims_are_really_gone(srtf: Rig) -> None:
    deaf = srtf.submit("trap '' TERM; sleep 100", gpus=4, expected=100)
    srtf.ticks(2)
    short = srtf.submit("sleep 1", gpus=4, expected=1)
    srtf.ticks(4)
    assert [srtf.state(deaf), srtf.state(short)] == ["stopping", "pending"]
    srtf.ticks(12)
    assert srtf.state(short) == "succeeded"
    srtf.service.desk.cancel(ADMIN, deaf)
    srtf.finish()


def test_the_policy_can_be_changed_live(fifo: Rig) -> None:
    long = fifo.submit("sleep 100", gpus=4, expected=100)
    fifo.ticks(1)
    short = fifo.submit("sleep 1", gpus=4, expected=1)
    fifo.ticks(5)
    assert fifo.state(short) == "pending"
    with pytest.raises(InputError):
        fifo.service.admin.set_policy(ADMIN, "no-such")
    with pytest.raises(InputError, match="starts"):
        fifo.service.admin.set_policy(ADMIN, "evil.py:Policy")
    fifo.service.admin.set_policy(ADMIN, "srtf:weigh=false")
    fifo.ticks(5)
    assert fifo.state(short) == "succeeded"
    assert fifo.restart().admin.policy() == "srtf:weigh=false"
    fifo.finish()
    assert fifo.state(long) == "succeeded"


def test_bad_submissions_leave_nothing(fifo: Rig) -> None:
    for fields in ({"gpus": 5}, {"gpus": "h100:1"}, {"gpus": 0}):
        with pytest.raises(InputError):
            fifo.submit(**fields)
    good, bad = parse_job({"run": "true"}), parse_job({"run": "true", "gpus": 9})
    with pytest.raises(InputError):
        fifo.service.desk.submit(ADMIN, [good, bad])
    assert fifo.service.desk.jobs(ADMIN) == []
    assert fifo.service.desk.submit(ADMIN, []) == []


def test_a_job_that_cannot_be_launched_fails_and_says_why(fifo: Rig) -> None:
    job = fifo.submit("sleep 1", workdir="not/absolute")
    fifo.finish()
    assert fifo.state(job) == "failed"
    assert "absolute" in fifo.service.desk.job(ADMIN, job).reason
