"""Elastic jobs in virtual time: sizes change without a stop, invariants hold, the goodput model and its fit agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.goodput import StepTime, efficiency, fit, goodput
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.core.workload import Codes, Workload
from cotenant.policies.ones import policy as ones_policy
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.elastic import ElasticJobs, speeds
from cotenant.workload.generators import generate
from cotenant.workload.readers import read
from cotenant.workload.writer import write_csv

GOLDEN = StepTime(a_c=0.02, b_c=0.001, a_r=0.01, b_r=0.002, a_n=0.05, b_n=0.01, gamma=2.0)


def _work(jobs: int = 7, seed: int = 3) -> Workload:
    return generate(Spec.parse(f"ones-like:jobs={jobs},seed={seed}"), 16)


def _run(policy: str, work: Workload, cluster: str = "4x4", costs: str = "default") -> Outcome:
    spec = Cluster.parse(cluster)
    return simulate(Experiment(work, spec, policy, costs=costs, compiled=False, check_invariants=True))


@pytest.mark.parametrize(
    ("gpus", "nodes", "step", "rate", "worth", "good"),
    [(4, 1, 0.120814, 3310.88, 0.653061, 2162.21), (8, 2, 0.162788, 4914.36, 0.432432, 2125.13)],
)
def test_goodput_golden(gpus: int, nodes: int, step: float, rate: float, worth: float, good: float) -> None:
    noise = 128 * 3.0  # M0 var / sqr
    assert GOLDEN.step_s(100, gpus, nodes) == pytest.approx(step, rel=1e-4)
    assert GOLDEN.throughput(100, gpus, nodes) == pytest.approx(rate, rel=1e-4)
    assert efficiency(noise, 128, 100 * gpus) == pytest.approx(worth, rel=1e-4)
    assert goodput(GOLDEN, noise, 128, 100, gpus, nodes) == pytest.approx(good, rel=1e-4)


def test_the_fit_finds_the_steps_it_was_shown() -> None:
    seen = tuple(
        (float(local), gpus, nodes, float(GOLDEN.step_s(local, gpus, nodes)))
        for local in (32, 64, 128)
        for gpus, nodes in ((1, 1), (2, 1), (4, 1), (8, 2), (16, 4))
    )
    found = fit(seen)
    for local, gpus, nodes, seconds in seen:
        assert found.step_s(local, gpus, nodes) == pytest.approx(seconds, rel=0.03)
    assert found.step_s(100, 12, 3) == pytest.approx(float(GOLDEN.step_s(100, 12, 3)), rel=0.06)
    assert fit(seen) is found  # the same observations are fitted once
    alone = fit(((64.0, 1, 1, 0.1),))
    assert alone.step_s(64, 8, 1) == pytest.approx(0.1, rel=0.1)  # nothing seen of communication: hope for the best


@pytest.mark.parametrize("policy", ["ones", "ones-goodput", "optimus"])
def test_everybody_finishes_and_invariants_hold(policy: str) -> None:
    work = _work()
    result = _run(policy, work)
    assert np.isfinite(result.finish_s).all()
    assert result.summary["goodput"] > 0
    again = _run(policy, work)
    assert again.finish_s.tobytes() == result.finish_s.tobytes()


def test_a_job_alone_grows_without_a_stop() -> None:
    work = _work(1)
    run = Simulation(Experiment(work, Cluster.parse("4x4"), "ones-goodput", compiled=False, check_invariants=True))
    sizes = []
    for second in range(0, 4000, 5):
        if run.advance(float(second)):
            break
        if run.state.i[0, col.STATE] == col.RUNNING:
            sizes.append(int(run.state.i[0, col.GPUS]))
    result = run.outcome()
    assert sizes[0] == 1
    assert max(sizes) > 1
    assert result.preemptions.sum() == 0
    assert result.restarts.sum() == 0
    assert result.lost_gpu_s[0] > 0  # the pauses are charged
    assert _run("ones-goodput", work, costs="none").lost_gpu_s[0] == 0


def _early_changes(policy: str) -> tuple[int, int]:
    """How often a running job got another size or was stopped, and of that before all had finished an epoch."""
    work = generate(Spec.parse("ones-like:jobs=5,seed=1,gap=5"), 8)
    run = Simulation(Experiment(work, Cluster.parse("2x4"), policy, costs="none", compiled=False))
    assert run.elastic is not None
    sizes, since, changes, early = np.zeros(5, np.int64), np.zeros(5), 0, 0
    for second in range(0, 3000, 5):
        ended = run.advance(float(second))
        state, epochs = run.state.i[:, col.STATE], np.floor(run.elastic.training.epochs + 1e-9)
        now = np.where(state == col.RUNNING, run.state.i[:, col.GPUS], 0)
        changed = (now != sizes) & (state != col.FINISHED)
        touched = changed & (sizes > 0)
        changes += int(touched.sum())
        early += int((touched & (epochs < since + 1)).sum())
        since, sizes = epochs.copy() if changed.any() else since, now
        if ended:
            break
    return changes, early


def test_the_published_policy_touches_nobody_before_the_end_of_an_epoch() -> None:
    changes, early = _early_changes("ones")
    assert changes > 10
    assert early == 0
    assert _early_changes("ones:gate=0")[1] > 0, "without the gate it does"


@pytest.mark.parametrize(("name", "published"), [("ones", True), ("ones-goodput", False)])
def test_the_published_policy_scores_by_what_is_left(
    name: str, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of two schedules wins is asked of `sruf` by the published policy, and by ours of something else."""
    asked, real = [], ones_policy.sruf
    monkeypatch.setattr(ones_policy, "sruf", lambda rate, left: asked.append(left) or real(rate, left))
    assert np.isfinite(_run(name, _work(3)).finish_s).all()
    assert bool(np.any(np.concatenate([*asked, [0.0]]) > 0)) is published


def test_speed_is_relative_to_what_was_asked() -> None:
    work = _work(10)
    jobs = ElasticJobs(work, 4, 16)
    rows = np.arange(len(work))
    nodes = -(-work.gpus // 4)
    assert speeds(jobs, rows, work.gpus, nodes, False) == pytest.approx(np.ones(len(work)))
    one = speeds(jobs, rows, np.ones_like(work.gpus), np.ones_like(nodes), False)
    assert (one < 1).all()
    assert (speeds(jobs, rows, work.gpus, nodes + 1, False) <= 1 + 1e-12).all()


@pytest.mark.slow
def test_ones_by_goodput_finishes_sooner_than_rigid_jobs_in_a_crowd() -> None:
    work = generate(Spec.parse("ones-like:jobs=10,seed=1,gap=5"), 16)
    jct = {policy: float(_run(policy, work).jct_s.mean()) for policy in ("ones-goodput", "fifo")}
    assert jct["ones-goodput"] < jct["fifo"]


def test_bad_parameters_are_one_clear_line() -> None:
    for policy in (
        "ones:gate=-1",
        "ones:interval=0",
        "ones-goodput:progress=guess",
        "chronus:solver=x",
        "chronus:slot=7",
    ):
        with pytest.raises(InputError, match="policy '"):
            _run(policy, _work(2))
    with pytest.raises(InputError, match="median above 0"):
        generate(Spec.parse("ones-like:median=0"), 16)


@pytest.mark.parametrize("policy", ["ones", "ones-goodput", "optimus"])
def test_cores_and_memory_go_with_the_gpus(policy: str) -> None:
    """Three cores and 10 GiB per GPU at any size; a node feeds four GPUs, so that no more bind than the GPUs do."""
    work = _work(6)
    fed = replace(work, cpus=3.0 * work.gpus, mem_gib=10.0 * work.gpus)
    run = Simulation(Experiment(fed, Cluster.parse("4x4/cpu=12,mem=40"), policy, compiled=False, check_invariants=True))
    sizes = set()
    for second in range(0, 20_000, 25):
        over = run.advance(float(second))
        rows = np.flatnonzero(run.state.i[:, col.STATE] == col.RUNNING)
        gpus = run.state.i[rows, col.GPUS]
        sizes |= set((gpus / work.gpus[rows]).tolist())
        used = run.state.node[:, col.NODE_CAP] - run.state.node[:, col.NODE_FREE]
        for cap, free, each in (
            (col.HOST_CPU_CAP, col.HOST_CPU_FREE, 3.0),
            (col.HOST_MEM_CAP, col.HOST_MEM_FREE, 10.0),
        ):
            np.testing.assert_allclose(run.state.host[:, cap] - run.state.host[:, free], each * used, atol=1e-6)
        if over:
            break
    assert min(sizes) < 1 < max(sizes)  # smaller and larger than asked
    result = run.outcome()
    assert np.isfinite(result.finish_s).all()
    np.testing.assert_allclose(result.finish_s, _run(policy, work).finish_s)  # as if nobody had asked


@pytest.mark.parametrize("policy", ["ones", "ones-goodput", "optimus"])
@pytest.mark.parametrize("cluster", ["4x4", "4x4/cpu=13,mem=100"])
def test_rigid_jobs_take_the_place_of_elastic_ones(policy: str, cluster: str) -> None:
    """Also where cores bind before GPUs: everybody finishes, and the checker never sees a node over its limit."""
    work = _work(8)
    gpus, names = np.minimum(work.gpus, 4), (*work.model.names, "")
    rigid = np.where(np.arange(len(work)) % 2 == 0, len(names) - 1, work.model.code)  # jobs of no model keep their size
    mixed = replace(work, model=Codes(rigid, names), gpus=gpus, cpus=4.0 * gpus)
    result = _run(policy, mixed, cluster)
    assert np.isfinite(result.finish_s).all()


@pytest.mark.parametrize("policy", ["ones", "ones-goodput", "optimus", "gandiva"])
def test_a_written_workload_plays_as_the_generated_one(policy: str, tmp_path: Path) -> None:
    work = _work(6)
    write_csv(work, tmp_path / "jobs.csv")
    generated, written = _run(policy, work), _run(policy, read(tmp_path / "jobs.csv"))
    assert written.finish_s.tobytes() == generated.finish_s.tobytes()
    assert written.lost_gpu_s.tobytes() == generated.lost_gpu_s.tobytes()


@pytest.mark.parametrize("policy", ["ones", "ones-goodput", "optimus", "gandiva"])
def test_sizes_of_a_log_are_kept(policy: str, tmp_path: Path) -> None:
    """Among jobs without limits: one with both, one that only shrinks, and two rigid ones, of no or a foreign model."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s,model,min_gpus,max_gpus\n"
        "both,0,4,900,resnet50/imagenet,3,6\nfew,10,4,400,resnet18/cifar,,4\nrigid,20,2,300,,,\n"
        "foreign,30,3,300,gpt,1,9\nfree,40,1,600,googlenet/cifar,1,\n"
    )
    work = read(tmp_path / "jobs.csv")
    (note,) = work.notes
    assert note.startswith("jobs.csv: 1 elastic jobs stay at num_gpus: it is not known how their models scale (known: ")
    run = Simulation(Experiment(work, Cluster.parse("2x8"), policy, compiled=False, check_invariants=True))
    sizes: list[set[int]] = [set() for _ in range(len(work))]
    for second in range(0, 4000, 10):
        over = run.advance(float(second))
        for row in np.flatnonzero(run.state.i[:, col.STATE] == col.RUNNING).tolist():
            sizes[row].add(int(run.state.i[row, col.GPUS]))
        if over:
            break
    both, few, rigid, foreign, free = sizes
    assert np.isfinite(run.outcome().finish_s).all()
    assert both <= {3, 4, 5, 6}
    assert few <= {1, 2, 3, 4}
    assert (rigid, foreign) == ({2}, {3})
    assert max(free) > 1
    assert len(both) > 1


def test_a_plan_outside_the_sizes_of_a_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from cotenant.core.plan import Plan\nfrom cotenant.policies.base import PlanPolicy\n"
        "class Mine(PlanPolicy):\n    name = 'mine'\n    resizes = True\n"
        "    def decide(self, view):\n        return Plan({0: ((0, 4),)})\n"
    )
    work = _work(1)
    limited = replace(work, gpus=np.array([2]), extra={"min_gpus": np.array([1]), "max_gpus": np.array([3])})
    with pytest.raises(InputError, match="row 0 on 4 GPUs, though it takes 1 to 3"):
        _run(f"{tmp_path / 'mine.py'}:Mine", limited)
