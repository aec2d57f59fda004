"""The engine's invariants on random clusters, jobs, failures, placements and policies.

`check_invariants` looks at every table after every decision, so most of these tests only have to play.
"""

from __future__ import annotations

from math import inf

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from random_kit import TENANTS, clusters, with_feasible_jobs

from cotenant.core import columns as col
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.explain import explain
from cotenant.engine.invariants import check
from cotenant.policies import known_policies
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_same, assert_work_conserved

MODELS = ("vgg19", "resnet50", "")
POLICIES = (*known_policies(), "sjf:strict=true", "tiresias-l:thresholds=[40,160],knob=3", "tiresias-g:quantum=sup")
PLACEMENTS = ("count", "consolidated", "relaxed:after=9", "spread", "skew")

random_clusters = clusters(
    most_groups=4, gpus_per_node=[1, 2, 3, 4, 8], gpu_types=["v100", "k80"], cpus=[4.0, 9.0], mem_gib=[10.0, 33.0],
    quotas=(1, 12),
)  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    seconds = st.integers(0, 60)
    rows = draw(
        st.lists(
            st.tuples(
                seconds,
                st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 8, 12]),
                st.sampled_from([0, 1, 2, 7, 20, 33]),
                st.integers(0, 2),
                st.integers(0, 2),
                st.sampled_from([np.nan, np.nan, 1.0, 3.0, 7.0]),
                st.sampled_from([np.nan, np.nan, 2.0, 8.0]),
                st.sampled_from([(), (), (3.0,), (1.0, 4.0)]),
                st.sampled_from([0, 0, 0, 1, -4]),
                st.sampled_from([0, 0, 0, 1, 2]),
                st.sampled_from([0, 1, 1, 2]),
            ),
            min_size=1,
            max_size=16,
        )
    )
    rows.sort(key=lambda row: row[0])
    submit, gpus, duration, tenant, model, cpus, mem, attempts, priority, kind, nodes = zip(*rows, strict=True)
    asked = draw(st.booleans())
    return make_workload(
        "random",
        np.array(submit, np.float64),
        np.array(gpus, np.int64),
        np.array(duration, np.float64),
        tenant=Codes(np.array(tenant), TENANTS),
        model=Codes(np.array(model), MODELS),
        cpus=np.array(cpus),
        mem_gib=np.array(mem),
        priority=np.array(priority) if draw(st.booleans()) else None,
        gpu_type=Codes(np.array(kind), ("", "v100", "k80")) if asked else None,
        nodes=np.array([n if n and g % n == 0 else 0 for n, g in zip(nodes, gpus, strict=True)]) if asked else None,
        attempts={row: tries for row, tries in enumerate(attempts) if tries and sum(tries) < duration[row]},
    )


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    placement = draw(st.sampled_from(PLACEMENTS))
    failing = st.sampled_from([None, None, "mtbf=150,mttr=20,checkpoint=5", "mtbf=60,mttr=5,checkpoint=2"])
    experiment = Experiment(
        draw(workloads()),
        draw(random_clusters),
        draw(st.sampled_from(POLICIES)),
        placement=placement,
        allocator=draw(st.sampled_from(["fixed", "fixed", "proportional"])),
        profile=draw(st.sampled_from(["none", "none", "tiresias"])),
        estimator=draw(st.sampled_from(["oracle", "oracle", "noisy:error=1", "mean:prior=10"])),
        costs=draw(st.sampled_from(["none", "3"])),
        round_s=10.0,
        seed=draw(st.integers(0, 3)),
        fail_nodes=None if placement == "count" else draw(failing),
        check_invariants=True,
        compiled=False,
    )
    return with_feasible_jobs(experiment)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(experiment=experiments().filter(lambda e: len(e.workload) > 0))
def test_everything_finishes_and_nothing_is_lost(experiment: Experiment) -> None:
    result = simulate(experiment)
    assert np.isfinite(result.finish_s).all()
    assert (result.first_start_s >= result.workload.submit_s).all()
    if experiment.profile == "none":
        assert_work_conserved(result, shares=known_policies()[experiment.policy.split(":")[0]].shares is True)
    if experiment.fail_nodes is None and experiment.costs == "none":
        assert result.lost_gpu_s.sum() == 0
    if not known_policies()[experiment.policy.split(":")[0]].preemptive:
        assert result.preemptions.sum() == 0
    assert 0 <= float(str(result.summary["gpu_utilization"])) <= 1 + 1e-9


class PausedRun(RuleBasedStateMachine):
    """Stopping a run anywhere, looking at it and asking why changes nothing about its outcome."""

    @initialize(experiment=experiments().filter(lambda e: len(e.workload) > 0))
    def begin(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.run = Simulation(experiment)
        self.now = float(experiment.workload.submit_s[0])
        self.undisturbed = simulate(experiment)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 5.0, 13.0, 40.0]))
    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.run.advance(self.now)

    @rule(pick=st.integers(0, 15))
    def ask_why(self, pick: int) -> None:
        row = pick % len(self.run.work)
        reason = explain(self.run.engine, self.run.work, self.experiment.cluster, row, self.now)
        state = int(self.run.state.i[row, col.STATE])
        assert (reason.cause == "running") == (state == col.RUNNING)
        assert (reason.cause == "finished") == (state == col.FINISHED)
        assert reason.job == str(self.run.work.job_id[row])
        assert reason.need_gpus == self.run.work.gpus[row]
        if state == col.WAITING and not self.run.engine.traits.plans:  # a plan has no line
            assert 1 <= reason.position <= reason.waiting == self.run.state.x[col.N_WAITING]

    @rule()
    def look(self) -> None:
        view = self.run.engine.view(self.now)
        active = np.isin(self.run.state.i[:, col.STATE], [col.WAITING, col.RUNNING])
        assert sorted(view.rows.tolist()) == np.flatnonzero(active).tolist()
        assert view.running.sum() == self.run.state.x[col.N_RUNNING]
        assert (view.remaining_s >= 0).all()
        assert (view.attained_s >= 0).all()
        assert (view.waited_s >= 0).all()
        for row in view.rows[view.running].tolist():
            assert sum(gpus for _, gpus in view.placement(row)) == self.run.work.gpus[row]

    @invariant()
    def rules_hold(self) -> None:
        if hasattr(self, "run"):
            check(self.run.state)

    def teardown(self) -> None:
        if hasattr(self, "run"):
            self.run.advance(inf)
            assert_same(self.run.outcome(), self.undisturbed)


PausedRun.TestCase.settings = settings(
    deadline=None,
    max_examples=40,
    stateful_step_count=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestPausedRun = PausedRun.TestCase
