"""Replicas of a live service between a least and a most: they follow what is measured, and outlive a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig, plan_rig, play, states

from cotenant.backends.base import NodeInfo
from cotenant.cli import remote
from cotenant.client import codec
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, parse_job
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


def test_people_are_told_how_a_service_stands(tmp_path: Path) -> None:
    """Replicas that answer, and the share of all requests within target, those of ended replicas too."""
    rig = plan_rig(tmp_path, "sjf-bsbf", THREE)
    chat = submitted(rig)
    says(rig, chat[0], 20.0, 90.0, requests=900, within_target=1.0)
    play(rig, 3)
    says(rig, chat[1], 35.0, 10.0, requests=100, within_target=0.9)
    found = rig.service.desk.job(ADMIN, chat[1]).service
    assert found is not None
    told = {"replicas": 2, "wanted": 2, "least": 1, "most": 3, "requests_per_s": 100, "p99_ms": 35, "target_ms": 100}
    assert found == told | {"requests": 1000, "within_target": 0.99}
    text = "2 of 2 replicas answer (1 to 3), 100 requests/s, p99 35 of 100 ms, 99.00% of 1,000 requests within target"
    assert remote.serving(found) == text
    waits = rig.service.desk.job(ADMIN, chat[2])
    assert waits.reason == "not needed now: its service has 2 replicas"
    assert rig.service.desk.why(ADMIN, chat[2])["cause"] == "waiting for its array"
    for job in chat[:2]:
        says(rig, job, 15.0, 2.0, requests=1000, within_target=1.0)
    play(rig, 40)
    assert states(rig, chat) == ["running", "pending", "pending"]
    rig.restart()
    play(rig, 3)
    says(rig, chat[0], 15.0, 2.0, requests=1500, within_target=1.0)
    after = rig.service.desk.job(ADMIN, chat[0]).service
    assert after is not None
    assert (after["requests"], after["wanted"]) == (2500, 1)
    assert any(one.kind == "replicas" and "requests/s foreseen" in one.data["text"]
               for one in rig.service.desk.events(ADMIN, chat[0]))  # fmt: skip


def test_a_server_that_ends_with_0_when_told_to_leave_is_not_done(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf", THREE)
    chat = rig.submit("trap 'exit 0' TERM; sleep 100000", name="chat", service=CHAT, array="")
    play(rig, 3)
    says(rig, f"{chat}.0", 20.0, 90.0)
    play(rig, 3)
    for at in range(2):
        says(rig, f"{chat}.{at}", 15.0, 1.0)
    play(rig, 40)
    assert rig.state(f"{chat}.1") == "pending"


def test_a_service_in_a_job_file() -> None:
    """Least and most, and a curve over the day, go to the service and come back as they were written."""
    said = {"target_ms": 100, "service_ms": 8, "replicas": [1, 4], "rate": {0: 5, 8: 40.5}, "calm_s": 60}
    spec = parse_job({"run": "serve", "service": said})
    assert spec.array == (0, 1, 2, 3)
    again = parse_job(json.loads(json.dumps(codec.mapping(spec))))
    assert again == spec == JobSpec.from_dict(json.loads(json.dumps(spec.as_dict())))
    for key, wrong in (
        ("replicas", [4, 1]), ("replicas", [0, 1]), ("replicas", [1]), ("replicas", [1, 5000]), ("replicas", "many"),
        ("rate", {25: 1}), ("rate", {}), ("rate", -1), ("rate", float("inf")), ("rate", {"noon": 3}), ("calm_s", 0),
        ("start_s", "soon"), ("target_ms", float("inf")), ("reps", 3),
    ):  # fmt: skip
        with pytest.raises(InputError) as error:
            parse_job({"run": "serve", "service": said | {key: wrong}})
        assert key in str(error.value)
        assert "\n" not in str(error.value)
