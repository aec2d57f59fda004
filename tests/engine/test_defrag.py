"""Running jobs move together for a gang that waits: under any policy, never against their will, and only if it pays."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.workload import Workload, make_workload
from cotenant.engine.tables import StopCosts
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import random_workload

LAGS = StopCosts(save_s=20.0, start_s=5.0)


def _log(movable: bool = True, long_s: float = 10_000.0) -> Workload:
    """Two jobs of 2 GPUs on each of two nodes; one of either ends after 100 s. At 500 s a gang of 4 comes."""
    seconds = [100.0, long_s, 100.0, long_s, 1000.0]
    work = make_workload(
        "gaps", np.array([0.0, 0.0, 0.0, 0.0, 500.0]), np.array([2, 2, 2, 2, 4]), np.array(seconds),
        extra={} if movable else {"movable": np.array([True, False, True, False, True])},
    )  # fmt: skip
    return work


def _run(work: Workload, policy: str = "fifo", cluster: str = "2x4", **more: object) -> Simulation:
    given = {"defrag": True, "costs": "60", "check_invariants": True, "compiled": False, **more}
    run = Simulation(Experiment(work, Cluster.parse(cluster), policy, **given))  # type: ignore[arg-type]
    run.advance(np.inf)
    return run


@pytest.mark.parametrize(
    "policy", ["fifo", "fifo:strict=false", "easy", "qssf", "edf", "tiresias-l", "philly", "antman"]
)
def test_a_gang_starts_at_once_where_a_job_can_make_room(policy: str) -> None:
    """One job of 2 GPUs is moved; without that the gang would wait until one ends, or is stopped for it."""
    run, still = _run(_log(), policy).outcome(), _run(_log(), policy, defrag=False).outcome()
    assert (run.first_start_s[4], run.summary["defrag_moves"], run.preemptions.sum()) == (500.0, 1, 1)
    assert still.first_start_s[4] > 1500.0


def test_what_a_move_costs_is_paid_and_counted() -> None:
    result = _run(_log()).outcome()
    assert (result.first_start_s[4], result.preemptions.tolist()) == (500.0, [0, 1, 0, 0, 0])
    assert result.finish_s.tolist() == [100.0, 10_060.0, 100.0, 10_000.0, 1500.0]
    assert result.summary["lost_gpu_s"] == result.summary["defrag_gpu_s"] == 120.0
    assert result.summary["defrag_gangs"] == 1


def test_jobs_that_said_no_stay_where_they_are() -> None:
    result = _run(_log(movable=False)).outcome()
    assert result.first_start_s[4] == 10_000.0
    assert result.preemptions.sum() == result.summary["defrag_moves"] == 0


@pytest.mark.parametrize(("ends_s", "moves"), [(520.0, 0), (535.0, 1)])
def test_nobody_is_moved_for_less_than_it_costs(ends_s: float, moves: int) -> None:
    """120 GPU-seconds against 4 GPUs that wait for 20 s, or for 35."""
    assert _run(_log(long_s=ends_s)).outcome().summary["defrag_moves"] == moves


def test_where_leaving_takes_time_the_gang_has_a_promise() -> None:
    """The job saves for 20 s, its GPUs are promised to the gang, and it is at work again 25 + 60 s later."""
    run = _run(_log(), stop_costs=LAGS)
    assert run.outcome().first_start_s[4] == 520.0
    assert run.state.i[1, col.STARTS] == 2


def test_a_gang_larger_than_a_node_gets_whole_ones() -> None:
    """Three nodes of 4, each with a job of 1 GPU; a gang of 8 needs two of them, so two jobs go to the third."""
    work = make_workload(
        "wide", np.array([0.0] * 6 + [500.0]), np.array([3, 1] * 3 + [8]), np.array([100.0, 9000.0] * 3 + [1000.0])
    )
    result = _run(work, cluster="3x4").outcome()
    assert result.first_start_s[6] == 500.0
    assert result.summary["defrag_moves"] == 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ["fifo:strict=false", "srtf", "sjf-ffs"])
def test_whatever_comes_nobody_moves_who_said_no_and_all_finish(seed: int, policy: str) -> None:
    """Invariants are checked after every event."""
    work = random_workload(seed, 30, 4)
    fixed = np.random.default_rng(seed).random(len(work)) < 0.5
    work.extra["movable"] = ~fixed
    run = _run(work, policy, skip_infeasible=True, stop_costs=LAGS if seed % 2 else StopCosts())
    result = run.outcome()
    assert np.isfinite(result.finish_s).all()
    if policy != "srtf":  # which stops jobs for shorter ones too
        assert result.preemptions[~np.asarray(run.work.extra["movable"], bool)].sum() == 0
        assert result.preemptions.sum() == result.summary["defrag_moves"]


def test_it_does_not_go_with_allocators() -> None:
    with pytest.raises(InputError, match="--defrag does not go with --allocator synergy-tune"):
        _run(_log(), allocator="synergy-tune")
