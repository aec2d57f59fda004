"""The rule of tenants in the simulator: quotas and ceilings hold, guarantees come back, nobody starves or is chased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tenant_kit import Evictions, Returns, cluster_of, play, trees, workloads

from cotenant.core import columns as col
from cotenant.core.cluster import NodeGroup
from cotenant.core.state import State
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.sim.driver import Experiment, Simulation

POLICIES = (
    "fifo", "fifo:strict=true", "backfill", "srtf", "srtf:weigh=false", "tiresias-l:threshold=400,knob=4", "easy",
    "las:round=60", "gavel", "muri-s", "themis", "antman",
)  # fmt: skip
COSTS = (
    StopCosts(),
    StopCosts(save_s=7.0, start_s=3.0),
    StopCosts(save_s=7.0, start_s=3.0, resume_s=2.0, suspends=True, most_suspended=3, patience_s=40.0),
)
FEW = settings(
    max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)


@pytest.mark.parametrize("policy", POLICIES)
@FEW
@given(st.data())
def test_quotas_and_ceilings_hold_at_every_event(policy: str, data: st.DataObject) -> None:
    groups = (NodeGroup(2, 4, dedicated=data.draw(st.sampled_from([(), ("lab",), ("eve",)]))), NodeGroup(1, 8))
    tree = data.draw(trees(16))
    experiment = Experiment(
        data.draw(workloads(most_gpus=8)), cluster_of(tree, *groups), policy, costs="20",
        stop_costs=data.draw(st.sampled_from(COSTS)), placement=data.draw(st.sampled_from(["consolidated", "relaxed:after=100"])),
        fail_nodes=data.draw(st.sampled_from([None, "mtbf=600,mttr=100"])), skip_infeasible=True, check_invariants=True,
        compiled=False,
    )  # fmt: skip
    play(experiment, Evictions())


@pytest.mark.parametrize("policy", ["fifo", "backfill", "srtf", "tiresias-l:threshold=400,knob=4", "las:round=60"])
@pytest.mark.parametrize("costs", COSTS[:2])
@FEW
@given(st.data())
def test_guaranteed_gpus_come_back_after_the_minimum_run_at_the_latest(
    policy: str, costs: StopCosts, data: st.DataObject
) -> None:
    tree = data.draw(trees(12, deep=False))
    tree = Tree(tuple(replace(tenant, reclaims=True) for tenant in tree.tenants), min_run_s=tree.min_run_s)
    work = data.draw(workloads(most_gpus=4))
    returns, evictions = Returns(tree.min_run_s, strict=policy == "fifo"), Evictions()

    def look(state: State) -> None:
        returns(state)
        evictions(state)

    experiment = Experiment(
        work, cluster_of(tree, NodeGroup(1, 12)), policy, stop_costs=costs, skip_infeasible=True, check_invariants=True,
        compiled=False,
    )  # fmt: skip
    play(experiment, look)


def _jobs(*lines: tuple[float, str, int, float, int]) -> Workload:
    """(submitted, tenant, GPUs, seconds, how many of them)."""
    rows = [line[:4] for line in lines for _ in range(line[4])]
    names = tuple(sorted({row[1] for row in rows}))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    codes = np.array([names.index(name) for name in columns[1]], np.int64)
    order = np.argsort(columns[0].astype(float), kind="stable")
    return make_workload(
        "given", columns[0].astype(float)[order], columns[2].astype(np.int64)[order],
        columns[3].astype(float)[order], tenant=Codes(codes[order], names),
    )  # fmt: skip


EVERYBODY = ["fifo", "srtf", "tiresias-l", "easy", "gavel", "themis"]


@pytest.mark.parametrize("policy", EVERYBODY)
def test_shares_converge_to_weights_when_all_want_more(policy: str) -> None:
    tree = Tree((Tenant("one"), Tenant("two", weight=2.0), Tenant("four", weight=4.0)))
    work = _jobs(*[(float(at), name, 1, 97.0, 4) for at in range(0, 4000, 25) for name in ("one", "two", "four")])
    cluster = cluster_of(tree, NodeGroup(1, 14))
    run = Simulation(Experiment(work, cluster, policy, until_s=4000.0, compiled=False))
    run.advance(4000.0)
    used = dict(zip(work.tenant.names, run.state.use[:, col.U_USED].tolist(), strict=True))
    total = sum(used.values())
    assert total > 0.9 * 14 * 3900
    for name, weight in (("one", 1), ("two", 2), ("four", 4)):
        assert used[name] / total == pytest.approx(weight / 7, rel=0.15), used


@pytest.mark.parametrize("policy", EVERYBODY)
def test_a_large_gang_is_not_starved_by_small_borrowers(policy: str) -> None:
    started = {}
    for reserve_after_s in (600.0, np.inf):
        tree = Tree((Tenant("small"), Tenant("large")), reserve_after_s=reserve_after_s)
        work = _jobs((100.0, "large", 8, 200.0, 1), *[(float(at), "small", 1, 150.0, 1) for at in range(0, 4000, 15)])
        run = Simulation(Experiment(work, cluster_of(tree, NodeGroup(1, 8)), policy, compiled=False))
        run.advance(np.inf)
        started[reserve_after_s] = float(run.state.f[work.gpus == 8, col.FIRST][0])
    assert started[600.0] <= 100 + 600 + 150 + 360  # waiting, then the longest job, and a round
    assert started[np.inf] > 3500, "nothing keeps small jobs off what a large one could use"
