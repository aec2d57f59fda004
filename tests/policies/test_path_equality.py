"""One policy, two paths: a built-in order and the same order written by a user in NumPy give the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan
from cotenant.core.workload import Codes
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same, jobs, random_workload

TWINS = Path(__file__).with_name("numpy_twins.py")
PAIRS = {"srtf": "Srtf", "srsf": "Srsf", "sjf": "Sjf", "fifo": "Fifo", "backfill": "Backfill"}
TEXTBOOK = {"srtf": "srtf:weigh=false", "srsf": "srsf:weigh=false"}  # a priority in numpy weighs nothing
PLACEMENTS = ("count", "consolidated", "relaxed:after=25", "spread", "skew")


def both(policy: str, seed: int, placement: str, costs: str, cluster: Cluster, fail_nodes: str | None) -> None:
    work = random_workload(seed, 30, min(cluster.gpus, 12))
    built_in = Experiment(
        work, cluster, policy, placement=placement, costs=costs, fail_nodes=fail_nodes, check_invariants=True
    )
    mine = replace(built_in, policy=f"{TWINS}:{PAIRS[policy]}")
    built_in = replace(built_in, policy=TEXTBOOK.get(policy, policy))
    assert_same(simulate(built_in), simulate(mine))


@pytest.mark.parametrize("policy", PAIRS)
@settings(deadline=None, max_examples=14)
@given(
    seed=st.integers(0, 10**6),
    placement=st.sampled_from(PLACEMENTS),
    costs=st.sampled_from(["none", "6"]),
    spec=st.sampled_from(["4x4", "2x8+4x2", "1x12", "3x4/cpu=40+2x2"]),
    quotas=st.sampled_from([{}, {}, {"ada": 12, "bob": 12}]),
    fail_nodes=st.sampled_from([None, "mtbf=90,mttr=20,checkpoint=8"]),
)
def test_numpy_twin_gives_the_same_run(policy, seed, placement, costs, spec, quotas, fail_nodes) -> None:
    cluster = Cluster(Cluster.parse(spec).groups, quotas, spec)
    both(policy, seed, placement, costs, cluster, None if placement == "count" else fail_nodes)


def write_policy(folder: Path, body: str, base: str = "PriorityPolicy") -> str:
    file = folder / "mine.py"
    file.write_text(
        f"import numpy as np\nfrom cotenant.policies import {base}\n"
        f"from cotenant.core.plan import Plan\nclass Mine({base}):\n    'Mine.'\n{body}\n"
    )
    return f"{file}:Mine"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("    def priority(self, view): return view.gpus[:-1]", r"returned shape \(1,\), not \(2,\)"),
        ("    def priority(self, view): return view.gpus * np.nan", "returned NaN at 0 s"),
    ],
)
def test_a_broken_priority_is_one_clear_line(tmp_path: Path, body: str, complaint: str) -> None:
    work = jobs((0, 1, 5), (0, 1, 5))
    with pytest.raises(InputError, match=complaint):
        simulate(Experiment(work, Cluster.parse("1x1"), write_policy(tmp_path, body)))


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("{7: ((0, 1),)}", "row 7, which is not active"),
        ("{0: ((0, 1),)}", "broken gang"),
        ("{0: ((0, 2), (1, 0))}", "broken gang"),
        ("{0: ((9, 2),)}", "2 GPUs on node 9"),
        ("{0: ((0, 2),), 1: ((0, 2),)}", "4 GPUs on node 0"),
    ],
)
def test_a_broken_plan_is_one_clear_line(tmp_path: Path, plan: str, complaint: str) -> None:
    body = f"    def decide(self, view): return Plan({plan})"
    work = jobs((0, 2, 5), (0, 2, 5))
    with pytest.raises(InputError, match=complaint):
        simulate(Experiment(work, Cluster.parse("2x2"), write_policy(tmp_path, body, "PlanPolicy")))


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("{0: ((1, 1), (2, 1))}", r"job row 0 on .*, over several GPU types or partitions"),
        ("{0: ((0, 2),)}", r"job row 0 on .*, where it cannot run"),
        ("{0: ((2, 2),), 2: ((3, 2),)}", r"job row 2 on .*, where it cannot run"),
        ("{1: ((0, 2),)}", r"job row 1 on .*, not in equal parts on 2 nodes"),
        ("{1: ((0, 1), (1, 1)), 3: ((0, 1),)}", "puts 5 cores on node 0, which has too few"),
        ("{3: ((1, 1),), 4: ((1, 1),)}", "puts 12 GiB on node 1, which has too little"),
        ("{2: ((2, 2),), 3: ((2, 1),)}", "tenant 1 3 GPUs, over its quota of 2"),
    ],
)
def test_a_plan_respects_pools_hosts_and_quotas(tmp_path: Path, plan: str, complaint: str) -> None:
    """Nodes 0 and 1 are of one type, 2 of another, 3 of a partition; row 0 asks for k80, row 1 for two nodes."""
    cluster = Cluster(
        (NodeGroup(2, 4, "v100", 4.0, 10.0), NodeGroup(1, 4, "k80"), NodeGroup(1, 4, "k80", partition="ada")),
        {"bob": 2}, "mixed",
    )  # fmt: skip
    work = replace(
        jobs((0, 2, 5), (0, 2, 5), (0, 2, 5), (0, 1, 5), (0, 1, 5), tenants=["x", "x", "bob", "bob", "x"]),
        gpu_type=Codes(np.array([1, 0, 0, 0, 0]), ("", "k80")), nodes=np.array([0, 2, 0, 0, 0]),
        cpus=np.array([1.0, 4.0, 1.0, 3.0, 0.0]), mem_gib=np.array([1.0, 1.0, 1.0, 5.0, 7.0]),
    )  # fmt: skip
    body = f"    def decide(self, view): return Plan({plan})"
    with pytest.raises(InputError, match=complaint):
        simulate(Experiment(work, cluster, write_policy(tmp_path, body, "PlanPolicy")))


def test_a_plan_moves_and_stops_jobs(tmp_path: Path) -> None:
    """Row 0 starts on node 0, moves to node 1 when row 1 arrives, and stops while row 2 runs everywhere."""
    body = """    def decide(self, view):
        if 2 in view.rows:
            return Plan({2: ((0, 2), (1, 2))})
        if 1 in view.rows:
            return Plan({row: ((1 - row, 2),) for row in view.rows.tolist()})
        return Plan({0: ((0, 2),)} if 0 in view.rows else {})"""
    work = jobs((0, 2, 100), (10, 2, 15), (20, 4, 5))
    policy = write_policy(tmp_path, body, "PlanPolicy")
    run = Simulation(Experiment(work, Cluster.parse("2x2"), policy, costs="none", check_invariants=True))
    run.advance(np.inf)
    result = run.outcome()
    assert result.finish_s.tolist() == [105, 30, 25]
    # moved at 10, stopped at 20 (both: rows 0 and 1), moved back to node 0 at 30
    assert result.preemptions.tolist() == [3, 1, 0]


def test_a_view_is_a_copy_and_a_plan_is_empty_by_default(tmp_path: Path) -> None:
    body = """    def priority(self, view):
        for column in (view.gpus, view.submit_s, view.rows, view.site.node):
            try:
                column[:] = 99
                raise AssertionError("written")
            except ValueError:
                pass
        view.node_free_gpus[:] = 0
        return view.submit_s"""
    work = jobs((0, 2, 5), (0, 2, 5), (1, 2, 3))
    mine = simulate(Experiment(work, Cluster.parse("1x2"), write_policy(tmp_path, body)))
    assert mine.finish_s.tolist() == [5, 10, 13]
    assert Plan().run == {}
