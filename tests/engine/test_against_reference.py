"""The product against a slow, independent simulator, job by job, on small random workloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_reference import Row, Rules, finish_times

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import jobs, stops

GPUS = 6
# Few different times and durations, so that ties are common; 12 and 24 divide by every gang size.
ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([1, 1, 2, 3, 4, GPUS]), st.sampled_from([0, 1, 2, 3, 5, 8, 13])),
    min_size=1,
    max_size=14,
).map(sorted)
# sorted() above also shuffles sizes and lengths inside a moment into one order; this one keeps them mixed.
MIXED = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3, GPUS]), st.integers(0, 9)), min_size=2, max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))

CASES = {
    "fifo": Rules("fifo", strict=True),
    "fifo:strict=false": Rules("backfill"),
    "backfill": Rules("backfill"),
    "easy": Rules("easy"),
    "sjf": Rules("sjf"),
    "sjf:strict=true": Rules("sjf", strict=True),
    "random": Rules("random"),
    "random:strict=true": Rules("random", strict=True),
    "srtf": Rules("srtf"),
    "srsf": Rules("srsf"),
    "las": Rules("las", round_s=4),
    "las:round=1": Rules("las", round_s=1),
    "tiresias-l:threshold=12": Rules("tiresias-l", thresholds=(12,)),
    "tiresias-l:thresholds=[12,24]": Rules("tiresias-l", thresholds=(12, 24)),
    "tiresias-l:threshold=12,knob=2": Rules("tiresias-l", thresholds=(12,), knob=2),
    "tiresias-l:thresholds=[12,24],knob=1": Rules("tiresias-l", thresholds=(12, 24), knob=1),
}


def experiment(rows: list[Row], policy: str) -> Experiment:
    return Experiment(
        jobs(*rows),
        Cluster.parse("3x2"),
        policy,
        placement="count",
        costs="none",
        round_s=4.0,
        check_invariants=True,
        compiled=False,
    )


@pytest.mark.parametrize("policy", CASES)
@settings(deadline=None, max_examples=25)
@given(rows=st.one_of(ROWS, MIXED))
@example(rows=[(0, 6, 0), (0, 6, 0), (0, 1, 5)])
@example(rows=[(0, 3, 10), (0, 4, 10), (0, 2, 5), (0, 1, 100)])  # a short job leaves EASY's spare GPU alone
@example(rows=[(0, 4, 5), (0, 4, 5), (0, 2, 9), (1, 1, 1), (5, 6, 1)])
def test_finish_times_agree(policy: str, rows: list[Row]) -> None:
    run = Simulation(experiment(rows, policy))
    draws = run.state.f[:, col.DRAW].tolist()
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == finish_times(rows, GPUS, CASES[policy], draws)


@settings(deadline=None, max_examples=30)
@given(rows=st.one_of(ROWS, MIXED), placement=st.sampled_from(["count", "consolidated"]))
def test_easy_never_delays_a_reservation(rows: list[Row], placement: str) -> None:
    run = experiment(rows, "easy")
    promised: dict[int, float] = {}
    for paused in stops(Experiment(run.workload, run.cluster, "easy", placement=placement, costs="none")):
        state = paused.state
        waiting = np.flatnonzero(state.i[:, col.STATE] == col.WAITING)
        if len(waiting) and state.x[col.IDLE] > 0:
            head, start = int(waiting[0]), float(state.t[col.HEAD_START])
            promised[head] = min(start, promised.get(head, np.inf))
    for row, start in promised.items():
        assert paused.state.f[row, col.FIRST] <= start


def test_random_order_follows_the_seed() -> None:
    rows = [(0, 6, 5)] * 8
    orders = {
        tuple(np.argsort(Simulation(e).state.f[:, col.DRAW]))
        for e in (Experiment(jobs(*rows), Cluster.parse("3x2"), "random", seed=seed) for seed in range(4))
    }
    assert len(orders) == 4
