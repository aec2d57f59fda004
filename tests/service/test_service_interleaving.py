"""Muri live: stage times that jobs measure become what is believed of their kind, and groups are told their turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import Rig, play
from test_service_sharing import ONE, ROUND_S, sharing, states

from cotenant.beliefs.pairing import WINDOW_S, WINDOW_STEPS
from cotenant.runtime.protocol import Progress, TakeTurns

STAGES = {  # one reads, one computes
    "reader": {"load": 0.08, "compute": 0.01, "other": 0.01},
    "trainer": {"preprocess": 0.01, "compute": 0.09},
}


def told(rig: Rig, jobs: list[str]) -> list[TakeTurns]:
    return [rig.service.reports.lines.of(job) for job in jobs]


def measure(
    rig: Rig, jobs: list[str], first: int, stages: dict[str, float], waited_s: float = 0.0, step_s: float = 0.1
) -> None:
    """Running jobs make enough steps in their present company, and say what their stages take."""
    for wait_s, steps in ((0.1, 1), (0.1, 20), (WINDOW_S, 20 + WINDOW_STEPS)):
        rig.backend.advance(wait_s)
        for job in jobs:
            rig.says(job, Progress(first + steps, None, step_s, stages=stages, waited_s=waited_s))
        rig.service.tick()


def believed(rig: Rig) -> dict[str, list[float]]:
    return {row[0][0]: row[2] for row in rig.service.store.book.memory.get("pairs", {}).get("stages", [])}


def test_a_group_is_told_its_turns_and_who_is_left_takes_none(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "muri-l", ONE)
    jobs = [rig.submit(f"sleep {s}", model=model) for s, model in ((10, "lstm"), (40, "resnet18_cifar"))]
    assert told(rig, jobs) == [TakeTurns()] * 2
    play(rig, ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    first, second = told(rig, jobs)
    orders = [rig.service.store.book.jobs[job].order for job in jobs]
    assert (first.me, second.me) == tuple(orders)
    assert sorted(first.line) == sorted(orders)
    assert (first.where, first.line) == (second.where, second.line)
    play(rig, 30.0)
    assert states(rig, jobs) == ["succeeded", "running"]
    assert told(rig, jobs) == [TakeTurns()] * 2
    rig.finish()


@pytest.mark.parametrize("policy", ["muri-l:turns=false", "muri-l:group=1"])
def test_nobody_takes_turns_unless_the_policy_says_so(tmp_path: Path, policy: str) -> None:
    rig = sharing(tmp_path, policy, ONE)
    jobs = [rig.submit("sleep 10", model=model) for model in ("lstm", "resnet18_cifar")]
    play(rig, ROUND_S)
    assert "running" in states(rig, jobs)
    assert told(rig, jobs) == [TakeTurns()] * 2
    rig.finish()


def test_stage_times_that_jobs_measure_make_groups_without_any_profile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "muri-l", ONE, round_s=ROUND_S, budget_s=60.0)
    for model, stages in STAGES.items():
        alone = rig.submit("sleep 5", model=model)
        play(rig, 1.0)
        measure(rig, [alone], 0, stages)
        rig.finish()
    assert believed(rig) == {"reader": [0.08, 0.01, 0.01, 0.0], "trainer": [0.0, 0.01, 0.09, 0.0]}
    rig.shares = True
    jobs = [rig.submit("sleep 20", model=model) for model in STAGES]
    play(rig, ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    assert all(message.line for message in told(rig, jobs))
    rig.finish()


def test_only_stages_that_nobody_disturbs_are_believed(tmp_path: Path) -> None:
    rig, models = sharing(tmp_path, "muri-l", ONE), ("lstm", "resnet18_cifar")
    for model in models:
        alone = rig.submit("sleep 5", model=model)
        play(rig, 1.0)
        measure(rig, [alone], 0, {})
        rig.finish()
    jobs = [rig.submit("sleep 60", model=model) for model in models]
    play(rig, ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    measure(rig, jobs, 0, STAGES["reader"], step_s=0.15)
    assert believed(rig) == {}, "in company, and without turns"
    measure(rig, jobs, 100, STAGES["reader"], waited_s=0.05, step_s=0.15)
    assert believed(rig) == {model: [0.08, 0.01, 0.01, 0.0] for model in models}
    rig.finish()
