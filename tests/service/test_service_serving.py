"""Inference services in the live service: replicas that nobody stops, and training beside them by what they report."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig, plan_rig, play

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.runtime.protocol import Progress
from cotenant.service.planner.forecast import Patience, forecast

TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),)
AWAY = ("pending", "suspended")  # off the GPU: by saving, or standing still where it cannot save
CHAT = {"target_ms": 100, "service_ms": 10, "rate": 5}


def says(rig: Rig, job: str, p99_ms: float, rate: float) -> None:
    """A replica reports what its last requests took."""
    metrics = {"p99_ms": p99_ms, "requests_per_s": rate}
    rig.says(job, Progress(int(rig.backend.now_s), None, 0.5, metrics))


def serving(home: Path, policy: str = "sjf-bsbf") -> tuple[Rig, str]:
    """One GPU with a replica that reports."""
    rig = plan_rig(home, policy)
    chat = rig.submit("sleep 100000", name="chat", service=CHAT, gpu_mem=10)
    play(rig, 3)
    says(rig, chat, 15.0, 5.0)
    return rig, chat


@pytest.mark.parametrize("policy", ["sjf-bsbf", "antman", "gandiva", "horus"])
def test_training_joins_a_replica_and_leaves_when_it_is_measured_to_be_late(tmp_path: Path, policy: str) -> None:
    """The latency that counts is the one that the runtime reports; the reason names it and the target."""
    rig, chat = serving(tmp_path, policy)
    training = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10)
    play(rig, 3)
    assert [rig.state(chat), rig.state(training)] == ["running", "running"]
    says(rig, chat, 140.0, 5.0)
    play(rig, 20)
    assert rig.state(chat) == "running"
    assert rig.state(training) in AWAY
    why = rig.service.desk.why(ADMIN, training)["text"]
    assert "measured to be 140 ms, over its target of 100 ms" in why
    says(rig, chat, 15.0, 5.0)
    play(rig, 30)
    assert rig.state(training) in AWAY, "it was late half a minute ago"
    play(rig, 60)
    says(rig, chat, 15.0, 5.0)
    play(rig, 20)
    assert [rig.state(chat), rig.state(training)] == ["running", "running"]
    assert rig.attempts(chat) == [1]


def test_training_waits_while_the_prediction_at_the_measured_rate_is_over_target(tmp_path: Path) -> None:
    """40 requests/s of 10 ms are fine alone; beside training each would take 17 ms, and p99 would be 101 ms."""
    rig, chat = serving(tmp_path)
    says(rig, chat, 30.0, 40.0)
    play(rig, 2)
    training = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10)
    play(rig, 5)
    assert rig.state(training) == "pending"
    assert "over its target of 100 ms" in rig.service.desk.why(ADMIN, training)["text"]
    says(rig, chat, 15.0, 5.0)
    play(rig, 5)
    assert rig.state(training) == "running"


def test_nobody_joins_a_service_that_says_nothing_or_wants_its_gpu_for_itself(tmp_path: Path) -> None:
    """Nor one under a policy that does not share; nor does a job that nobody could make leave again."""
    share, own, stays = {}, {"exclusive": True}, {"preemptible": False}
    cases = (share, share, False), (own, share, True), (share, own, True), (share, stays, True), (share, share, True)
    for at, (more, mine, reports) in enumerate(cases):
        policy = "srtf" if at == len(cases) - 1 else "sjf-bsbf"
        rig = plan_rig(tmp_path / str(at), policy)
        chat = rig.submit("sleep 100000", name="chat", service=CHAT, **more)
        play(rig, 3)
        if reports:
            says(rig, chat, 15.0, 5.0)
        training = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10, **mine)
        play(rig, 5)
        assert [rig.state(chat), rig.state(training)] == ["running", "pending"]


def test_replicas_are_elements_and_the_guard_survives_a_restart(tmp_path: Path) -> None:
    """Two replicas on two GPUs; training beside one goes on when the service comes back, and leaves when it must."""
    rig = plan_rig(tmp_path, "sjf-bsbf", TWO)
    chat = rig.submit("sleep 100000", name="chat", service=CHAT | {"replicas": 2}, array="")
    play(rig, 3)
    replicas = [f"{chat}.{at}" for at in range(2)]
    assert [rig.state(job) for job in replicas] == ["running", "running"]
    for job in replicas:
        says(rig, job, 15.0, 5.0)
    training = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10)
    play(rig, 3)
    assert rig.state(training) == "running"
    rig.restart()
    play(rig, 3)
    assert rig.state(training) == "running"
    says(rig, replicas[0], 200.0, 5.0)
    play(rig, 20)
    assert [rig.state(job) for job in replicas] == ["running", "running"]
    assert rig.state(training) in AWAY


def test_what_a_job_file_says_of_a_service() -> None:
    """It comes back from JSON as it was, and what does not go with it is said in one line."""
    spec = parse_job({"run": "serve", "service": CHAT | {"replicas": 3}})
    assert (spec.service["target_s"], spec.array, spec.preemptible) == (0.1, (0, 1, 2), False)
    assert JobSpec.from_dict(spec.as_dict()) == spec
    for wrong in ({"gpus": 2}, {"max_runtime": 5}, {"service": {"target_ms": 5}}, {"service": CHAT | {"target_ms": 5}}):
        with pytest.raises(InputError) as error:
            parse_job({"run": "serve", "service": CHAT} | wrong)
        assert "\n" not in str(error.value)


def test_nobody_foretells_the_end_of_a_service(tmp_path: Path) -> None:
    rig, chat = serving(tmp_path)
    training = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10)
    play(rig, 3)
    found, _ = forecast(rig.service.planner.scene(), Patience(rest_s=0.0))
    assert found[chat] is None
    assert found[training] is not None
