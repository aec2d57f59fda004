"""Jobs that say where they may go: a GPU type, a number of nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.reasons import Cause
from cotenant.core.workload import Codes, Workload
from cotenant.engine.explain import explain
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import jobs, random_workload

TYPES = ("", "v100", "k80")
TWO_TYPES = "2x4:v100+2x4:k80"


def of_type(work: Workload, types: list[str]) -> Workload:
    return replace(work, gpu_type=Codes(np.array([TYPES.index(kind) for kind in types], np.int64), TYPES))


def on_nodes(work: Workload, nodes: list[int]) -> Workload:
    return replace(work, nodes=np.array(nodes, np.int64))


def places(experiment: Experiment) -> list[dict[int, int]]:
    """Node -> GPUs of each job that ran in one piece."""
    pieces = simulate(experiment).segments
    found: list[dict[int, int]] = [{} for _ in range(len(experiment.workload))]
    for job, node, gpus in zip(pieces.job.tolist(), pieces.node.tolist(), pieces.gpus.tolist(), strict=True):
        found[job][node] = gpus
    return found


@pytest.mark.parametrize("placement", ["count", "consolidated", "spread", "relaxed:after=5"])
@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "srsf", "las", "tiresias-g"])
def test_a_job_runs_only_on_the_type_it_names(policy: str, placement: str) -> None:
    work = random_workload(2, 40, 4)
    kinds = [TYPES[k % 3] for k in range(40)]
    run = Experiment(
        of_type(work, kinds), Cluster.parse(TWO_TYPES), policy, placement=placement, costs="2", round_s=20.0,
        check_invariants=True,
    )  # fmt: skip
    pieces = simulate(run).segments
    half = 1 if placement == "count" else 2
    for job, node in zip(pieces.job.tolist(), pieces.node.tolist(), strict=True):
        assert kinds[job] in ("", "v100" if node < half else "k80")


def test_a_job_waits_for_its_type_and_others_pass() -> None:
    work = of_type(jobs((0, 4, 10), (0, 4, 10), (0, 4, 10), (0, 4, 10)), ["k80", "k80", "k80", ""])
    result = simulate(Experiment(work, Cluster.parse(TWO_TYPES), "backfill"))
    assert result.first_start_s.tolist() == [0, 0, 10, 0]


def test_a_type_that_is_not_there_or_too_small_is_named() -> None:
    work = of_type(jobs((0, 9, 10)), ["k80"])
    with pytest.raises(InputError, match="asks for 9 GPUs of type 'k80', which cluster"):
        simulate(Experiment(work, Cluster.parse("2x8:v100+1x8:k80"), "fifo"))
    with pytest.raises(InputError, match="of type 'k80'"):
        simulate(Experiment(of_type(jobs((0, 1, 10)), ["k80"]), Cluster.parse("2x8:v100"), "fifo"))


def test_why_says_what_was_asked() -> None:
    work, cluster = on_nodes(jobs((0, 4, 10), (0, 2, 10)), [0, 2]), Cluster.parse("2x2")
    run = Simulation(Experiment(work, cluster, "fifo"))
    run.advance(0.0)
    assert explain(run.engine, run.work, cluster, 1, 0.0).cause == Cause.CAPACITY
    run.work = replace(work, nodes=np.array([0, 3]))
    run.state.cls[:, 4] = 0  # as if no pool could hold it
    reason = explain(run.engine, run.work, cluster, 1, 0.0)
    assert reason.cause == Cause.EXCEEDS_CLUSTER
    assert "2 GPUs on 3 nodes, equally many on each, more than any pool" in reason.text


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("consolidated", [{0: 1}, {0: 3, 1: 3}, {1: 2, 2: 2}]),
        ("spread", [{0: 1}, {1: 3, 2: 3}, {0: 2, 3: 2}]),
    ],
)  # fmt: skip
def test_equal_parts_go_where_the_placement_would(placement: str, expected: list[dict[int, int]]) -> None:
    work = on_nodes(jobs((0, 1, 9), (0, 6, 9), (0, 4, 9)), [1, 2, 2])
    run = Experiment(work, Cluster.parse("4x5"), "backfill", placement=placement, check_invariants=True)
    assert places(run) == expected


def test_one_node_is_one_node_under_every_placement() -> None:
    work = on_nodes(jobs((0, 3, 5)), [1])
    for placement in ("consolidated", "spread", "relaxed:after=5", "skew"):
        assert places(Experiment(work, Cluster.parse("3x4"), "fifo", placement=placement)) == [{0: 3}]


def test_counting_ignores_nodes() -> None:
    work = on_nodes(jobs((0, 6, 5)), [6])
    assert places(Experiment(work, Cluster.parse("2x4"), "fifo", placement="count")) == [{0: 6}]


@pytest.mark.parametrize(("gpus", "nodes"), [(6, 3), (8, 1), (5, 2)])
def test_a_number_of_nodes_that_cannot_be_is_refused(gpus: int, nodes: int) -> None:
    with pytest.raises(InputError, match=f"asks for {gpus} GPUs on {nodes} nodes?, equally many on each"):
        simulate(Experiment(on_nodes(jobs((0, gpus, 5)), [nodes]), Cluster.parse("2x4"), "fifo"))


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 3), st.integers(0, 12), st.sampled_from(TYPES)),
        min_size=1, max_size=12,
    ),
    policy=st.sampled_from(["fifo", "backfill", "easy", "sjf", "srtf", "srsf", "las", "tiresias-l", "tiresias-g"]),
    placement=st.sampled_from(["consolidated", "spread", "relaxed:after=6", "skew"]),
    cpus=st.sampled_from(["", "/cpu=6"]),
)  # fmt: skip
def test_gangs_keep_their_nodes_and_type_in_every_walk(
    rows: list[tuple[int, int, int, int, str]], policy: str, placement: str, cpus: str
) -> None:
    """The checker looks at parts and pools after every decision; here too, from what was held."""
    rows = sorted(rows, key=lambda row: row[0])
    work = jobs(*((submit, nodes * each, length) for submit, nodes, each, length, _ in rows))
    work = on_nodes(of_type(work, [row[4] for row in rows]), [row[1] for row in rows])
    work = replace(work, cpus=work.gpus * 1.5)
    cluster = Cluster.parse(f"4x4:v100{cpus}+4x3:k80")
    run = Experiment(work, cluster, policy, placement=placement, costs="1", round_s=5.0, check_invariants=True)
    result = simulate(run)
    assert result.finished.all()
    pieces = result.segments
    held: dict[tuple[int, float], list[int]] = {}
    for job, start, gpus in zip(pieces.job.tolist(), pieces.start_s.tolist(), pieces.gpus.tolist(), strict=True):
        held.setdefault((job, start), []).append(gpus)
    for (job, _), parts in held.items():
        if work.duration_s[job] > 0:
            assert parts == [rows[job][2]] * rows[job][1]
