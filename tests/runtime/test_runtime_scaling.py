"""Batch and learning rate of an elastic job at another size than it was submitted with."""

from __future__ import annotations

import importlib.util
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_service import Service

from cotenant import runtime
from cotenant.runtime._scaling import LrScale, ScalingRule
from cotenant.runtime.protocol import Hello, Progress, Set, Settings

needs_torch = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("COTENANT_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("gpus", "rate", "batch"), [(8, 0.004, 256), (16, 0.008, 512), (32, 0.008, 512), (24, 0.008, 512)]
)
def test_the_example_of_ones(gpus: int, rate: float, batch: int) -> None:
    """Batch 32 and rate 0.0005 at one GPU, at most 0.008. At 24 GPUs ONES rounds to 504 samples; we do not."""
    rule = ScalingRule("per-gpu", "linear", 1, max_lr_scale=0.008 / 0.0005)
    assert rule.global_batch(32, gpus) == batch
    assert 0.0005 * rule.lr_scale(32, gpus) == pytest.approx(rate, rel=1e-12)


def test_the_root_rule_grows_the_rate_by_the_root_and_stops_at_its_limit() -> None:
    rule = ScalingRule("per-gpu", "sqrt", 2, max_lr_scale=2.0)
    assert [rule.lr_scale(16, gpus) for gpus in (1, 2, 8, 32)] == pytest.approx([math.sqrt(0.5), 1.0, 2.0, 2.0])
    assert [rule.global_batch(16, gpus) for gpus in (1, 2, 8, 32)] == [16, 32, 128, 128]


def test_limits_of_the_job_file_are_kept_and_the_rate_follows_the_batch_that_is_left() -> None:
    rule = ScalingRule("per-gpu", "linear", 2, batch_min=24, batch_max=96)
    assert [rule.global_batch(16, gpus) for gpus in (1, 2, 4, 16)] == [24, 32, 64, 96]
    assert [rule.lr_scale(16, gpus) for gpus in (1, 2, 4, 16)] == [0.75, 1.0, 2.0, 3.0]


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(["none", "linear", "sqrt"]), st.integers(1, 512))
def test_the_kept_global_batch_never_changes_the_rate(base: int, gpus: int, scaling: str, batch: int) -> None:
    kept = ScalingRule("global", scaling, base)  # type: ignore[arg-type]
    assert (kept.global_batch(batch, gpus), kept.lr_scale(batch, gpus)) == (batch, 1.0)
    per_gpu = ScalingRule("per-gpu", scaling, base)  # type: ignore[arg-type]
    assert per_gpu.global_batch(batch, gpus) == batch * gpus
    assert per_gpu.lr_scale(batch, base) == 1.0
    assert (per_gpu.lr_scale(batch, gpus) != 1.0) == (gpus != base and scaling != "none")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"keeps": "mine"}, "keeps is 'mine': write one of 'global', 'per-gpu'"),
        ({"lr_scaling": "cubic"}, "lr_scaling is 'cubic'"),
        ({"base_gpus": 0}, "base_gpus is 0"),
        ({"max_lr_scale": 0.5}, "max_lr_scale is 0.5"),
        ({"max_lr_scale": math.nan}, "max_lr_scale is nan"),
        ({"lr_ramp_steps": -1}, "lr_ramp_steps is -1"),
    ],
)
def test_wrong_wishes_are_named(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        runtime.job(**wrong)  # type: ignore[arg-type]


def test_the_rate_moves_in_a_straight_line_and_a_second_change_starts_from_where_it_is() -> None:
    scale = LrScale(ramp_steps=4)
    scale.jump(1.0)
    scale.aim(2.0, 10)
    assert [scale.at(step) for step in (10, 11, 12)] == [1.0, 1.25, 1.5]
    scale.aim(2.0, 12)  # said again: no new beginning
    assert scale.at(13) == 1.75
    scale.aim(0.75, 13)
    assert [scale.at(step) for step in (13, 15, 17, 99)] == [1.75, 1.25, 0.75, 0.75]


def _attempt(checkpoints: Path, gpus: int, steps: int, monkeypatch: pytest.MonkeyPatch, **asks: object) -> list[float]:
    """One attempt on so many GPUs, up to this step; the factor of each of its steps."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
    monkeypatch.setenv("COTENANT_GPUS_ASKED", "1")
    seen = []
    with runtime.job(checkpoint_dir=checkpoints, checkpoint_interval_s=0, **asks) as job:  # type: ignore[arg-type]
        job.save(lambda path: None)
        job.restore(lambda path: None)
        for _ in job.steps(steps):
            seen.append(job.learning_rate_scale)
    return seen


def test_over_restarts_the_factor_is_that_of_the_size_against_the_asked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"keeps": "per-gpu", "lr_scaling": "linear"}
    assert _attempt(tmp_path, 1, 2, monkeypatch, **asks) == [1.0, 1.0]
    assert _attempt(tmp_path, 2, 4, monkeypatch, **asks) == [2.0, 2.0]
    assert _attempt(tmp_path, 2, 6, monkeypatch, **asks) == [2.0, 2.0]  # not four
    assert _attempt(tmp_path, 1, 8, monkeypatch, **asks) == [1.0, 1.0]


def test_a_change_that_is_spread_over_steps_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"keeps": "per-gpu", "lr_scaling": "linear", "lr_ramp_steps": 4}
    assert _attempt(tmp_path, 2, 2, monkeypatch, **asks) == [2.0, 2.0]  # begins with its size: there is no old rate
    assert _attempt(tmp_path, 4, 4, monkeypatch, **asks) == [2.0, 2.5]
    assert _attempt(tmp_path, 4, 7, monkeypatch, **asks) == [3.0, 3.5, 4.0]
    newest = runtime.CheckpointStore(tmp_path).newest()
    assert newest is not None
    assert json.loads((newest.path / "cotenant-learning-rate.json").read_text()) == {"old": 2.0, "new": 4.0, "since": 2}


def test_with_the_global_batch_kept_nothing_changes_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"keeps": "global", "lr_scaling": "linear"}
    assert _attempt(tmp_path, 1, 2, monkeypatch, **asks) + _attempt(tmp_path, 4, 4, monkeypatch, **asks) == [1.0] * 4
    assert not list(tmp_path.glob("*/cotenant-learning-rate.json"))


def test_a_size_that_changes_while_the_job_runs_counts_from_the_next_step_boundary(inside: Service) -> None:
    inside.settings = Settings(gpus=2)
    seen: list[tuple[int, int, float]] = []
    with runtime.job(batch_size=16, keeps="per-gpu", lr_scaling="linear", base_gpus=2, lr_ramp_steps=2) as job:
        inside.wait_for(lambda message: isinstance(message, Hello))
        for step in job.steps(10**6):
            seen.append((job.gpus, job.global_batch, job.learning_rate_scale))
            if step == 0:
                inside.send(Set(gpus=4))
            if seen[-1][2] == 2.0:
                break
    assert [factor for size, _, factor in seen if size == 4] == [1.0, 1.5, 2.0]
    assert set(seen[:-3]) == {(2, 32, 1.0)}
    assert {batch for size, batch, _ in seen if size == 4} == {64}


@pytest.mark.parametrize(("said", "told"), [({}, 64.0), ({"batch": 7}, 7.0)])
def test_the_global_batch_is_reported_unless_the_script_does(
    inside: Service, said: dict[str, float], told: float
) -> None:
    inside.settings = Settings(gpus=4, accumulation=2)
    with runtime.job(batch_size=8, keeps="per-gpu") as job:
        for _ in job.steps(2):
            job.report(**said)
    last = inside.wait_for(lambda message: isinstance(message, Progress) and message.step == 2)
    assert last.metrics["batch"] == told  # type: ignore[union-attr]


class TestTorch:
    pytestmark = needs_torch

    def _train(self, folder: Path, gpus: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
        """(rate shown between steps, how far the step went: the gradient is 1) of each step of one attempt."""
        import torch

        from cotenant.runtime import torch as runtime_torch

        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
        monkeypatch.setenv("COTENANT_GPUS_ASKED", "1")
        weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        halving = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)  # works on what it finds
        seen = []
        with runtime.job(checkpoint_dir=folder, checkpoint_interval_s=0, keeps="per-gpu", lr_scaling="linear") as job:
            runtime_torch.attach(job, optimizer=optimizer, halving=halving)
            for _ in job.steps(steps):
                before = weight.item()
                weight.grad = torch.ones_like(weight)
                optimizer.step()
                seen.append((optimizer.param_groups[0]["lr"], before - weight.item()))
                halving.step()
        return seen

    def test_an_optimizer_steps_at_the_scaled_rate_once_and_keeps_the_base_rate(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps = [
            step
            for gpus, to in ((1, 2), (2, 5), (4, 6), (4, 8))
            for step in self._train(tmp_path, gpus, to, monkeypatch)
        ]
        shown, gone = [rate for rate, _ in steps], [far for _, far in steps]
        assert shown == [0.5] * 4 + [0.25] * 4
        assert gone == pytest.approx([0.5, 0.5, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0])

    def test_a_step_that_fails_leaves_the_rate_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        from cotenant.runtime import torch as runtime_torch

        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
        weight = torch.nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        runtime_torch.follow_learning_rate(runtime.job(keeps="per-gpu", lr_scaling="linear", base_gpus=1), optimizer)

        def broken() -> float:
            assert optimizer.param_groups[0]["lr"] == 1.0
            raise ArithmeticError

        for _ in range(2):
            with pytest.raises(ArithmeticError):
                optimizer.step(broken)
        assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.5
