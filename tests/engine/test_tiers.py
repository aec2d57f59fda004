"""A job's priority comes before every policy's own order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_reference import Row, finish_times
from test_against_reference import CASES, GPUS, experiment

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.reasons import Cause
from cotenant.core.workload import Workload
from cotenant.engine.explain import explain
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same, jobs, random_workload, stops

# (submit, GPUs, duration), priority
RANKED = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 9), st.sampled_from([1, 1, 2, 3, GPUS]), st.integers(0, 9)),
        st.sampled_from([-2, 0, 1]),
    ),
    min_size=2,
    max_size=12,
).map(lambda ranked: sorted(ranked, key=lambda item: item[0][0]))

WRITTEN = """
from cotenant.core import columns as col
from cotenant.policies import OrderPolicy, PriorityPolicy

class Three(OrderPolicy):
    "By three columns, so that the tier is a fourth."
    name = "three"
    order = (col.BY_GPUS, col.BY_BELIEF, col.BY_DRAW)
    preemptive = True

class Short(PriorityPolicy):
    "By remaining time, in Python."
    name = "short"
    def priority(self, view):
        return view.remaining_s
"""


def ranked(work: Workload, priority: list[int]) -> Workload:
    return replace(work, priority=np.array(priority, np.int64))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policies") / "written.py"
    path.write_text(WRITTEN, encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", CASES)
@settings(deadline=None, max_examples=25)
@given(items=RANKED)
@example(items=[((0, 6, 9), 0), ((1, 6, 5), 1), ((1, 1, 5), -2), ((2, 2, 1), 1)])
def test_finish_times_agree_with_the_reference(policy: str, items: list[tuple[Row, int]]) -> None:
    rows, priority = [row for row, _ in items], [level for _, level in items]
    plain = experiment(rows, policy)
    run = Simulation(replace(plain, workload=ranked(plain.workload, priority)))
    draws = run.state.f[:, col.DRAW].tolist()
    run.advance(np.inf)
    expected = finish_times(rows, GPUS, CASES[policy], draws, [-level for level in priority])
    assert run.outcome().finish_s.tolist() == expected


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las", "tiresias-l", "tiresias-g", "Three", "Short"])
@settings(deadline=None, max_examples=15)
@given(items=RANKED)
def test_nobody_runs_in_the_place_of_a_waiting_job_of_a_higher_tier(
    written: Path, policy: str, items: list[tuple[Row, int]]
) -> None:
    name = f"{written}:{policy}" if policy in ("Three", "Short") else policy
    plain = experiment([row for row, _ in items], name)
    for run in stops(replace(plain, workload=ranked(plain.workload, [level for _, level in items]))):
        tier, gpus, state = run.state.f[:, col.TIER], run.state.i[:, col.GPUS], run.state.i[:, col.STATE]
        idle = int(run.state.x[col.IDLE])
        for job in np.flatnonzero(state == col.WAITING):
            behind = (state == col.RUNNING) & (tier > tier[job])
            assert idle + gpus[behind].sum() < gpus[job]


@pytest.mark.parametrize("policy", ["fifo", "easy", "srsf", "las", "tiresias-g", "sjf"])
def test_one_priority_for_all_changes_nothing(policy: str) -> None:
    work = random_workload(3, 60, 8)
    runs = [
        simulate(Experiment(ranked(work, [level] * 60), Cluster.parse("2x4"), policy, costs="2", round_s=20.0))
        for level in (0, 7, -7)
    ]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


@pytest.mark.parametrize("placement", ["consolidated", "relaxed:after=9", "spread"])
@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "sjf", "srsf", "las", "tiresias-l", "tiresias-g"])
def test_invariants_hold_with_tiers_on_nodes(policy: str, placement: str) -> None:
    work = random_workload(5, 50, 8)
    work = ranked(work, (np.arange(50) % 3).tolist())
    cluster = Cluster.parse("2x4")
    simulate(Experiment(work, cluster, policy, placement=placement, costs="2", round_s=20.0, check_invariants=True))


def why(policy: str, row: int):
    """Four GPUs: row 0 runs; rows 1 to 3 wait, the last one with the highest priority."""
    work = ranked(jobs((0, 4, 100), (1, 4, 10), (2, 4, 20), (3, 4, 500)), [2, 0, 0, 1])
    cluster = Cluster.parse("1x4")
    run = Simulation(Experiment(work, cluster, policy, placement="count", costs="none"))
    run.advance(5.0)
    return explain(run.engine, run.work, cluster, row, 5.0)


@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "sjf", "srtf", "las", "tiresias-g"])
def test_why_names_those_ahead_by_tier(policy: str) -> None:
    assert (why(policy, 3).position, why(policy, 3).ahead, why(policy, 3).cause) == (1, (), Cause.CAPACITY)
    assert (why(policy, 1).position, why(policy, 1).ahead) == (2, ("3",))
    assert (why(policy, 2).position, why(policy, 2).ahead) == (3, ("3", "1"))


def test_a_strict_line_is_held_by_the_highest_tier() -> None:
    work = ranked(jobs((0, 6, 10), (1, 2, 10), (2, 4, 10)), [0, 0, 1])
    result = simulate(Experiment(work, Cluster.parse("1x8"), "fifo", placement="count", costs="none"))
    assert result.first_start_s.tolist() == [0, 1, 10]
    work = ranked(jobs((0, 6, 10), (2, 2, 10), (2, 4, 10)), [0, 0, 1])
    result = simulate(Experiment(work, Cluster.parse("1x8"), "fifo", placement="count", costs="none"))
    assert result.first_start_s.tolist() == [0, 10, 10]
