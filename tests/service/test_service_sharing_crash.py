"""A service whose policy shares GPUs, crashed at any of its steps: pairs are found again, nobody is started twice."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from crash_memory import ME, MemoryWorld, Step, endings

import effort
from cotenant.core.jobspec import JobSpec
from cotenant.policies import registry
from cotenant.service.core import CoreService

MODELS = ("bert", "mlp_rl", "lstm", "bert", "recsys")


@pytest.fixture(autouse=True)
def _quick_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.store.store.SNAPSHOT_EVERY", 9)
    monkeypatch.setattr(registry, "known_policies", functools.cache(registry.known_policies))


def _play(home: Path, policy: str, *crash_at: int) -> tuple[MemoryWorld, CoreService]:
    """Five jobs on two GPUs, of which one is cancelled beside another, one is deaf and one asks for both GPUs."""
    world = MemoryWorld(
        home, policy, gpus=2, crash_at=frozenset(crash_at), profile="h200", round_s=4.0, budget_s=60.0
    )  # fmt: skip
    jobs = [
        JobSpec(run, name=f"j{k}", model=model, expected_s=6, gpus=1 + (k == 3))
        for k, (model, run) in enumerate(
            zip(MODELS, ("sleep 6", "sleep 9", "trap '' TERM; sleep 5", "sleep 4", "sleep infinity"), strict=True)
        )
    ]

    def cancel(service: CoreService) -> None:
        service.desk.cancel(ME, next(info.id for info in service.desk.jobs(ME) if info.name == "j4"))

    steps = [
        Step(0, lambda service: world.submit(service, *jobs[:3])),
        Step(3, lambda service: world.submit(service, *jobs[3:])),
        Step(16, cancel),
    ]
    service = world.run(steps)
    assert service.backend.observe() == []
    assert [node.gpus_used for node in service.admin.nodes(ME)] == [0]
    assert world.acknowledged.keys() == service.store.book.jobs.keys()
    return world, service


@pytest.mark.parametrize("policy", ["gandiva-packing", "gavel:sharing=true", "sjf-bsbf", "gandiva:watch_s=0"])
def test_crashes_while_jobs_share_gpus(tmp_path: Path, policy: str) -> None:
    quiet, service = _play(tmp_path, policy)
    assert quiet.most_users >= 2
    expected = endings(service.store.book)
    assert sorted(state for state, _, _ in expected.values()) == ["cancelled"] + ["succeeded"] * 4
    chance = random.Random(20261115)
    steps = quiet.fuse.distinct()
    for step in chance.sample(steps, min(effort.examples(25), len(steps))):
        near = [step, *(step + chance.randrange(1, 12) for _ in range(chance.randrange(3)))]
        world, service = _play(tmp_path, policy, *near)
        assert world.restarts >= 1, near
        assert endings(service.store.book) == expected, (near, quiet.fuse.points[step - 1])
