"""Elastic jobs in virtual time: sizes change without a stop, invariants hold, the goodput model and its fit agree."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.goodput import StepTime, efficiency, fit, goodput
from cotenant.core.outcome import Outcome
from cotenant.core.spec import Spec
from cotenant.core.workload import Workload
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.elastic import ElasticJobs, speeds
from cotenant.workload.generators import generate

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


@pytest.mark.parametrize("policy", ["ones", "ones:score=sruf,progress=sample", "optimus"])
def test_everybody_finishes_and_invariants_hold(policy: str) -> None:
    work = _work()
    result = _run(policy, work)
    assert np.isfinite(result.finish_s).all()
    assert result.summary["goodput"] > 0
    again = _run(policy, work)
    assert again.finish_s.tobytes() == result.finish_s.tobytes()


def test_a_job_alone_grows_without_a_stop() -> None:
    work = _work(1)
    run = Simulation(Experiment(work, Cluster.parse("4x4"), "ones", compiled=False, check_invariants=True))
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
    assert _run("ones", work, costs="none").lost_gpu_s[0] == 0


def test_speed_is_relative_to_what_was_asked() -> None:
    work = _work(10)
    jobs = ElasticJobs(work, 4, 16)
    rows = np.arange(len(work))
    nodes = -(-work.gpus // 4)
    assert speeds(jobs, rows, work.gpus, nodes, False) == pytest.approx(np.ones(len(work)))
    one = speeds(jobs, rows, np.ones_like(work.gpus), np.ones_like(nodes), False)
    assert (one < 1).all()
    assert (speeds(jobs, rows, work.gpus, nodes + 1, False) <= 1 + 1e-12).all()


def test_ones_finishes_sooner_than_rigid_jobs_in_a_crowd() -> None:
    work = generate(Spec.parse("ones-like:jobs=10,seed=1,gap=5"), 16)
    jct = {policy: float(_run(policy, work).jct_s.mean()) for policy in ("ones", "fifo")}
    assert jct["ones"] < jct["fifo"]


def test_bad_parameters_are_one_clear_line() -> None:
    for policy in ("ones:score=best", "ones:interval=0", "ones:progress=guess", "chronus:solver=x", "chronus:slot=7"):
        with pytest.raises(InputError, match="policy '"):
            _run(policy, _work(2))
    with pytest.raises(InputError, match="median above 0"):
        generate(Spec.parse("ones-like:median=0"), 16)
