"""Gandiva: turns, the order of placement rules, packing by trial, defragmentation."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.placement.room import SharedRoom
from cotenant.policies.gandiva.packing import can_pair
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.policies.gandiva.server import Servers, size_class
from cotenant.policies.gandiva.turns import shares
from cotenant.sim.driver import Simulation
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


def test_shares() -> None:
    six = [(1, 1.0, 0.0)] * 6
    assert shares(six, 4, 1.0, 60.0) == pytest.approx([4 / 6 * (1 - 1 / 60)] * 6)
    assert 1 - shares(six, 4, 0.1, 60.0)[0] / (4 / 6) == pytest.approx(0.0017, abs=1e-4)
    assert shares(six[:3], 4, 1.0, 60.0) == [1.0] * 3


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


def _nodes(run: Simulation, row: int) -> set[int]:
    return {node for node, _ in run.engine.view(float(run.state.t[col.NOW])).placement(row)}


def test_affinity_is_the_next_power_of_two_of_the_largest_job() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]
    rows = [(0.0, 3, 900.0), (1.0, 2, 900.0), (2.0, 2, 900.0)]
    run = shared_run(rows, sharing(_alone(3)), "3x4", "gandiva:packing=false,migration=false,defragmentation=false")
    run.advance(2.0)
    servers = Servers(SharedRoom(run.engine.view(2.0)), {})
    assert [servers.affinity(node) for node in range(3)] == [4, 2, 0]
    assert [_nodes(run, row) for row in range(3)] == [{0}, {1}, {1}]
    assert [servers.load(node) for node in range(3)] == [0.75, 1.0, 0.0]


def test_rule_one_counts_the_load_unrounded_and_takes_the_least_loaded() -> None:
    """Rounded up, a server with one job would be full; yet it takes four of 1 GPU. Later the emptier one is taken."""
    rows = [*[(0.0, 1, 100.0 if k < 2 else 900.0) for k in range(5)], (200.0, 1, 900.0)]
    run = shared_run(rows, sharing(_alone(6)), "2x4", "gandiva:packing=false,migration=false,defragmentation=false")
    run.advance(0.0)
    assert [_nodes(run, row) for row in range(5)] == [{0}, {0}, {0}, {0}, {1}]
    run.advance(200.0)
    assert _nodes(run, 5) == {1}  # load 1/4 against 2/4


def test_rule_three_takes_any_free_gpus_before_turns() -> None:
    """A 2-GPU job finds two servers of another class with one free GPU each: it is spread, and nobody takes turns."""
    rows = [(0.0, 3, 900.0), (0.0, 3, 900.0), (1.0, 2, 900.0)]
    run = shared_run(rows, sharing(_alone(3)), "2x4", "gandiva:packing=false,migration=false,defragmentation=false")
    run.advance(1.0)
    assert _nodes(run, 2) == {0, 1}
    assert (run.state.gpu >= 0).sum(axis=1).max() == 1


def test_rule_five_queues_what_finds_no_place() -> None:
    """Four jobs is most for a GPU; without turns one is. The fifth (the second) waits."""
    for policy, runs in (("gandiva:packing=false", col.SLOTS), ("gandiva:packing=false,time_slicing=false", 1)):
        run = shared_run([(0.0, 1, 500.0)] * 5, sharing(_alone(5)), "1x1", policy)
        run.advance(0.0)
        assert (run.state.i[:, col.STATE] == col.RUNNING).sum() == runs
        run.advance(np.inf)
        assert np.isfinite(run.outcome().finish_s).all()


def test_a_gang_on_two_servers_runs_at_the_turns_of_the_fuller_one() -> None:
    """8 slots on 4 GPUs of one server, 4 on those of the other. A 2-GPU job finds no server of its class and waits."""
    rows = [(0.0, 4, 900.0), (1.0, 8, 900.0), (2.0, 2, 900.0)]
    run = shared_run(rows, sharing(_alone(3)), "2x4", "gandiva:packing=false,migration=false,switch_s=0")
    run.advance(2.0)
    assert [_nodes(run, row) for row in range(3)] == [{0}, {0, 1}, set()]
    assert run.state.f[:2, col.SPEED] == pytest.approx([1 / 2] * 2)


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
        assert [trial.kept for trial in policy.packing.trials.values()] == [True]
    else:
        assert not policy.packing.trials
        assert policy.counts["undone"] >= 1
    run.advance(np.inf)
    assert np.isfinite(run.outcome().finish_s).all()


def test_packing_needs_the_memory() -> None:
    table = sharing(np.full((2, 2), 0.9), memory_gib=[20, 20], gpu_gib=32, busy=[0.1, 0.1])
    run = shared_run([(0.0, 1, 3000.0), (0.0, 1, 3000.0)], table, "1x1", "gandiva")
    run.advance(300.0)
    assert isinstance(run.policy, Gandiva)
    assert not run.policy.packing.trials


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("open_", [0, 1])
def test_whether_two_can_share_is_a_matter_of_their_gpu_type(open_: int, first: int, second: int) -> None:
    """Two jobs on GPUs of each of two types; the second of them goes on beside the first on one type only."""
    run = shared_run([(0.0, 1, 3000.0)] * 4, sharing(_alone(4)), "1x2:v100+1x2:k80", "gandiva:packing=false")
    run.advance(2.0)
    board, policy = SharedRoom(run.engine.view(2.0)), run.policy
    assert isinstance(policy, Gandiva)
    for here in (0, 1):
        mates = [row for gpu in np.flatnonzero(board.type_of == here) for row in board.users[gpu]]
        assert len(mates) == 2
        guest, host = mates[first], mates[second]
        ratio = np.full((4, 4, 2), 0.9)
        ratio[board.kind(mates[1]), board.kind(mates[0]), 1 - open_] = 0.0
        assert can_pair(board, guest, host, ratio) == (here == open_)


def test_a_vacated_gpu_lowers_the_height() -> None:
    """Two jobs take turns on A; when the one on B ends, one of them moves there."""
    rows = [(0.0, 1, 2000.0), (0.0, 1, 500.0), (0.0, 1, 2000.0)]
    run = shared_run(rows, sharing(_alone(3)), "2x1", "gandiva:packing=false,residence_s=0")
    run.advance(499.0)
    assert run.state.gpu[:, :2].tolist() == [[0, 2], [1, -1]]
    run.advance(1200.0)
    assert sorted(run.state.gpu[:, 0].tolist()) == [0, 2]
    assert run.state.f[[0, 2], col.SPEED] == pytest.approx([1.0, 1.0])
    assert isinstance(run.policy, Gandiva)
    assert run.policy.counts["migrations"] == 1


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
