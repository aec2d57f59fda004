"""The examples as real processes: disturbed runs must end like undisturbed ones."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
from runtime_service import ROOT, Service, finish, job_env, spawn

from cotenant.runtime import EXIT_PREEMPTED
from cotenant.runtime.protocol import Checkpoint, Done, JobMessage, Progress, Restored, Stop, Stopping

EXAMPLES = ROOT / "examples"
STEPS = 60
SCRIPTS = [("numpy_train.py", ["--step-time", "0.004"]), ("pure_python.py", ["--step-time", "0.004"])]


def stop_at(service: Service, step: int) -> None:
    """Ask the job to stop when the checkpoint of this step has been made."""

    def react(message: JobMessage) -> None:
        if isinstance(message, Checkpoint) and message.step == step:
            service.server.send("j1", Stop(grace_s=10.0))

    service.react = react


@pytest.mark.parametrize(("script", "options"), SCRIPTS, ids=["numpy", "pure"])
def test_stopped_twice_it_ends_like_an_undisturbed_run(
    service: Service, tmp_path: Path, script: str, options: list[str]
) -> None:
    undisturbed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *options)))
    env = job_env(service.path, tmp_path / "ckpt")
    command = [EXAMPLES / script, "--steps", STEPS, "--out", tmp_path / "result.json", *options]
    rng = random.Random(script)
    for stop_step in (rng.randint(2, 20), rng.randint(30, 45)):
        stop_at(service, stop_step)
        assert finish(spawn(*command, env=env), EXIT_PREEMPTED) == ""
        stopping = service.of(Stopping)[-1]
        assert stopping.saved  # type: ignore[union-attr]
        assert stop_step <= stopping.step < STEPS  # type: ignore[union-attr]
    service.react = lambda message: None
    finish(spawn(*command, env=env))
    assert json.loads((tmp_path / "result.json").read_text()) == undisturbed
    stopped = [message.step for message in service.of(Stopping)]  # type: ignore[union-attr]
    assert [message.step for message in service.of(Restored)] == stopped  # type: ignore[union-attr]
    assert service.of(Done) == [Done(STEPS)]
    last = service.of(Progress)[-1]
    assert isinstance(last, Progress)
    assert (last.step, last.total, last.saves) == (STEPS, STEPS, True)
    assert "loss" in last.metrics
    assert 0.003 < last.step_time_s < 0.1


@pytest.mark.parametrize(("script", "options"), SCRIPTS, ids=["numpy", "pure"])
def test_killed_again_and_again_it_ends_like_an_undisturbed_run(
    service: Service, tmp_path: Path, script: str, options: list[str]
) -> None:
    """kill -9 lands wherever the process happens to be, often inside a save, for it saves after every step."""
    undisturbed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *options)))
    env = job_env(service.path, tmp_path / "ckpt")
    rng = random.Random(script)
    safe = 0
    for _ in range(3):
        service.heard.clear()
        target = safe + rng.randint(3, 12)
        process = spawn(EXAMPLES / script, "--steps", STEPS, *options, env=env)
        seen = service.wait_for(lambda message, at=target: isinstance(message, Checkpoint) and message.step >= at)
        process.kill()
        finish(process, -9)
        assert service.of(Restored) == [] or service.of(Restored)[0].step >= safe  # type: ignore[union-attr]
        safe = seen.step  # type: ignore[union-attr]
    assert json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *options, env=env))) == undisturbed


HEAVY = [
    ("torch_train.py", "torch", "torch"),
    ("lightning_train.py", "lightning", "lightning"),
    ("hf_train.py", "transformers", "accelerate"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "needs", "also"), HEAVY, ids=["torch", "lightning", "huggingface"])
def test_frameworks_stop_and_resume(service: Service, tmp_path: Path, script: str, needs: str, also: str) -> None:
    if not all(importlib.util.find_spec(name) for name in (needs, also)):
        pytest.skip(f"{needs} is not installed")
    plain = ["--output-dir", tmp_path / "plain"] if needs == "transformers" else []
    undisturbed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, *plain)).splitlines()[-1])
    env = job_env(service.path, tmp_path / "ckpt")
    stop_at(service, 21)
    finish(spawn(EXAMPLES / script, "--steps", STEPS, env=env), EXIT_PREEMPTED)
    service.react = lambda message: None
    resumed = json.loads(finish(spawn(EXAMPLES / script, "--steps", STEPS, env=env)).splitlines()[-1])
    stopping, restored = service.of(Stopping)[0], service.of(Restored)[0]
    assert 21 <= stopping.step == restored.step < STEPS  # type: ignore[union-attr]
    assert resumed == undisturbed
