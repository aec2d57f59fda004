"""Jobs of different turns on one GPU are never there together, and each gets its turn; in virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import effort
from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Change, Transition
from cotenant.core.workload import Workload, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import random_workload

COSTS = StopCosts(save_s=1.0, resume_s=1.0, suspends=True, most_suspended=40, patience_s=40.0)
POLICIES = Path(__file__).with_name("scatter_policy.py")
GANDIVA = "gandiva:packing=false,migration=false,defragmentation=false,quantum=20"


def _played(work: Workload, cluster: str, costs: StopCosts = COSTS, policy: str = GANDIVA) -> Simulation:
    run = Simulation(
        Experiment(
            work, Cluster.parse(cluster), policy, stop_costs=costs, transitions=True, check_invariants=True,
            skip_infeasible=True, compiled=False,
        )
    )  # fmt: skip
    assert run.advance(np.inf)
    return run


def _alike(gpus: list[int], seconds: float) -> Workload:
    count = len(gpus)
    return make_workload("alike", np.zeros(count), np.array(gpus), np.full(count, seconds))


def _check_company(stream: list[tuple[float, Transition]], size: int, ends: dict[int, float]) -> None:
    """No GPU has two jobs at a time, from a start or a resumption to the moment at which the next order is obeyed."""
    on: dict[int, tuple[set[tuple[int, int]], float]] = {}  # row -> its GPUs, and when it has left them
    for at_s, item in stream:
        if item.change in (Change.START, Change.RESUME):
            mine = {(node, k) for node, _, mask in item.places for k in range(size) if (mask >> k) & 1}
            for row, (theirs, left_s) in on.items():
                assert row == item.row or min(left_s, ends[row]) <= at_s or not mine & theirs, (at_s, item, row)
            on[item.row] = mine, np.inf
        elif item.change in (Change.SUSPEND, Change.STOP):
            on[item.row] = on[item.row][0], at_s + COSTS.save_s


@pytest.mark.parametrize("seed", effort.first(2, range(6)))
def test_whatever_the_gangs_no_two_turns_meet(seed: int) -> None:
    run = _played(random_workload(seed, 25, 6), "2x4")
    ended = run.state.f[:, col.FINISH]
    _check_company(run.transitions, 4, dict(enumerate(ended.tolist())))
    counts = Counter(item.change for _, item in run.transitions)
    assert counts[Change.SUSPEND] > 0
    assert counts[Change.STOP] == 0
    assert np.isfinite(ended[run.state.i[:, col.STATE] == col.FINISHED]).all()


def test_two_jobs_change_places_after_a_quantum() -> None:
    run = _played(_alike([1, 1], 50.0), "1x1")
    told = [(at_s, item.change, item.row) for at_s, item in run.transitions if item.change != Change.PROMISE]
    assert told[:5] == [
        (0.0, Change.START, 0), (20.0, Change.SUSPEND, 0), (21.0, Change.START, 1), (41.0, Change.SUSPEND, 1),
        (42.0, Change.RESUME, 0),
    ]  # fmt: skip
    assert all(item.moved == 3 for _, item in run.transitions if item.change == Change.SUSPEND)
    assert run.state.i[:, col.PREEMPTS].tolist() == [0, 0]
    assert run.state.i[:, col.STARTS].tolist()[1] >= 2


def test_a_gang_that_waits_longest_gets_all_its_gpus() -> None:
    """Small jobs on each GPU may not pass a gang over for ever."""
    run = _played(_alike([1, 1, 2, 1, 1], 100.0), "1x2", policy=f"{POLICIES}:Benches")
    begun = {item.row: at_s for at_s, item in reversed(run.transitions) if item.change == Change.START}
    assert begun == {0: 0.0, 1: 0.0, 2: 21.0, 3: 42.0, 4: 42.0}


@pytest.mark.parametrize("seed", effort.first(1, range(3)))
def test_rules_hold_whatever_a_plan_does_to_turns(seed: int) -> None:
    """Invariants are checked after every event; plans stop, move and pair jobs at random."""
    run = _played(random_workload(seed, 9, 6), "2x4", policy=f"{POLICIES}:Turning")
    assert Counter(item.moved for _, item in run.transitions)[3] > 0


def test_jobs_that_can_only_save_are_started_again() -> None:
    costs = StopCosts(save_s=1.0, suspends=True, most_suspended=0)
    run = _played(_alike([1, 1], 50.0), "1x1", costs)
    assert Counter(item.change for _, item in run.transitions)[Change.STOP] >= 2
    assert all(item.moved == 3 for _, item in run.transitions if item.change == Change.STOP)


def test_without_suspension_time_is_shared_as_a_fluid() -> None:
    run = _played(_alike([1, 1], 50.0), "1x1", StopCosts())
    assert [item.change for _, item in run.transitions if item.change != Change.TERMS] == [Change.START] * 2


@pytest.mark.parametrize(("seconds", "suspended"), [(21.5, False), (23.0, True)])
def test_who_is_done_before_it_could_be_off_and_back_finishes_its_turn(seconds: float, suspended: bool) -> None:
    """A turn of 20 s, one second to be off and one to be back."""
    run = _played(_alike([1, 1], seconds), "1x1")
    assert any(item.change == Change.SUSPEND for _, item in run.transitions) == suspended
    assert (run.state.f[:2, col.FINISH].min() == pytest.approx(seconds)) != suspended
