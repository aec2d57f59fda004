"""Turns by weight and priority, and what being late for the end of one costs; in shares and with suspensions."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Change
from cotenant.core.workload import make_workload
from cotenant.engine.tables import StopCosts
from cotenant.policies.gandiva.turns import LEAST, shares
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.sharing import shared_run, sharing

ALONE = "packing=false,migration=false,defragmentation=false"


def test_time_goes_by_weight_and_nobody_gets_more_than_all_of_it() -> None:
    """2 to 1 on one GPU. On two, 4 : 1 : 1 would be 4/3, 1/3 and 1/3: the first runs all the time, the rest share."""
    assert shares([(1, 2.0, 0.0), (1, 1.0, 0.0)], 1, 0.0, 60.0) == pytest.approx([2 / 3, 1 / 3])
    assert shares([(1, 4.0, 0.0), (1, 1.0, 0.0), (1, 1.0, 0.0)], 2, 0.0, 60.0) == pytest.approx([1.0, 0.5, 0.5])


def test_a_gang_counts_with_all_its_gpus() -> None:
    """2 GPUs of weight 3 and 2 of weight 1, on two GPUs: 2 * 3/4 + 2 * 1/4 = 2."""
    assert shares([(2, 3.0, 0.0), (2, 1.0, 0.0)], 2, 0.0, 60.0) == pytest.approx([0.75, 0.25])


def test_priority_comes_before_weight() -> None:
    assert shares([(1, 1.0, 1.0), (1, 9.0, 0.0)], 1, 0.0, 60.0) == [1.0, LEAST]
    assert shares([(1, 1.0, 1.0), (1, 2.0, 0.0), (1, 1.0, 0.0)], 2, 0.0, 60.0) == pytest.approx([1.0, 2 / 3, 1 / 3])


@pytest.mark.parametrize("seed", range(20))
def test_no_server_gives_away_more_time_than_it_has(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gpus = int(draw.integers(1, 9))
    units = [
        (int(draw.integers(1, gpus + 1)), float(draw.integers(1, 5)), float(draw.integers(0, 2))) for _ in range(6)
    ]
    parts = shares(units, gpus, 0.0, 60.0)
    used = sum(unit[0] * part for unit, part in zip(units, parts, strict=True))
    assert used <= gpus + 6 * 8 * LEAST
    assert used >= min(gpus, sum(unit[0] for unit in units)) - 1e-9
    assert all(LEAST <= part <= 1 for part in parts)


def test_simulated_jobs_run_at_the_speed_of_their_share() -> None:
    run = shared_run([(0.0, 1, 600.0)] * 2, sharing(np.full((2, 2), 0.6)), "1x1", f"gandiva:{ALONE},switch_s=0")
    run.state.f[:, col.WEIGHT] = 2.0, 1.0
    run.advance(0.0)
    assert run.state.f[:, col.SPEED] == pytest.approx([2 / 3, 1 / 3])
    run.advance(np.inf)
    assert run.outcome().finish_s == pytest.approx([900.0, 1200.0])


def _turns(
    save_s: float, quantum: float, weight: list[float], priority: list[int] | None = None
) -> list[tuple[float, ...]]:
    """When which of two jobs on one GPU starts, goes on and is suspended."""
    work = make_workload(
        "two", np.zeros(2), np.ones(2, np.int64), np.full(2, 500.0), extra={"weight": np.array(weight)},
        priority=None if priority is None else np.array(priority),
    )  # fmt: skip
    costs = StopCosts(save_s=save_s, suspends=True, most_suspended=4, patience_s=1e9)
    policy = f"gandiva:{ALONE},quantum={quantum}"
    run = Simulation(
        Experiment(work, Cluster.parse("1x1"), policy, stop_costs=costs, transitions=True, compiled=False, costs="none")
    )
    run.advance(np.inf)
    kinds = (Change.START, Change.RESUME, Change.SUSPEND)
    return [(at_s, item.row, item.change == Change.SUSPEND) for at_s, item in run.transitions if item.change in kinds]


def test_turns_are_as_long_as_weights_say() -> None:
    """Of 40 and 20 s; it takes 1 s to be off, by which the next turn is shorter."""
    assert _turns(1.0, 20.0, [2.0, 1.0])[:7] == [
        (0.0, 0, False), (40.0, 0, True), (41.0, 1, False), (61.0, 1, True), (62.0, 0, False), (101.0, 0, True),
        (102.0, 1, False),
    ]  # fmt: skip


def test_who_is_late_for_the_end_of_its_turn_has_a_shorter_one_next_time() -> None:
    """Told at 60.0 s, off at 60.8: 59.2 s next time, from 121.6 to 180.8."""
    found = _turns(0.8, 60.0, [1.0, 1.0])[:6]
    assert [at_s for at_s, _, _ in found] == pytest.approx([0.0, 60.0, 60.8, 120.8, 121.6, 180.8])
    assert [(row, off) for _, row, off in found] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1)]


def test_nobody_is_suspended_for_a_lower_priority() -> None:
    found = _turns(1.0, 20.0, [1.0, 1.0], [0, 1])
    assert found == [(0.0, 1, False), (500.0, 0, False)]
