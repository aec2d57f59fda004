"""Gandiva: height, turns, the order of placement rules, packing by trial, defragmentation."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.policies.gandiva.turns import Member, Rota, fair_share, height
from cotenant.testing.sharing import shared_run, sharing

# Table of the paper (P40): model, utilisation %, mini-batches/s in turns and packed.
PACKING = (
    ("VAE", 8.7, 81.8, 419.3, True),
    ("SuperResolution", 14.1, 40.3, 145.2, True),
    ("RHN", 61.6, 10.1, 14.8, True),
    ("SCRNN", 66.8, 16.7, 23.3, True),
    ("MI-LSTM", 76.2, 22.2, 25.9, True),
    ("LSTM", 87.2, 63.8, 53.0, False),
    ("ResNet-50", 94.0, 10.3, 9.0, False),
    ("ResNext-50", 98.9, 83.6, 74.4, False),
)


def test_height_and_shares() -> None:
    assert height(6, 4) == 2
    assert height(4, 4) == 1
    assert fair_share(6, 4, 1.0, 60.0) == pytest.approx(4 / 6 * (1 - 1 / 60))
    assert 1 - fair_share(6, 4, 0.1, 60.0) / (4 / 6) == pytest.approx(0.0017, abs=1e-4)
    assert fair_share(3, 4, 1.0, 60.0) == 1.0


def test_an_overrun_is_charged_to_the_next_turn() -> None:
    rota = Rota(1, 60.0, [Member("a", 1), Member("b", 1)])
    (first,) = rota.next_turn()
    rota.ran(first, 60.8)
    assert rota.length_s(first) == pytest.approx(59.2)
    assert [m.name for m in rota.next_turn()] == ["b"]


def test_turns_are_fair() -> None:
    rota = Rota(4, 60.0, [Member(str(k), 1) for k in range(6)])
    for _ in range(60):
        for member in rota.next_turn():
            rota.ran(member, 60.0)
    shares = [member.ran_s / 3600 for member in rota.members]
    assert shares == pytest.approx([4 / 6] * 6, abs=0.02)


def _alone(count: int) -> np.ndarray:
    return np.full((count, count), 0.6)


def test_six_jobs_on_four_gpus_take_turns() -> None:
    run = shared_run([(0.0, 1, 600.0)] * 6, sharing(_alone(6)), "1x4", "gandiva:packing=false,switch_s=1")
    run.advance(0.0)
    assert run.state.f[:, col.SPEED] == pytest.approx(np.full(6, 4 / 6 * 59 / 60))
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()


def test_placement_order() -> None:
    """Two 1-GPU jobs on A, a 2-GPU job on B, C empty: 1 GPU to A, 4 to C, 4 more over-subscribe C."""
    rows = [(0.0, 1, 900.0), (0.0, 1, 900.0), (0.0, 2, 900.0), (1.0, 1, 900.0), (2.0, 4, 900.0), (3.0, 4, 900.0)]
    run = shared_run(rows, sharing(_alone(6)), "3x4", "gandiva:packing=false,migration=false,defragmentation=false")
    run.advance(3.0)
    view = run.engine.view(3.0)
    nodes = [{node for node, _ in view.placement(row)} for row in range(6)]
    assert nodes[:3] == [{0}, {0}, {1}]
    assert nodes[3:] == [{0}, {2}, {2}]
    assert run.state.f[5, col.SPEED] == pytest.approx(0.5 * (1 - 0.5 / 60))


@pytest.mark.parametrize(("model", "util", "turns", "packed", "keep"), PACKING)
def test_packing_is_kept_only_where_it_pays(model: str, util: float, turns: float, packed: float, keep: bool) -> None:
    """Two equal jobs on one GPU with the paper's rates."""
    ratio = packed / turns / 2
    table = sharing(np.full((2, 2), min(ratio, 1.0)), busy=[util / 100] * 2)
    run = shared_run([(0.0, 1, 3000.0), (0.0, 1, 3000.0)], table, "1x1", "gandiva")
    run.advance(299.0)
    policy = run.policy
    assert isinstance(policy, Gandiva)
    if keep:
        assert [trial.kept for trial in policy.trials.values()] == [True]
    else:
        assert not policy.trials
        assert policy.counts["undone"] >= 1
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()


def test_packing_needs_the_memory() -> None:
    table = sharing(np.full((2, 2), 0.9), memory_gib=[20, 20], gpu_gib=32, busy=[0.1, 0.1])
    run = shared_run([(0.0, 1, 3000.0), (0.0, 1, 3000.0)], table, "1x1", "gandiva")
    run.advance(300.0)
    assert isinstance(run.policy, Gandiva)
    assert not run.policy.trials


def test_a_vacated_gpu_lowers_the_height() -> None:
    rows = [(0.0, 1, 500.0), (0.0, 1, 2000.0), (0.0, 1, 2000.0)]
    run = shared_run(rows, sharing(_alone(3)), "2x1", "gandiva:packing=false,residence_s=0")
    run.advance(1200.0)
    assert run.state.i[1:, col.STATE].tolist() == [col.RUNNING] * 2
    assert run.state.f[1:, col.SPEED] == pytest.approx([1.0, 1.0])
    assert isinstance(run.policy, Gandiva)
    assert run.policy.counts["migrations"] + int(run.state.i[:, col.PREEMPTS].sum()) >= 0


@pytest.mark.parametrize(("busy", "moves"), [(1, True), (2, False)])
def test_defragmentation_threshold(busy: int, moves: bool) -> None:
    """A server with one of four GPUs busy is emptied onto a fuller one; with two it is not."""
    rows = [(0.0, 2, 5000.0), (0.0, 4, 400.0), *[(1.0, 1, 5000.0)] * busy]
    policy = "gandiva:packing=false,migration=false,residence_s=0"
    run = shared_run(rows, sharing(_alone(len(rows))), "3x4", policy)
    run.advance(1000.0)
    view = run.engine.view(1000.0)
    nodes = {node for row in range(2, len(rows)) for node, _ in view.placement(row)}
    assert (nodes == {node for node, _ in view.placement(0)}) is moves
