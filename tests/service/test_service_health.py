"""Nodes and GPUs that are not well: nothing starts there, jobs go elsewhere, and everybody is told why."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake_script import Script
from cotenant.core.errors import InputError
from cotenant.core.node_faults import NodeFault
from cotenant.service.facade import NodeStatus
from cotenant.service.failure_rule import FailureRule

TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0), NodeInfo("n1", "gpu", 2, 8, 64.0))
ECC = NodeFault("ecc", "2 uncorrected ECC errors", 1)
XID = NodeFault("xid", "the driver reported XID error 79", 0, passes=False)
SLURM = NodeFault("slurm", "Slurm says DRAIN: fan broken")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, nodes=TWO)


def node(rig: Rig, name: str = "n0") -> NodeStatus:
    return next(one for one in rig.service.admin.nodes(ADMIN) if one.name == name)


def places(rig: Rig, job: str) -> list[tuple[str, tuple[int, ...]]]:
    """The GPUs of a job's newest attempt."""
    return list(rig.service.desk.job(ADMIN, job).attempts[-1].nodes)


def kinds(rig: Rig, *wanted: str) -> list[str]:
    return [one.kind for one in rig.service.desk.events(ADMIN) if one.kind in wanted]


def test_jobs_leave_an_unhealthy_node_and_come_back_when_it_is_well(rig: Rig) -> None:
    stays = rig.submit("sleep 500", gpus=2)
    moves = rig.submit("sleep 500", gpus=2)
    rig.ticks(2)
    (sick,) = {name for name, _ in places(rig, moves)}
    rig.backend.set_faults(sick, SLURM)
    rig.ticks(12)
    assert rig.state(stays) == "running"
    assert rig.state(moves) == "pending"
    found = node(rig, sick)
    assert (found.state, found.faults[0]["why"], found.gpus_out) == ("drained", SLURM.why, 0)
    why = rig.service.desk.why(ADMIN, moves)["text"]
    assert rig.service.desk.job(ADMIN, moves).attempts[0].why.startswith(f"node {sick}: {SLURM.why}")
    assert "2 GPUs" in why
    assert rig.service.admin.metrics()[f'cotenant_unhealthy{{node="{sick}",gpu="-1",kind="slurm"}}'] == 1.0
    rig.restart()
    rig.ticks(3)
    assert rig.state(moves) == "pending"
    rig.backend.set_faults(sick)
    rig.ticks(3)
    assert (rig.state(moves), node(rig, sick).state, node(rig, sick).faults) == ("running", "up", ())
    assert kinds(rig, "unhealthy", "healthy") == ["unhealthy", "healthy"]


def test_a_gpu_is_left_out_and_the_others_of_its_node_are_used(rig: Rig) -> None:
    jobs = [rig.submit("sleep 500") for _ in range(4)]
    rig.ticks(2)
    (hit,) = [job for job in jobs if places(rig, job) == [("n0", (1,))]]
    rig.backend.set_faults("n0", ECC)
    rig.ticks(12)
    assert rig.state(hit) == "pending"
    assert [rig.state(job) for job in jobs if job != hit] == ["running"] * 3
    found = node(rig)
    assert (found.state, found.gpus, found.gpus_used, found.gpus_out) == ("up", 2, 1, 1)
    rig.service.desk.cancel(ADMIN, next(job for job in jobs if places(rig, job) == [("n0", (0,))]))
    rig.ticks(12)
    assert places(rig, hit) == [("n0", (0,))], "the GPU beside it is given away again"
    rig.restart()
    rig.ticks(2)
    assert rig.state(hit) == "running"
    assert rig.service.admin.metrics()["cotenant_gpus_out"] == 1.0
    pair = rig.submit("sleep 10", gpus=4)
    rig.ticks(2)
    assert ECC.why in rig.service.desk.why(ADMIN, pair)["text"]
    rig.backend.set_faults("n0")
    rig.ticks(3)
    assert node(rig).gpus_out == 0
    rig.check()


def test_what_does_not_pass_stays_until_an_operator_excuses_it(rig: Rig) -> None:
    rig.backend.set_faults("n1", XID)
    rig.ticks(2)
    rig.backend.set_faults("n1")
    rig.ticks(2)
    assert node(rig, "n1").gpus_out == 1
    rig.service.admin.drain(ADMIN, "n1", undo=True)
    rig.ticks(2)
    assert node(rig, "n1").gpus_out == 0
    rig.backend.set_faults("n1", ECC)
    rig.ticks(1)
    rig.service.admin.drain(ADMIN, "n1", undo=True)
    rig.ticks(2)
    assert node(rig, "n1").gpus_out == 0, "it was excused, and is told in the same words"
    rig.backend.set_faults("n1", NodeFault("ecc", "3 uncorrected ECC errors", 1))
    rig.ticks(1)
    assert node(rig, "n1").gpus_out == 1, "there are more errors than were excused"


def test_who_may_not_be_stopped_stays_and_nothing_new_comes(rig: Rig) -> None:
    fixed = rig.submit("sleep 30", gpus=2, preemptible=False)
    rig.ticks(2)
    ((where, _),) = places(rig, fixed)
    rig.backend.set_faults(where, SLURM)
    rig.ticks(5)
    assert (rig.state(fixed), node(rig, where).state) == ("running", "draining")
    soft = NodeFault("taint", "Kubernetes says cordoned", leave=False)
    other = "n1" if where == "n0" else "n0"
    may_finish = rig.submit("sleep 30")
    rig.ticks(2)
    rig.backend.set_faults(other, soft)
    waits = rig.submit("sleep 1")
    rig.ticks(3)
    assert (rig.state(may_finish), rig.state(waits)) == ("running", "pending")


def _failing(rig: Rig, jobs: int, everywhere: bool = False) -> None:
    """Single-GPU jobs that fail at GPU 1 of n0 after a second; elsewhere they run for a minute."""

    def behave(spec) -> Script:  # type: ignore[no-untyped-def]
        bad = everywhere or ("n0", (1,)) in spec.gpus
        return Script(1.0, 3) if bad else Script(60.0)

    rig.backend.behave = behave
    for _ in range(jobs):
        rig.submit("train", retries=3)
        rig.ticks(5)


def test_failures_of_jobs_that_run_elsewhere_condemn_a_gpu(tmp_path: Path) -> None:
    rig = Rig(tmp_path, nodes=TWO, failure_rule=FailureRule(2, 3600.0))
    _failing(rig, 8)
    rig.ticks(10)
    assert [(one["gpu"], one["kind"]) for one in node(rig).faults] == [(1, "failures")]
    assert "jobs failed there whose like ran elsewhere" in node(rig).faults[0]["why"]
    assert node(rig, "n1").faults == ()
    rig.restart()
    rig.ticks(2)
    assert node(rig).gpus_out == 1
    rig.service.admin.drain(ADMIN, "n0", undo=True)
    rig.ticks(2)
    assert node(rig).faults == (), "what was excused does not count again"


def test_a_job_that_fails_everywhere_condemns_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, nodes=TWO, failure_rule=FailureRule(1, 3600.0))
    _failing(rig, 3, everywhere=True)
    rig.ticks(30)
    assert [one.faults for one in rig.service.admin.nodes(ADMIN)] == [(), ()]


def test_rules_of_failures_are_read() -> None:
    assert FailureRule.parse("5/600") == FailureRule(5, 600.0)
    assert FailureRule.parse("never").jobs == 0
    with pytest.raises(InputError, match="JOBS/SECONDS"):
        FailureRule.parse("5")
