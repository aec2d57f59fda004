"""The live service does what the simulator says: a few policies of `python -m bench.same`, on fewer jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

import effort
from cotenant.core.decision import Change, Transition
from cotenant.testing.same import compare, first_difference
from cotenant.testing.same_rows import COSTS, rows

POLICIES = (
    "easy",
    "srtf",
    "las",
    "tiresias-l:threshold=600,knob=4",
    "gavel",
    "chronus",
    "sjf-bsbf",
    "muri-s",
    "gandiva",
    "optimus",
)
ROWS = {row.policy: row for row in reversed(list(rows()))}


@pytest.mark.parametrize("costs", effort.first(1, COSTS))
@pytest.mark.parametrize("policy", POLICIES)
def test_live_and_simulated_are_the_same(policy: str, costs: str, tmp_path: Path) -> None:
    found = compare(ROWS[policy].experiment(costs, jobs=25), tmp_path)
    assert not found.difference
    assert found.apart_s <= 1e-6
    assert found.transitions >= 25


@pytest.mark.parametrize("costs", effort.first(1, COSTS))
@pytest.mark.parametrize("policy", ["fifo:strict=false", "philly"])
def test_live_and_simulated_jobs_are_moved_alike(policy: str, costs: str, tmp_path: Path) -> None:
    row = next(row for row in rows() if row.defrag and row.policy == policy)
    found = compare(row.experiment(costs, jobs=25), tmp_path)
    assert not found.difference
    assert found.apart_s <= 1e-6


@pytest.mark.parametrize(("policy", "costs"), [("ones", "lagging"), ("ones-goodput", "today")])
def test_schedules_evolve_alike(policy: str, costs: str, tmp_path: Path) -> None:
    """Draws, what is learned and when a winner comes into force; on few jobs, since it decides every five seconds."""
    found = compare(ROWS[policy].experiment(costs, jobs=7), tmp_path)
    assert not found.difference
    assert found.apart_s <= 1e-6
    assert found.transitions >= 14


def test_neither_plans_with_jobs_that_no_node_that_is_up_could_hold(tmp_path: Path) -> None:
    """Random pairs of the jobs that are shown: one job more or less, and others are drawn."""
    found = compare(ROWS["gandiva-packing"].experiment("today", jobs=25, seed=3), tmp_path)
    assert not found.difference
    assert found.apart_s <= 1e-6


def test_another_gpu_or_time_is_a_difference() -> None:
    start = Transition(Change.START, 3, ((0, 1, 1),))
    assert not first_difference([(1.0, start)], [(1.0, start)])
    for other in ((1.1, start), (1.0, Transition(Change.START, 3, ((0, 1, 2),)))):
        assert first_difference([(1.0, start)], [other]).startswith("transition 0: simulated 1.0 s start row 3")
    assert first_difference([(1.0, start)], []).endswith("live nothing more")
