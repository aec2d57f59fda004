"""What moves jobs that interleave, and what a policy believes of their stages, are two things."""

from __future__ import annotations

import numpy as np

from cotenant.beliefs.company import StageSpeeds
from cotenant.beliefs.stage_times import believed_stages
from cotenant.core.cluster import Cluster
from cotenant.core.stages import FITTED, UNMEASURED
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.workload.profiles import load_profile
from cotenant.workload.stages import profiled_stages, stages_of


def log(jobs: int = 12) -> Workload:
    """Jobs of one GPU with three stages, of which another one is the longest in turn."""
    times = np.full((jobs, 3), 0.1)
    times[np.arange(jobs), np.arange(jobs) % 3] = 1.0
    extra = {f"resource_time_{at}": times[:, at] for at in range(3)} | {"iteration_time_s": times.sum(axis=1)}
    models = Codes(np.arange(jobs) % 3, ("reader", "trainer", "sender"))
    return make_workload(
        "log", np.zeros(jobs), np.ones(jobs, np.int64), np.full(jobs, 600.0), model=models, extra=extra
    )


def test_a_policy_that_is_wrong_about_stages_does_not_change_them() -> None:
    ends = []
    for policy in ("muri-s", "muri-s:noise=1.0"):
        played = Experiment(log(), Cluster.parse("1x2"), policy, costs="none", compiled=False)
        found = Simulation(played)
        rates, believed = found.engine.rates, found.engine.facts.stages
        assert isinstance(rates, StageSpeeds)
        assert believed is not None
        assert rates.stages is not believed
        assert np.array_equal(rates.stages.times, stages_of(log()).times)  # type: ignore[union-attr]
        assert np.array_equal(believed.times, rates.stages.times) == (policy == "muri-s")
        ends.append(float(str(simulate(played).summary["avg_jct_s"])))
    assert ends[0] < ends[1], "wrong groups cost time"


def test_belief_is_the_truth_without_noise_and_a_fixed_distortion_with_it() -> None:
    truth = stages_of(log())
    assert truth is not None
    assert np.array_equal(believed_stages(truth, 0.0, 3).alone_s, truth.alone_s)
    one, two = believed_stages(truth, 0.5, 3), believed_stages(truth, 0.5, 3)
    assert np.array_equal(one.times, two.times)
    assert not np.array_equal(one.times, believed_stages(truth, 0.5, 4).times)
    assert truth.contention == one.contention == FITTED


def test_contention_of_the_h200_is_that_of_its_measured_pairs() -> None:
    models = ("lstm", "bert")
    work = make_workload("log", np.zeros(2), np.ones(2, np.int64), np.ones(2), model=Codes(np.arange(2), models))
    found = {
        name: profiled_stages(load_profile(name, work, ("h200",))) for name in ("h200", "h200:sharing=time-sliced")
    }
    factors = {name: stages.contention for name, stages in found.items() if stages is not None}
    assert all(each not in (FITTED, UNMEASURED) for each in factors.values())
    assert 0.5 < factors["h200"][1] < factors["h200:sharing=time-sliced"][1] < FITTED[1] / FITTED[0]
