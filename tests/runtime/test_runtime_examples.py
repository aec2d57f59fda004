"""The examples as real processes: disturbed runs must end like undisturbed ones."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from pathlib import Path

import pytest
from runtime_service import ROOT, Service, finish, job_env, spawn

from cotenant.runtime import EXIT_PREEMPTED
from cotenant.runtime.protocol import Checkpoint, Done, JobMessage, Progress, Restored, Stop, Stopping

EXAMPLES = ROOT / "examples"
STEPS = 200
SCRIPTS = ["numpy_train.py", "pure_python.py"]
PACED = ["--step-time", "0.005"]  # leaves about a second between the event waited for and the end
FAST = ["--step-time", "0"]
RARELY = {"COTENANT_CHECKPOINT_INTERVAL_S": "600"}


def stop_at(service: Service, step: int) -> None:
    """Ask the job to stop when the checkpoint of this step has been made."""

    def react(message: JobMessage) -> None:
        if isinstance(message, Checkpoint) and message.step == step:
            service.server.send("j1", Stop(grace_s=10.0))

    service.react = react


@pytest.mark.parametrize("script", SCRIPTS)
def test_stopped_twice_it_ends_like_an_undisturbed_run(service: Service, tmp_path: Path, script: str) -> None:
    undisturbed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *FAST)))
    env = job_env(service.addresses[0], tmp_path / "ckpt")
    command = [EXAMPLES / script, "--steps", STEPS, "--out", tmp_path / "result.json"]
    rng = random.Random(script)
    for stop_step in (rng.randint(2, 12), rng.randint(30, 40)):
        stop_at(service, stop_step)
        assert finish(spawn(*command, *PACED, env=env), EXIT_PREEMPTED) == ""
        stopping = service.of(Stopping)[-1]
        assert stopping.saved  # type: ignore[union-attr]
        assert stop_step <= stopping.step < STEPS  # type: ignore[union-attr]
    service.react = lambda message: None
    finish(spawn(*command, *FAST, env=env | RARELY))
    assert json.loads((tmp_path / "result.json").read_text()) == undisturbed
    stopped = [message.step for message in service.of(Stopping)]  # type: ignore[union-attr]
    assert [message.step for message in service.of(Restored)] == stopped  # type: ignore[union-attr]
    assert service.of(Done) == [Done(STEPS)]
    last = service.of(Progress)[-1]
    assert isinstance(last, Progress)
    assert (last.step, last.total, last.saves) == (STEPS, STEPS, True)
    assert "loss" in last.metrics
    assert last.step_time_s > 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_again_and_again_it_ends_like_an_undisturbed_run(service: Service, tmp_path: Path, script: str) -> None:
    """kill -9 lands wherever the process happens to be, often inside a save, for it saves after every step."""
    undisturbed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *FAST)))
    env = job_env(service.addresses[0], tmp_path / "ckpt")
    rng = random.Random(script)
    safe = 0
    for _ in range(3):
        service.heard.clear()
        target = safe + rng.randint(3, 10)
        process = spawn(EXAMPLES / script, "--steps", STEPS, *PACED, env=env)
        seen = service.wait_for(lambda message, at=target: isinstance(message, Checkpoint) and message.step >= at)
        process.kill()
        finish(process, -9)
        assert service.of(Restored) == [] or service.of(Restored)[0].step >= safe  # type: ignore[union-attr]
        safe = seen.step  # type: ignore[union-attr]
    assert json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *FAST, env=env | RARELY))) == undisturbed


OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
HEAVY = [
    ("torch_train.py", "torch", "torch"),
    ("lightning_train.py", "lightning", "lightning"),
    ("hf_train.py", "transformers", "accelerate"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "needs", "also"), HEAVY, ids=["torch", "lightning", "huggingface"])
def test_frameworks_stop_and_resume(service: Service, tmp_path: Path, script: str, needs: str, also: str) -> None:
    if missing := [name for name in (needs, also) if importlib.util.find_spec(name) is None]:
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(f"{' and '.join(missing)} not installed: `make frameworks` does it")
    plain = ["--output-dir", tmp_path / "plain"] if needs == "transformers" else []
    alone = spawn(EXAMPLES / script, "--steps", STEPS, *plain, env=OFFLINE)
    undisturbed = json.loads(finish(alone).splitlines()[-1])
    env = job_env(service.addresses[0], tmp_path / "ckpt") | OFFLINE
    stop_at(service, 21)
    finish(spawn(EXAMPLES / script, "--steps", STEPS, env=env), EXIT_PREEMPTED)
    service.react = lambda message: None
    resumed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, env=env | RARELY)).splitlines()[-1])
    stopping, restored = service.of(Stopping)[0], service.of(Restored)[0]
    assert 21 <= stopping.step == restored.step < STEPS  # type: ignore[union-attr]
    assert resumed == undisturbed


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_loader_follows_the_worker_count(service: Service, tmp_path: Path) -> None:
    from cotenant.runtime.protocol import Set

    def react(message: JobMessage) -> None:
        if isinstance(message, Progress) and message.step >= 1:
            service.server.send("j1", Set(workers=2))

    service.react = react
    env = job_env(service.addresses[0], tmp_path / "ckpt")
    said = finish(spawn(EXAMPLES / "torch_loader.py", "--steps", 60, "--images", 64, env=env))
    assert "workers [1, 2]" in said
