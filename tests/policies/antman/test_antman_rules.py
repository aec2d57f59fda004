"""AntMan: the two-job experiments of the paper, throttle, reservation, upgrade."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.core.together import CURVE
from cotenant.engine.plans import carry_out_plan
from cotenant.policies.antman.memory import caps
from cotenant.policies.antman.policy import AntMan
from cotenant.policies.antman.throttle import Throttle, step_seconds
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.profiles.together import MEMORY_CURVES

MIN = 60.0


def test_compute_sharing_of_the_paper() -> None:
    """ESPnet guaranteed beside ResNet-50: 20.8 min instead of 105.2, ResNet-50 at 57 % of its speed; within 10 %."""
    table = sharing([[1, 1 / 5.234], [1 / 1.5, 1]], busy=[0.464, 0.94])
    policy = "antman:tolerance=0.04,busy_limit=1,step=0.02,control_s=2"
    run = shared_run([(0.0, 1, 20.1 * MIN), (1.0, 1, 1e5)], table, "1x1", policy, priority=[0, -1])
    run.advance(1e4)
    assert run.state.f[0, col.FINISH] == pytest.approx(20.8 * MIN, rel=0.1)
    run = shared_run([(0.0, 1, 20.1 * MIN), (1.0, 1, 1e5)], table, "1x1", policy, priority=[0, -1])
    run.advance(20.0 * MIN)
    done = run.engine.view(20.0 * MIN).progress_s
    assert done[1] / (20.0 * MIN) == pytest.approx(0.57, rel=0.1)
    packed = shared_run([(0.0, 1, 20.1 * MIN), (0.0, 1, 1e5)], table, "1x1", "sjf-ffs", priority=[0, -1])
    packed.advance(1e5)
    assert packed.state.f[0, col.FINISH] == pytest.approx(105.2 * MIN, rel=0.1)


def _two_jobs(policy: str) -> tuple[float, float]:
    """GCN (3.5 GiB, 43 min, opportunistic) from 0, ResNet-50 (30 GiB, 91.1 min) from 26 min on a GPU of 32 GiB."""
    curve = np.array([MEMORY_CURVES["sr"], MEMORY_CURVES["resnet"]])
    table = sharing([[1, 0.95], [0.95, 1]], memory_gib=[3.5, 30.0], gpu_gib=32.0, busy=[0.2, 0.75], curve=curve)
    rows = [(0.0, 1, 43.0 * MIN), (26 * MIN, 1, 91.1 * MIN)]
    run = shared_run(rows, table, "1x1", policy, priority=[-1, 0] if policy.startswith("antman") else None)
    run.advance(np.inf)
    return run.state.f[0, col.FINISH] / MIN, run.state.f[1, col.FINISH] / MIN - 26


def test_memory_sharing_of_the_paper() -> None:
    one, two = _two_jobs("antman:control_s=5")
    assert one == pytest.approx(43.9, rel=0.1)
    assert two == pytest.approx(91.8, rel=0.02)
    one, two = _two_jobs("fifo")
    assert (one, two) == (pytest.approx(43.0), pytest.approx(108.1, abs=0.2))


def test_packing_without_limits_does_not_fit_and_spilling_the_guaranteed_job_crawls() -> None:
    curve = np.array([MEMORY_CURVES["sr"], MEMORY_CURVES["resnet"]])
    table = sharing([[1, 0.9], [0.9, 1]], memory_gib=[3.5, 30.0], gpu_gib=32.0, busy=[0.2, 0.75], curve=curve)
    rows = [(0.0, 1, 43.0 * MIN), (0.0, 1, 91.1 * MIN)]
    run = shared_run(rows, table, "1x1", "antman")
    run.advance(-1.0)
    run.state.x[col.NEXT_ARRIVAL] = 0
    run.advance(0.0)
    view = run.engine.view(0.0)
    both = {0: ((0, 1, 1),), 1: ((0, 1, 1),)}
    with pytest.raises(InputError, match="GiB on GPU"):
        carry_out_plan(run.state, run.engine.rule, Plan(both, {0: Terms(), 1: Terms()}), view, "pack", 0.0)
    spilled = Plan(both, {0: Terms(opportunistic=True), 1: Terms(cap=0.95)})
    carry_out_plan(run.state, run.engine.rule, spilled, view, "spill", 0.0)
    run.engine.rates.update(run.state, run.engine.rule, 0.0)
    assert 91.1 / run.state.f[1, col.SPEED] > 1.2 * 108.2


def test_throttled_steps() -> None:
    assert step_seconds(0.120, 60) == (pytest.approx(0.2), pytest.approx(0.08))
    assert step_seconds(0.120, 100) == (pytest.approx(0.120), 0.0)
    assert step_seconds(0.120, 0)[0] == np.inf
    assert step_seconds(0.120, 60, 0.01)[1] == pytest.approx(0.07)


def test_share_rises_by_steps_and_is_cut_sharply() -> None:
    throttle = Throttle.low(0.1, 0.0, 10.0)
    throttle.observe(1.0, 5.0, tolerance=0.01, step=0.1, cut=0.5)
    assert throttle.share == 0.1
    for now_s in (10.0, 20.0, 30.0):
        throttle.observe(1.0, now_s, tolerance=0.01, step=0.1, cut=0.5)
    assert throttle.share == pytest.approx(0.4)
    throttle.observe(1.2, 40.0, tolerance=0.01, step=0.1, cut=0.5)
    assert (throttle.share, throttle.next_s) == (pytest.approx(0.2), 50.0)
    throttle.observe(1.0, 50.0, tolerance=0.01, step=0.1, cut=0.5)
    assert (throttle.share, throttle.next_s) == (pytest.approx(0.3), 130.0)  # at the ceiling: a longer wait


def test_share_climbs_to_what_is_idle_and_beyond_only_with_seconds_to_spare() -> None:
    rules = {"tolerance": 0.01, "step": 0.1, "cut": 0.5}
    throttle = Throttle.low(0.1, 0.0, 10.0, idle=0.25)
    for now_s in (10.0, 20.0):
        throttle.observe(1.0, now_s, **rules, spare_s=0.0)
    assert (throttle.share, throttle.next_s) == (0.25, 60.0)
    throttle.observe(1.0, 60.0, **rules, spare_s=0.9)  # a tenth of ten seconds is at risk
    assert (throttle.share, throttle.next_s) == (0.25, 100.0)
    throttle.observe(1.0, 100.0, **rules, spare_s=1.1)
    assert throttle.share == pytest.approx(0.35)


def test_nothing_idle_suspends() -> None:
    """A try that hurts goes back to nothing at once, not by halves."""
    rules = {"tolerance": 0.01, "step": 0.1, "cut": 0.5}
    throttle = Throttle.low(0.1, 0.0, 10.0, idle=0.0)
    assert throttle.share == 0.0
    throttle.observe(1.0, 10.0, **rules)
    assert throttle.share == pytest.approx(0.1)
    throttle.observe(1.2, 20.0, **rules)
    assert (throttle.share, throttle.ceiling) == (0.0, 0.0)


def test_short_guaranteed_job_feels_nothing() -> None:
    """It arrives on the GPU of an opportunistic job and keeps it busy all the time, for a minute."""
    table = sharing([[1, 0.5], [0.5, 1]], busy=[1.0, 1.0])
    took = {}
    for options, share in (("", 0.0), (":believe=false,budget=1", 0.1)):
        run = shared_run([(0.0, 1, 1000.0), (100.0, 1, 60.0)], table, "1x1", f"antman{options}", priority=[-1, 0])
        run.advance(110.0)
        assert run.state.f[0, col.SHARE] == share
        run.advance(np.inf)
        took[options] = run.state.f[1, col.FINISH] - 100.0
        assert run.state.f[0, col.FINISH] <= 1000.0 + took[options]
    assert took[""] == pytest.approx(60.0)
    assert took[":believe=false,budget=1"] > 61.0


def _owned(quotas: dict[str, int], cluster: str = "1x8") -> Cluster:
    groups = Cluster.parse(cluster).groups
    return Cluster(tuple(NodeGroup(g.count, g.gpus_per_node) for g in groups), quotas, cluster)


def test_reservation() -> None:
    """5 of 8 GPUs free, a job asks for 8 and holds the 5: later 2 guaranteed GPUs wait, an opportunistic job may."""
    table = sharing(np.full((4, 4), 0.9), busy=[0.5] * 4)
    rows = [(0.0, 3, 500.0), (1.0, 8, 100.0), (2.0, 2, 100.0), (3.0, 2, 50.0)]
    run = shared_run(rows, table, _owned({"a": 20}), "antman", tenants=["a"] * 4, priority=[0, 0, 0, -1])
    run.advance(3.0)
    states = run.state.i[:, col.STATE].tolist()
    assert states == [col.RUNNING, col.WAITING, col.WAITING, col.RUNNING]
    assert isinstance(run.policy, AntMan)
    assert len(run.policy.reserved[1]) == 5


def test_upgrade_comes_before_a_waiting_guaranteed_job() -> None:
    """An opportunistic job beside a guaranteed one takes its place when that ends, before a new job starts."""
    table = sharing(np.full((3, 3), 0.9), busy=[0.5] * 3)
    rows = [(0.0, 1, 100.0), (1.0, 4, 1000.0), (50.0, 4, 100.0)]
    run = shared_run(rows, table, _owned({"a": 1, "b": 4, "c": 4}, "1x4"), "antman", tenants=["a", "b", "c"])
    run.engine.rule  # noqa: B018
    run.advance(1.0)
    assert run.state.i[1, col.STATE] == col.WAITING  # it has quota, so it waits for the GPU and holds three
    table = sharing(np.full((3, 3), 0.9), busy=[0.5] * 3)
    rows = [(0.0, 4, 100.0), (1.0, 4, 1000.0), (50.0, 4, 100.0)]
    run = shared_run(rows, table, _owned({"a": 4}, "1x4"), "antman", tenants=["a", "a", "a"])
    run.advance(60.0)
    assert run.state.i[:, col.OPPORTUNISTIC].tolist()[:2] == [0, 1]
    assert run.state.i[1, col.STATE] == col.RUNNING
    run.advance(150.0)
    assert run.state.i[1, col.OPPORTUNISTIC] == 0
    assert run.state.i[2, col.STATE] != col.FINISHED
    assert run.state.quota[0, col.Q_USED] == 4


def test_memory_goes_where_it_helps() -> None:
    """A job that falls off a cliff without its memory gets it before one that hardly minds."""
    flat, cliff = np.array(MEMORY_CURVES["sr"]), np.array(MEMORY_CURVES["resnet"])
    given = caps(14.0, [10.0, 10.0], [flat, cliff])
    assert given is not None
    assert given[1] == pytest.approx(1.0)
    assert given[0] == pytest.approx(0.4)
    assert caps(1.0, [10.0, 10.0], [flat, cliff]) is None
    assert caps(30.0, [10.0, 10.0], [flat, cliff]) == [1.0, 1.0]
    assert len(CURVE) == len(flat)
