"""Where gangs go, seen from the nodes that jobs held."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.workload import make_workload
from cotenant.placement.fit import fewest_nodes
from cotenant.placement.modes import parse_placement
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import jobs


def held(cluster: str | Cluster, placement: str, work, **more) -> list[dict[int, int]]:
    """Node -> GPUs of each job; every job must have run in one piece."""
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    result = simulate(Experiment(work, spec, "backfill", placement=placement, check_invariants=True, **more))
    places: list[dict[int, int]] = [{} for _ in range(len(work))]
    pieces = result.segments
    for job, node, gpus in zip(pieces.job.tolist(), pieces.node.tolist(), pieces.gpus.tolist(), strict=True):
        assert node not in places[job]
        places[job][node] = gpus
    return places


def at_once(*gpus: int):
    """Jobs that all arrive at 0 and run together if they can."""
    return jobs(*((0, count, 100) for count in gpus))


def test_consolidated_takes_the_fullest_node_that_suffices() -> None:
    assert held("3x8", "consolidated", at_once(3, 6, 2, 4)) == [{0: 3}, {1: 6}, {1: 2}, {0: 4}]


def test_consolidated_takes_whole_nodes_and_the_emptiest_for_the_remainder() -> None:
    assert held("5x8", "consolidated", at_once(3, 6, 20)) == [{0: 3}, {1: 6}, {2: 8, 3: 8, 4: 4}]
    # the remainder prefers the node with 5 free GPUs to the one with 2
    assert held("4x8", "consolidated", at_once(3, 6, 18)) == [{0: 3}, {1: 6}, {2: 8, 3: 8, 0: 2}]


def test_consolidated_waits_rather_than_spread() -> None:
    result = simulate(Experiment(jobs((0, 5, 10), (0, 5, 30), (1, 6, 5)), Cluster.parse("2x8"), "backfill"))
    assert result.first_start_s.tolist() == [0, 0, 10]


@pytest.mark.parametrize(
    ("cluster", "gpus", "nodes"),
    [("1x8+3x2", 12, 3), ("1x8+3x2", 14, 4), ("2x8+4x2", 19, 4), ("1x4+1x8", 12, 2), ("1x4+2x3", 7, 2)],
)
def test_a_gang_over_unequal_nodes_starts_on_as_few_as_there_are(cluster: str, gpus: int, nodes: int) -> None:
    (place,) = held(cluster, "consolidated", at_once(gpus))
    assert (len(place), sum(place.values())) == (nodes, gpus)
    state = Simulation(Experiment(at_once(gpus), Cluster.parse(cluster), "fifo")).state
    assert fewest_nodes(state.node, state.pool, 0, gpus) == nodes


def test_cores_and_memory_decide_how_many_gpus_a_node_can_feed() -> None:
    """Nodes feed 4, 2 and 2 of four GPUs at two cores each; no two whole nodes exist for a gang of 8."""
    cluster = Cluster(
        (NodeGroup(1, 4, cpus=8.0), NodeGroup(1, 4, cpus=4.0), NodeGroup(1, 4, mem_gib=20.0, cpus=64.0)), spec="fed"
    )
    work = make_workload(
        "fed", np.zeros(1), np.array([8]), np.array([5.0]), cpus=np.array([16.0]), mem_gib=np.array([80.0])
    )
    assert held(cluster, "consolidated", work) == [{0: 4, 1: 2, 2: 2}]
    assert held(cluster, "spread", work) == [{0: 4, 1: 2, 2: 2}]


def test_gpus_without_cores_stay_idle() -> None:
    cluster = Cluster.parse("1x4/cpu=8")
    work = make_workload("cpu", np.zeros(2), np.array([1, 1]), np.array([5.0, 5.0]), cpus=np.array([6.0, 6.0]))
    assert simulate(Experiment(work, cluster, "backfill")).first_start_s.tolist() == [0, 5]
    relieved = simulate(Experiment(work, cluster, "backfill", allocator="proportional"))
    assert relieved.first_start_s.tolist() == [0, 0]


def test_spread_deals_to_the_emptiest() -> None:
    assert held("3x4", "spread", at_once(4, 4)) == [{0: 2, 1: 1, 2: 1}, {1: 2, 2: 1, 0: 1}]


def test_count_knows_no_nodes() -> None:
    assert held("3x4", "count", at_once(5, 7)) == [{0: 5}, {0: 7}]


def test_a_gang_never_spans_gpu_types_or_partitions() -> None:
    assert held("1x4:v100+1x4:k80", "spread", at_once(3, 3)) == [{0: 3}, {1: 3}]
    with pytest.raises(InputError, match="asks for 5 GPUs"):
        held("1x4:v100+1x4:k80", "count", at_once(5))


def test_a_tenant_with_a_partition_stays_in_it_and_others_stay_out() -> None:
    cluster = Cluster((NodeGroup(1, 4), NodeGroup(1, 4, partition="ada")), spec="parts")
    work = jobs((0, 3, 10), (0, 3, 10), (0, 3, 10), tenants=["ada", "bob", "bob"])
    result = simulate(Experiment(work, cluster, "backfill"))
    assert result.first_start_s.tolist() == [0, 0, 10]
    assert dict(zip(result.segments.job.tolist(), result.segments.node.tolist(), strict=True)) == {0: 1, 1: 0, 2: 0}


def test_skew_spreads_what_may_be_spread() -> None:
    work = jobs((0, 3, 100), (0, 3, 50), (0, 2, 9), (0, 2, 9), models=["vgg19", "vgg19", "vgg19", "resnet50"])
    result = simulate(Experiment(work, Cluster.parse("2x4"), "backfill", placement="skew"))
    assert result.first_start_s.tolist() == [0, 0, 50, 0]


FRAGMENTED = jobs((0, 5, 10), (0, 4, 10_000), (0, 4, 20), (15, 4, 10_000), (100, 8, 50), models=["vgg19"] * 5)
"""Leaves four of eight GPUs busy on each of two nodes from 20 s on; then a gang of 8 arrives at 100 s."""


def test_philly_relaxes_locality_after_its_retries() -> None:
    """Philly, golden timeline: time-outs and back-offs add up to 1080 s, then both servers may be used."""
    by_rule = {
        rule: simulate(Experiment(FRAGMENTED, Cluster.parse("2x8"), "backfill", placement=rule))
        for rule in ("relaxed", "relaxed:after=30", "consolidated")
    }
    assert by_rule["relaxed"].queue_s[4] == 1080
    assert by_rule["relaxed"].finish_s[4] == 100 + 1080 + 50
    assert by_rule["relaxed:after=30"].queue_s[4] == 30
    assert by_rule["consolidated"].first_start_s[4] == 10_000
    assert simulate(Experiment(FRAGMENTED, Cluster.parse("2x8"), "backfill", placement="count")).queue_s[4] == 0


def test_a_spread_gang_runs_at_the_speed_of_its_profile() -> None:
    run = Simulation(Experiment(FRAGMENTED, Cluster.parse("2x8"), "backfill", placement="relaxed", profile="tiresias"))
    run.advance(inf)
    assert run.state.f[4, col.SPEED] == 0.71
    assert run.outcome().finish_s[4] == pytest.approx(100 + 1080 + 50 / 0.71)


def test_unknown_placement_and_parameter() -> None:
    with pytest.raises(InputError, match="did you mean 'spread'"):
        parse_placement("spred")
    with pytest.raises(InputError, match="limit"):
        parse_placement("skew:limt=1")
