"""The training scripts: data and losses that neither interruptions nor sub-batches change."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from runtime_service import ROOT, Service, finish, job_env, spawn

from cotenant.runtime import EXIT_PREEMPTED
from cotenant.runtime.protocol import Checkpoint, JobMessage, Progress, Restored, Stop

FOLDER = ROOT / "examples" / "train"
PLAIN, HEAVY = ["lstm", "recommender", "rl"], ["resnet", "vit", "bert", "gpt2"]
STEPS = 30

pytestmark = pytest.mark.slow


def needs(*names: str) -> None:
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        absent = pytest.fail if os.environ.get("CI") else pytest.skip
        absent(f"{' and '.join(missing)} not installed: `make frameworks` does it")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script as a module, by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def of(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return of


@pytest.mark.parametrize("name", [*PLAIN, *HEAVY])
def test_sub_batches_make_the_same_steps(name: str, load: Any) -> None:
    needs("torch", *(["transformers"] if name in HEAVY else []))
    import torch

    training, script = load("training"), load(name)
    size, device = script.SIZES["tiny"], torch.device("cpu")
    losses = []
    for parts in (1, 2):
        torch.manual_seed(1)
        task = script.build(size, device)
        optimizer = torch.optim.SGD(task.model.parameters(), lr=task.rate, momentum=0.9)
        draws = (task.draw(torch.Generator().manual_seed(step), size.batch) for step in range(5))
        losses.append([training.train(task, optimizer, batch, parts if task.cuttable else 1) for batch in draws])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(set(losses[0])) == 5
    assert task.cuttable == (name != "resnet")


@pytest.mark.parametrize("name", ["rl", "resnet"])
def test_an_interrupted_run_ends_with_the_same_loss(service: Service, tmp_path: Path, name: str) -> None:
    needs("torch", *(["transformers"] if name in HEAVY else []))
    command = [FOLDER / f"{name}.py", "--size", "tiny", "--steps", STEPS, "--device", "cpu"]
    undisturbed = json.loads(finish(spawn(*command)))

    def react(message: JobMessage) -> None:
        if isinstance(message, Checkpoint) and message.step == 3:
            service.server.send("j1", Stop(grace_s=10.0))

    service.react = react
    env = job_env(service.addresses[0], tmp_path / "checkpoints")
    assert finish(spawn(*command, env=env), EXIT_PREEMPTED) == ""
    service.react = lambda message: None
    assert json.loads(finish(spawn(*command, env=env | {"COTENANT_CHECKPOINT_INTERVAL_S": "600"}))) == undisturbed
    restored, told = service.of(Restored)[0], service.of(Progress)[-1]
    assert 3 <= restored.step < STEPS  # type: ignore[union-attr]
    assert told.metrics["loss"] == pytest.approx(undisturbed["loss"])  # type: ignore[union-attr]
