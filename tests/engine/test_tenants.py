"""The rule of tenants in the simulator: quotas and ceilings hold, guarantees come back, nobody starves or is chased."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tenant_kit import Evictions, Returns, cluster_of, play, trees, workloads

from cotenant.core import columns as col
from cotenant.core.cluster import NodeGroup
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.sim.driver import Experiment

PYTHON = "tests/engine/scatter_policy.py:Scatter"
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
