"""Small worked examples of the specifications and of the simulator's options, with their arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.outcome import Outcome
from cotenant.core.workload import Workload
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import assert_work_conserved, jobs, random_workload


def play(work: Workload, cluster: str, policy: str, **more) -> Outcome:
    more = {"costs": "none", "check_invariants": True, **more}
    return simulate(Experiment(work, Cluster.parse(cluster), policy, **more))


@pytest.mark.parametrize(("policy", "mean"), [("fifo", 135), ("easy", 80), ("backfill", 80)])
def test_helios_head_of_line(policy: str, mean: float) -> None:
    """Strict order: X 100-110, Y 110-160; a backfill that may not delay X lets Y run 0-50."""
    result = play(jobs((0, 4, 100), (0, 8, 10), (0, 4, 50)), "1x8", policy)
    assert result.jct_s[1:].mean() == mean


def test_ffdl_gangs_are_whole() -> None:
    result = play(jobs((0, 3, 3600), (0, 3, 3600)), "4x1", "fifo")
    assert (result.first_start_s.tolist(), result.finish_s.tolist()) == ([0, 3600], [3600, 7200])
    assert result.summary["lost_gpu_s"] == 0
    assert result.summary["gpu_utilization"] == pytest.approx(0.75)


def test_ffdl_strict_queue() -> None:
    """Six of eight GPUs run; the head asks for 4, the second for 2 and waits although it would fit."""
    result = play(jobs((0, 2, 50), (0, 4, 500), (1, 4, 100), (2, 2, 10)), "1x8", "fifo")
    assert result.first_start_s.tolist() == [0, 0, 50, 150]


def crashing(cluster: str, costs: str) -> Simulation:
    """A 120-minute job of 4 GPUs, a checkpoint every 30 minutes; node 0 is down from 6000 to 6015 s."""
    run = Simulation(Experiment(jobs((0, 4, 7200)), Cluster.parse(cluster), "fifo", costs=costs, check_invariants=True))
    run.outages.table = np.array([[6000.0, 0, 0], [6015.0, 0, 1]])
    run.engine.rule.numbers[col.CHECKPOINT_S] = 1800.0
    assert run.advance(np.inf)
    return run


@pytest.mark.parametrize(("cluster", "costs", "lost"), [("1x4", "none", 40 * 60), ("2x4", "15", 40 * 60 + 60)])
def test_ffdl_lost_work(cluster: str, costs: str, lost: float) -> None:
    """Resumes at 90 of 100 minutes and ends at 130.25; 40 GPU-minutes are done again.

    The 15 s of recovery are either the repair of the only node or the restore on another one.
    """
    result = crashing(cluster, costs).outcome()
    assert result.finish_s[0] == 130.25 * 60
    assert result.lost_gpu_s[0] == lost
    assert (result.preemptions[0], result.restarts[0], result.summary["node_failures"]) == (0, 1, 1)
    assert_work_conserved(result)


def test_a_failed_attempt_is_queued_again_and_goes_on() -> None:
    """Two failing attempts of 30 s; at each the job goes to the back of nobody: it is still first by submit."""
    work = replace(jobs((0, 2, 100), (10, 2, 20)), attempts={0: (30.0, 30.0)})
    result = play(work, "1x2", "sjf")
    # sjf lets the shorter job in when the first attempt ends at 30
    assert result.finish_s.tolist() == [120, 50]
    assert result.restarts.tolist() == [2, 0]
    assert result.preemptions.tolist() == [0, 0]
    assert play(work, "1x2", "fifo").finish_s.tolist() == [100, 120]


def test_a_preemption_costs_exactly_its_restore_time() -> None:
    """A (3 GPUs, 100 s) stops at 10 for B (5 s), restores 15-75 and ends at 165."""
    work = jobs((0, 3, 100), (10, 3, 5))
    result = play(work, "1x3", "srtf:weigh=false", costs="flat")
    assert result.finish_s.tolist() == [165, 15]
    assert result.lost_gpu_s.tolist() == [180, 0]
    assert result.preemptions.tolist() == [1, 0]
    assert result.summary["lost_gpu_s"] == 180
    assert play(work, "1x3", "srtf").finish_s.tolist() == [105, 15]
    assert play(work, "1x3", "srtf:weigh=false", costs="7.5").finish_s.tolist() == [112.5, 15]


def test_default_costs_know_the_model() -> None:
    """VGG19 on one GPU: 2.7 s to save, 18 s to resume; other models the flat 60 s."""
    for model, cost in (("vgg19", 20.7), ("unheard-of", 60.0)):
        work = jobs((0, 1, 100), (10, 1, 5), models=[model, model])
        assert play(work, "1x1", "srtf", costs="default").finish_s[0] == pytest.approx(105 + cost)


def test_a_job_stopped_while_restoring_restores_again() -> None:
    """A stops at 10, restores from 12, is stopped at 20 by C, and restores in full from 22 on."""
    result = play(jobs((0, 1, 100), (10, 1, 2), (20, 1, 2)), "1x1", "srtf:weigh=false", costs="60")
    assert result.finish_s.tolist() == [22 + 60 + 90, 12, 22]
    assert result.lost_gpu_s[0] == 8 + 60


def test_belief_orders_and_truth_moves() -> None:
    work = jobs(*((0, 1, 10 * k + 10) for k in range(8)))
    noisy = Simulation(Experiment(work, Cluster.parse("1x1"), "sjf", estimator="noisy:error=2", seed=3))
    believed = noisy.state.f[:, col.BELIEF].copy()
    noisy.advance(np.inf)
    result = noisy.outcome()
    assert np.argsort(result.first_start_s).tolist() == np.argsort(believed).tolist()
    assert np.argsort(believed).tolist() != list(range(8))
    assert (result.finish_s - result.first_start_s).tolist() == work.duration_s.tolist()
    oracle = play(work, "1x1", "sjf")
    assert np.argsort(oracle.first_start_s).tolist() == list(range(8))
    assert oracle.jct_s.mean() < result.jct_s.mean()


def test_an_underestimated_job_keeps_running_under_srtf() -> None:
    """Believed remaining time never drops below 0, so an overdue job is first in the order."""
    work = random_workload(2, 30, 4)
    result = play(work, "1x4", "srtf", estimator="noisy:error=1.5")
    assert np.isfinite(result.finish_s).all()
    assert_work_conserved(result)


def test_measure_stops_when_the_measured_jobs_are_done_while_others_arrive() -> None:
    """Rank 1 (30 s) is overtaken by short jobs that arrive later; rank 40 is never reached."""
    work = jobs((0, 1, 10), (1, 1, 30), *((2 + 3 * k, 1, 2) for k in range(40)))
    result = play(work, "1x1", "srtf", measure=(1, 1))
    alone = play(work.take(np.array([0, 1])), "1x1", "srtf")
    assert alone.finish_s.tolist() == [10, 40]
    assert result.finish_s[1] > 100
    assert (result.summary["jobs"], result.summary["finished"]) == (1, 1)
    assert result.summary["avg_jct_s"] == result.finish_s[1] - 1
    later = work.submit_s > result.finish_s[1]
    full = play(work, "1x1", "srtf")
    assert result.finish_s[1] == full.finish_s[1]
    assert np.isnan(result.finish_s[later]).all()
    assert np.nanmax(result.finish_s) == result.finish_s[1]


def test_measure_stops_early() -> None:
    work = jobs(*((10 * k, 1, 5) for k in range(50)))
    result = play(work, "1x1", "fifo", measure=(3, 4))
    assert np.isfinite(result.finish_s).sum() == 5
    assert result.summary["makespan_s"] == 45
    with pytest.raises(InputError, match="only 50 jobs"):
        play(work, "1x1", "fifo", measure=(50, 60))


def test_until_cuts_the_run_off() -> None:
    work = jobs((0, 2, 100), (0, 1, 1000), (50, 2, 10), (600, 1, 1))
    result = play(work, "1x4", "fifo", until_s=500.0)
    assert np.isnan(result.finish_s).tolist() == [False, True, False, True]
    assert result.summary["finished"] == 2
    assert result.summary["gpu_utilization"] == pytest.approx((200 + 500 + 20) / (4 * 500))
    pieces = dict(zip(result.segments.job.tolist(), result.segments.end_s.tolist(), strict=True))
    assert pieces == {0: 100, 1: 500, 2: 110}


def test_until_after_the_end_changes_nothing() -> None:
    work = jobs((0, 2, 100), (50, 2, 10))
    cut, full = play(work, "1x2", "fifo", until_s=1e6), play(work, "1x2", "fifo")
    assert cut.finish_s.tolist() == full.finish_s.tolist() == [100, 110]
    assert cut.summary["gpu_utilization"] == full.summary["gpu_utilization"] == 1


def test_rounds_that_floats_cannot_hold_do_not_stop_the_clock() -> None:
    """43 * 0.1 / 0.1 is below 43: a round must not follow itself."""
    result = play(jobs((0, 1, 6), (0, 1, 6)), "1x1", "las:round=0.1")
    assert result.finish_s.max() == pytest.approx(12)
    assert result.finish_s.min() == pytest.approx(12, abs=0.21)
    assert 50 < result.summary["preemptions"] <= 120


def test_infeasible_jobs_are_named_or_left_out() -> None:
    work = jobs((0, 1, 10), (0, 9, 10))
    with pytest.raises(InputError, match="job '1' asks for 9 GPUs"):
        play(work, "1x8", "fifo")
    experiment = Experiment(work, Cluster.parse("1x8"), "fifo", skip_infeasible=True)
    assert len(simulate(experiment).workload) == 1
    assert "left out 1 jobs" in experiment.notes[0]


def test_quotas_hold_tenants_back() -> None:
    cluster = Cluster(Cluster.parse("1x8").groups, {"ada": 3}, "1x8")
    work = jobs((0, 2, 10), (0, 2, 10), (0, 1, 5), (0, 4, 5), tenants=["ada", "ada", "ada", "bob"])
    for policy, starts in (("backfill", [0, 10, 0, 0]), ("srtf", [0, 10, 0, 0]), ("fifo", [0, 10, 10, 10])):
        result = simulate(Experiment(work, cluster, policy, costs="none", check_invariants=True))
        assert result.first_start_s.tolist() == starts, policy


def test_easy_passes_a_tenant_at_its_quota() -> None:
    """Ada's second job is over quota; bob's fits the four idle GPUs exactly and must not wait for a reservation."""
    cluster = Cluster(Cluster.parse("1x8").groups, {"ada": 3}, "1x8")
    work = jobs((0, 3, 100), (0, 1, 50), (0, 1, 10), (1, 4, 70), tenants=["ada", "bob", "ada", "bob"])
    result = simulate(Experiment(work, cluster, "easy", costs="none", check_invariants=True))
    assert result.first_start_s.tolist() == [0, 0, 100, 1]
