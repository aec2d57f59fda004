"""Muri's order changes when jobs come and go, and at no other time."""

from __future__ import annotations

from cotenant.core.cluster import Cluster
from cotenant.sim.driver import Experiment, simulate
from cotenant.testing.policy import random_workload


def test_waiting_to_be_spread_does_not_turn_everybody_round() -> None:
    """Least attained time first, restarts that cost, jobs that may be spread after a wait: it used to go on and on."""
    runs = {}
    for placement in ("consolidated", "relaxed:after=40"):
        cluster = Cluster.parse("1x8+2x4")
        experiment = Experiment(
            random_workload(11, 100, 16), cluster, "muri-l", placement=placement, costs="6", profile="tiresias",
            seed=5, compiled=False,
        )  # fmt: skip
        runs[placement] = simulate(experiment).summary
    spread, together = runs["relaxed:after=40"], runs["consolidated"]
    assert int(str(spread["preemptions"])) <= 2 * int(str(together["preemptions"]))
    assert int(str(spread["decisions"])) > int(str(together["decisions"]))  # it was asked at those times too
