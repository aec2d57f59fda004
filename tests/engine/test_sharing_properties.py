"""Invariants with sharing on random clusters and jobs: limits per GPU, memory, quotas, cores, work.

The GPUs are small (T4, P100), so that memory binds; `check_invariants` looks at every GPU after every decision.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kit import TENANTS, clusters, with_feasible_jobs

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.policies import known_policies
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same
from cotenant.workload.model_sets import H200_TYPES

SHARING = tuple(name for name, policy in known_policies().items() if policy.shares is True)
POLICIES = (
    *SHARING,
    "sjf-bsbf:consolidate=true",
    "sjf-bsbf:preemptive=true",
    "sjf-bsbf:scale_sub_batch=false,noise=0.5",
    "antman:tolerance=0.1,start=0.5",
    "gandiva:watch_s=5,trial_s=5,residence_s=0",
    "horus:gpu_choice=first_fit,look_ahead=1",
    "horus+:scaled=false,queues=5",
)

random_clusters = clusters(
    most_groups=3, gpus_per_node=[1, 2, 4], gpu_types=["t4", "p100"], cpus=[6.0], mem_gib=[20.0], quotas=(0, 8)
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 60),
                st.sampled_from([1, 1, 1, 2, 2, 3, 4, 8]),
                st.sampled_from([0, 1, 7, 33, 200]),
                st.integers(0, 2),
                st.integers(0, len(H200_TYPES)),
                st.sampled_from([0, 0, 0, -1]),
                st.sampled_from([np.nan, np.nan, 1.0, 3.0]),
                st.sampled_from([(), (), (3.0,)]),
            ),
            min_size=1,
            max_size=14,
        )
    )
    rows.sort(key=lambda row: row[0])
    submit, gpus, duration, tenant, model, priority, cpus, attempts = zip(*rows, strict=True)
    return make_workload(
        "random",
        np.array(submit, np.float64),
        np.array(gpus, np.int64),
        np.array(duration, np.float64),
        tenant=Codes(np.array(tenant), TENANTS),
        model=Codes(np.array(model), (*H200_TYPES, "unheard of")),
        priority=np.array(priority),
        cpus=np.array(cpus),
        attempts={row: tries for row, tries in enumerate(attempts) if tries and sum(tries) < duration[row]},
    )


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    found = Experiment(
        draw(workloads()),
        draw(random_clusters),
        draw(st.sampled_from(POLICIES)),
        placement=draw(st.sampled_from(["consolidated", "consolidated", "spread", "count"])),
        profile=draw(st.sampled_from(["h200", "h200:sharing=time-sliced"])),
        costs=draw(st.sampled_from(["none", "3"])),
        round_s=10.0,
        seed=draw(st.integers(0, 3)),
        check_invariants=True,
        compiled=False,
    )
    failing = draw(st.sampled_from([None, None, "mtbf=300,mttr=20,checkpoint=5"]))
    return replace(with_feasible_jobs(found), fail_nodes=None if found.placement == "count" else failing)


@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(experiment=experiments().filter(lambda e: len(e.workload) > 0))
def test_sharing_keeps_every_limit(experiment: Experiment) -> None:
    run = Simulation(experiment)
    run.advance(np.inf)
    result = run.outcome()
    assert np.isfinite(result.finish_s).all()
    assert (result.first_start_s >= result.workload.submit_s).all()
    assert (run.state.f[:, col.DONE] <= run.state.f[:, col.WORK] + 1e-6).all()
    if not known_policies()[experiment.policy.split(":")[0]].preemptive and "preemptive" not in experiment.policy:
        assert result.preemptions.sum() == 0
    again = Simulation(experiment)
    again.advance(np.inf)
    assert_same(result, again.outcome())


@pytest.mark.parametrize("order", ["muri-l", "muri-s"])
def test_kinds_that_were_never_measured_together_do_not_share(order: str) -> None:
    """There is no speed for them: they would stand still for ever."""
    work = make_workload(
        "two", np.zeros(3), np.ones(3, np.int64), np.full(3, 50.0),
        model=Codes(np.arange(3), ("mlp_rl (batch size 64)", "vit_b_16 (batch size 16)", "resnet18_cifar")),
    )  # fmt: skip
    experiment = Experiment(work, Cluster.parse("1x1:p100"), order, profile="h200", compiled=False)
    assert np.isfinite(simulate(experiment).finish_s).all()


def test_every_sharing_policy_shares() -> None:
    """On one GPU with many small jobs each of them puts several together at some time, and all end."""
    count = 8
    work = make_workload(
        "small", np.arange(count) * 1.0, np.ones(count, np.int64), np.full(count, 900.0),
        model=Codes(np.arange(count) % 2, ("resnet18_cifar", "mlp_rl")), priority=np.array([0, -1] * 4),
    )  # fmt: skip
    for policy in ("sjf-bsbf", "sjf-ffs", "antman", "gandiva", "horus", "horus+"):
        run = Simulation(
            Experiment(work, Cluster.parse("1x1:a100"), policy, profile="h200", compiled=False, check_invariants=True)
        )
        together = 0
        for now_s in range(0, 4000, 50):
            run.advance(float(now_s))
            together = max(together, int((run.state.gpu[0] >= 0).sum()))
        run.advance(np.inf)
        assert together >= 2, policy
        assert np.isfinite(run.outcome().finish_s).all()
