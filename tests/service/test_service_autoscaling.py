"""Replicas of a live service between a least and a most: they follow what is measured, and outlive a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig, plan_rig, play, states

from cotenant.backends.base import NodeInfo
from cotenant.runtime.protocol import Progress

THREE = (NodeInfo("n0", "gpu", 3, 8, 64.0, gpu_mem_gib=80.0),)
CHAT = {"target_ms": 100, "service_ms": 10, "rate": 5, "replicas": [1, 3], "calm_s": 30, "start_s": 5}


def says(rig: Rig, job: str, p99_ms: float, rate: float, **more: float) -> None:
    """A replica reports what its last requests took."""
    metrics = {"p99_ms": p99_ms, "requests_per_s": rate, **more}
    rig.says(job, Progress(int(rig.backend.now_s), None, 0.5, metrics))


def submitted(rig: Rig, **more: Any) -> list[str]:
    """The replicas of a service that there may be."""
    chat = rig.submit("sleep 100000", name="chat", service=CHAT | more, array="")
    play(rig, 3)
    return [f"{chat}.{at}" for at in range(3)]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "sjf-bsbf", "antman", "gandiva"])
def test_replicas_follow_the_measured_rate(tmp_path: Path, policy: str) -> None:
    """10 ms a request, 100 ms allowed: 90 requests/s and a quarter more need two; 150 and a quarter more three."""
    rig = plan_rig(tmp_path, policy, THREE)
    chat = submitted(rig)
    assert states(rig, chat) == ["running", "pending", "pending"]
    says(rig, chat[0], 20.0, 90.0)
    play(rig, 3)
    assert states(rig, chat) == ["running", "running", "pending"]
    for job in chat[:2]:
        says(rig, job, 20.0, 75.0)
    play(rig, 3)
    assert states(rig, chat) == ["running"] * 3
    for job in chat:
        says(rig, job, 15.0, 2.0)
    play(rig, 25)
    assert states(rig, chat) == ["running"] * 3, "it has not been calm for long enough"
    play(rig, 15)
    assert states(rig, chat) == ["running", "running", "pending"]
    play(rig, 70)
    assert states(rig, chat) == ["running", "pending", "pending"]
    counts = [one.data["count"] for one in rig.service.desk.events(ADMIN, 0) if one.kind == "replicas"]
    assert counts == [2, 3, 2, 1]


def test_a_service_that_is_late_without_company_gets_one_more_replica(tmp_path: Path) -> None:
    """Whatever the prediction says; then it waits whether that one helps."""
    rig = plan_rig(tmp_path, "sjf-bsbf", THREE)
    chat = submitted(rig)
    says(rig, chat[0], 140.0, 5.0)
    play(rig, 8)
    assert states(rig, chat) == ["running", "pending", "pending"]
    says(rig, chat[0], 140.0, 5.0)
    play(rig, 5)
    assert states(rig, chat) == ["running", "running", "pending"]
    for job in chat[:2]:
        says(rig, job, 20.0, 3.0)
    play(rig, 20)
    assert states(rig, chat) == ["running", "running", "pending"]


@pytest.mark.parametrize("policy", ["fifo", "sjf-bsbf", "srtf"])
def test_a_replica_has_the_smallest_training_leave(tmp_path: Path, policy: str) -> None:
    """Where no GPU is empty and none has training that it can bear; training with a higher priority stays."""
    rig = plan_rig(tmp_path, policy, THREE)
    chat = submitted(rig)
    first = rig.submit("sleep 4000", expected=4000, gpu_mem=60, priority=1)
    second = rig.submit("sleep 4000", expected=4000, gpu_mem=60)
    play(rig, 3)
    assert states(rig, [first, second]) == ["running", "running"]
    says(rig, chat[0], 20.0, 90.0)
    play(rig, 20)
    assert states(rig, chat) == ["running", "running", "pending"]
    assert rig.state(first) == "running"
    assert rig.state(second) in ("pending", "suspended")


def test_what_was_wanted_survives_a_crash(tmp_path: Path) -> None:
    """The new service neither adds replicas nor gives any up before it has heard of their requests for a while."""
    rig = plan_rig(tmp_path, "sjf-bsbf", THREE)
    chat = submitted(rig)
    says(rig, chat[0], 20.0, 90.0, requests=1000, within_target=0.99)
    play(rig, 3)
    rig.restart()
    play(rig, 20)
    assert states(rig, chat) == ["running", "running", "pending"]
    assert rig.attempts(*chat) == [1, 1, 0]
    for job in chat[:2]:
        says(rig, job, 20.0, 2.0)
    play(rig, 40)
    assert states(rig, chat) == ["running", "pending", "pending"]
    assert "fewer replicas" in rig.service.desk.job(ADMIN, chat[1]).attempts[0].why
    rig.restart()
    play(rig, 3)
    assert states(rig, chat) == ["running", "pending", "pending"]


def test_a_replica_that_fails_is_replaced_by_another(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf", THREE)
    chat = submitted(rig)
    rig.service.desk.cancel(ADMIN, chat[0])
    play(rig, 15)
    assert states(rig, chat) == ["cancelled", "running", "pending"]
