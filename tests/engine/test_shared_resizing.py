"""Jobs that change their size where GPUs are shared: exact GPUs, limits and clocks, under random plans and Gandiva."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_kit import TENANTS, clusters, with_feasible_jobs

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.core.view import View
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import assert_same
from cotenant.workload.elastic import MODELS, ElasticJobs, speeds

SCATTER = f"{Path(__file__).with_name('scatter_policy.py')}:Scatter"
NAMES = (*(model.name for model in MODELS), "resnet18_cifar", "mlp_rl", "unheard of")


def _jobs(*rows: tuple[float, int, float, str]) -> Workload:
    """(submit, GPUs, duration, model) in order of submission; those of MODELS are elastic."""
    submit, gpus, duration, model = zip(*rows, strict=True)
    return make_workload(
        "rows", np.array(submit, np.float64), np.array(gpus, np.int64), np.array(duration, np.float64),
        model=Codes(np.array([NAMES.index(name) for name in model]), NAMES), extra={"min_gpus": np.ones(len(rows))},
    )  # fmt: skip


random_clusters = clusters(
    most_groups=3, gpus_per_node=[1, 2, 4], gpu_types=["t4", "p100"], cpus=[6.0], mem_gib=[], quotas=(2, 8)
)


@st.composite
def experiments(draw: st.DrawFn, policy: st.SearchStrategy[str]) -> Experiment:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 60),
                st.sampled_from([1, 1, 2, 2, 3, 4]),
                st.sampled_from([1, 20, 90, 400]),
                st.integers(0, 1),
                st.integers(0, len(NAMES) - 1),
                st.sampled_from([np.nan, np.nan, 2.0]),
            ),
            min_size=1,
            max_size=10,
        )
    )
    rows.sort(key=lambda row: row[0])
    submit, gpus, duration, tenant, model, cpus = (np.array(column) for column in zip(*rows, strict=True))
    work = make_workload(
        "random", submit.astype(np.float64), gpus, duration.astype(np.float64), tenant=Codes(tenant, TENANTS),
        model=Codes(model, NAMES), cpus=cpus, extra={"min_gpus": np.ones(len(rows))},
    )  # fmt: skip
    found = Experiment(
        work, draw(random_clusters), draw(policy), profile=draw(st.sampled_from(["none", "h200"])),
        costs=draw(st.sampled_from(["none", "default", "3"])), check_invariants=True, compiled=False,
        fail_nodes=draw(st.sampled_from([None, None, "mtbf=300,mttr=20,checkpoint=5"])),
    )  # fmt: skip
    return with_feasible_jobs(found)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(experiment=experiments(st.just(SCATTER)).filter(lambda e: len(e.workload) > 0))
def test_random_plans_keep_every_limit(experiment: Experiment) -> None:
    """`check_invariants` looks at every GPU, mask, quota and clock after each decision."""
    run = Simulation(experiment)
    run.advance(300.0)
    state = run.state
    rows = np.flatnonzero(state.i[:, col.STATE] == col.RUNNING)
    elastic = np.zeros(len(state.f), bool) if run.elastic is None else run.elastic.jobs.elastic
    sizes = state.i[rows, col.GPUS]
    assert (sizes[~elastic[rows]] == run.work.gpus[rows][~elastic[rows]]).all()
    assert (state.f[rows, col.SPEED] <= state.f[rows, col.ALONE] * (1 + 1e-9)).all()


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    experiment=experiments(
        st.sampled_from(["gandiva:watch_s=5,idle_s=0,trial_s=5,residence_s=0", "gandiva:watch_s=2,idle_s=5"])
    ).filter(lambda e: len(e.workload) > 0)
)
def test_gandiva_grows_within_every_limit(experiment: Experiment) -> None:
    """Whoever has grown sits on one server, alone on every GPU; nobody has fewer GPUs than asked; everybody ends."""
    run = Simulation(experiment)
    for now_s in range(0, 300, 3):
        run.advance(float(now_s))
        state = run.state
        for row in np.flatnonzero(state.i[:, col.STATE] == col.RUNNING).tolist():
            size, asked = int(state.i[row, col.GPUS]), int(run.work.gpus[row])
            assert size >= asked
            if size > asked:
                assert len(run.engine.view(float(now_s)).placement(row)) == 1
                users = state.gpu[(state.gpu == row).any(axis=1)]
                assert (users >= 0).sum() == size
    run.advance(np.inf)
    result = run.outcome()
    assert np.isfinite(result.finish_s).all()
    again = Simulation(experiment)
    again.advance(np.inf)
    assert_same(result, again.outcome())


def _scripted(
    plans: dict[float, Plan], work: Workload, cluster: str | Cluster = "1x4", costs: str = "none"
) -> Simulation:
    """A run in which these plans are carried out at their moments, and nothing else is decided."""
    spec = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    run = Simulation(Experiment(work, spec, SCATTER, costs=costs, check_invariants=True, compiled=False))

    def decide(view: View) -> Plan:
        later = min((time_s for time_s in plans if time_s > view.now_s), default=inf)
        return replace(plans.get(view.now_s, Plan(keep=True)), next_s=later)

    run.policy.decide = decide  # type: ignore[attr-defined]
    return run


PAIR = _jobs((0.0, 2, 1000.0, "resnet18/cifar"), (0.0, 1, 1000.0, "unheard of"))
APART = Plan({0: ((0, 2, 0b0011),), 1: ((0, 1, 0b1000),)})


def test_a_shared_job_changes_its_gpus_exactly() -> None:
    grown = Plan({0: ((0, 3, 0b0111),)}, keep=True)
    crowded = Plan({0: ((0, 2, 0b1100),)}, {0: Terms(share=0.5, turn=1), 1: Terms(share=0.5, turn=2)}, keep=True)
    run = _scripted({0.0: APART, 100.0: grown, 200.0: crowded}, PAIR)
    jobs = ElasticJobs(PAIR, 4, 4)
    size = np.array([2, 3])
    slow, fast = speeds(jobs, np.zeros(2, np.int64), size, np.ones(2, np.int64), False)
    run.advance(50.0)
    assert run.state.gpu[:, 0].tolist() == [0, 0, -1, 1]
    run.advance(150.0)
    assert run.state.gpu[:, 0].tolist() == [0, 0, 0, 1]
    assert run.state.f[0, col.DONE] == pytest.approx(100 * slow)
    assert run.state.f[0, col.SPEED] == pytest.approx(fast)
    run.advance(250.0)
    assert run.state.gpu[:, :2].tolist() == [[-1, -1], [-1, -1], [0, -1], [1, 0]]
    assert run.state.f[0, col.DONE] == pytest.approx(100 * slow + 100 * fast)
    assert run.state.f[0, col.SPEED] == pytest.approx(slow / 2)  # its turn is half of the time
    assert run.state.x[col.IDLE] == 2
    assert run.state.i[:, [col.PREEMPTS, col.STARTS]].tolist() == [[0, 1], [0, 1]]


def test_a_growing_job_keeps_its_very_gpus_when_its_new_workers_join() -> None:
    """They load for 10 s, then all pause for 2 s; which GPUs it has does not change on the way."""
    grown = Plan({0: ((0, 3, 0b0111),)}, keep=True)
    run = _scripted({0.0: APART, 100.0: grown}, PAIR, costs="default")
    for now_s, gpus in ((105.0, 3), (111.0, 3), (150.0, 3)):
        run.advance(now_s)
        assert run.state.gpu[:, 0].tolist() == [0, 0, 0, 1]
        assert run.state.i[0, col.GPUS] == gpus
    assert run.state.f[0, col.WARM] == pytest.approx(112.0)


def test_a_grown_job_counts_with_all_its_gpus() -> None:
    spec = Cluster((NodeGroup(1, 4),), {"": 3})
    run = _scripted({0.0: APART, 10.0: Plan({0: ((0, 3, 0b0111),)}, keep=True)}, PAIR, spec)
    with pytest.raises(InputError, match="over its quota"):
        run.advance(20.0)
    run = _scripted({0.0: APART, 10.0: Plan({1: ((0, 2, 0b1100),)}, keep=True)}, PAIR)
    with pytest.raises(InputError, match="broken gang"):  # only elastic jobs change their size
        run.advance(20.0)


def test_cores_follow_a_job_of_another_size() -> None:
    """Two cores per GPU at any size: a job of 3 GPUs beside one of 1 fill a node of 8, and one of 4 is too many."""
    work = replace(_jobs((0.0, 1, 500.0, "resnet18/cifar"), (0.0, 1, 500.0, "vgg16/cifar")), cpus=np.array([2.0, 2.0]))
    spec = Cluster((NodeGroup(1, 4, cpus=8.0),))
    plans = {0.0: Plan({0: ((0, 1, 1),), 1: ((0, 1, 2),)}), 10.0: Plan({0: ((0, 3, 0b1101),)}, keep=True)}
    run = _scripted(plans, work, spec)
    run.advance(20.0)
    assert run.state.host[0, col.HOST_CPU_FREE] == pytest.approx(0.0)
    assert run.state.i[:, col.GPUS].tolist() == [3, 1]
    plans[10.0] = Plan({0: ((0, 4, 0b1111),)}, keep=True)
    with pytest.raises(InputError, match="puts 10 cores on node 0, which has too few"):
        _scripted(plans, work, spec).advance(20.0)
