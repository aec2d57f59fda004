"""Who fared how, by hand: two tenants on one GPU."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_outcomes import outcome

from cotenant.core.cluster import Cluster
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Codes, make_workload
from cotenant.report import standing
from cotenant.sim.driver import Experiment, simulate


@pytest.fixture(scope="module")
def two() -> Outcome:
    """a runs from 0 to 100, b from 100 to 200: all of the time one of them waits, or nobody does."""
    work = make_workload(
        "two", np.array([0.0, 0.0]), np.array([1, 1]), np.array([100.0, 100.0]), tenant=Codes.of(["x", "y"])
    )
    return simulate(Experiment(work, Cluster.parse("1x1"), "fifo"))


def test_fair_ratio_by_hand(two: Outcome) -> None:
    """Demand is 2 until 100 and 1 after it. a: 100 / (100 x 2). b: 200 / (100 x (100 x 2 + 100 x 1) / 200)."""
    assert standing.fair_ratio(two).tolist() == pytest.approx([0.5, 200 / 150])
    assert standing.worst_tenth(standing.fair_ratio(two)) == pytest.approx(200 / 150)
    rows = standing.by_group(two, two.workload.tenant)
    assert [(row["name"], row["fair_ratio"]) for row in rows] == [("x", 0.5), ("y", pytest.approx(200 / 150))]


def test_waterfall_adds_up(two: Outcome) -> None:
    parts = standing.waterfall(two)
    assert parts["useful"] == pytest.approx(200 / 3600)
    assert sum(parts.values()) == pytest.approx(200 / 3600)
    made = outcome("fifo")
    assert sum(standing.waterfall(made).values()) == pytest.approx(
        made.cluster_gpus * (made.series.time_s[-1] - made.series.time_s[0]) / 3600, rel=0.2
    )


def test_start_up_restoring_and_work_done_again_are_apart() -> None:
    """A long job of 2 GPUs makes room for a short one once; coming back takes 60 s, and nothing is done again."""
    work = make_workload("two", np.array([0.0, 100.0]), np.array([2, 2]), np.array([1000.0, 10.0]))
    made = simulate(Experiment(work, Cluster.parse("1x2"), "srtf", costs="60"))
    parts = standing.waterfall(made)
    assert made.preemptions.tolist() == [1, 0]
    assert (parts["start-up"], parts["done again"]) == (0, 0)
    assert parts["restoring"] == pytest.approx(2 * 60 / 3600)
    assert parts["useful"] == pytest.approx(2 * 1010 / 3600)


def test_jain() -> None:
    assert standing.jain([1, 1, 1]) == 1
    assert standing.jain([1, 0]) == 0.5
    assert standing.jain([0, 0]) is None


def test_the_busiest_window_is_where_jobs_wait() -> None:
    """Forty jobs come between 1,000 and 1,040 s to one GPU; others come one by one, and nobody waits."""
    submit = np.concatenate([np.arange(10) * 1000.0, 4000 + np.arange(40.0)])
    work = make_workload("burst", submit, np.ones(50, np.int64), np.full(50, 10.0))
    made = simulate(Experiment(work, Cluster.parse("1x1"), "fifo"))
    window = standing.busiest_window([made])
    assert window is not None
    assert window[0] <= 4010
    assert 4100 <= window[1] <= 5000
