"""Displacing: only the last in the order lose their places, and nobody moves for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.workload import make_workload
from cotenant.sim.driver import Experiment, simulate


def play(rows: list[tuple[float, int, float]], cluster: str, policy: str = "srtf") -> list[int]:
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    work = make_workload("test", submit.astype(float), gpus.astype(np.int64), duration.astype(float))
    experiment = Experiment(
        work, Cluster.parse(cluster), policy, costs="none", check_invariants=True, compiled=False
    )  # fmt: skip
    return simulate(experiment).preemptions.tolist()


def test_a_short_job_takes_the_node_of_the_last_in_the_order() -> None:
    assert play([(0, 2, 100), (1, 2, 200), (2, 2, 10)], "2x2") == [0, 1, 0]


def test_whichever_node_the_last_one_sits_on() -> None:
    assert play([(0, 2, 200), (1, 2, 100), (2, 2, 10)], "2x2") == [1, 0, 0]


def test_a_wide_gang_empties_the_nodes_of_the_last_ones() -> None:
    rows = [(0, 2, 300), (0, 2, 100), (0, 2, 200), (0, 2, 400), (5, 4, 10)]
    assert play(rows, "4x2") == [1, 0, 0, 1, 0]


def test_small_jobs_behind_leave_together_when_only_together_they_make_room() -> None:
    rows = [(0, 1, 100), (0, 1, 500), (0, 1, 400), (0, 1, 450), (5, 2, 10)]
    assert play(rows, "2x2") == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las:round=50", "tiresias-l:thresholds=[200,800]"])
def test_hardly_anybody_moves_in_a_busy_cluster(policy: str) -> None:
    rng = np.random.default_rng(7)
    rows = [(float(t), int(g), float(d)) for t, g, d in zip(
        np.cumsum(rng.exponential(4, 150)), rng.choice([1, 1, 2, 4, 8], 150), rng.exponential(120, 150) + 1, strict=True
    )]  # fmt: skip
    busy = sum(play(rows, "6x8", policy))
    counted = sum(play(rows, "1x48", policy))
    assert busy <= 2 * counted + 10
