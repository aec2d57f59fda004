"""AntMan: the two-job experiments of the paper, throttle, reservation, upgrade."""

from __future__ import annotations

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan, Terms
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.together import CURVE
from cotenant.engine.plans import carry_out_plan
from cotenant.policies.antman.memory import caps
from cotenant.policies.antman.policy import AntMan
from cotenant.policies.antman.throttle import Throttle
from cotenant.service.executor.terms import LONGEST_PAUSE_S, pause_s
from cotenant.testing.sharing import shared_run, sharing
from cotenant.workload.profiles.together import MEMORY_CURVES

MIN = 60.0


def test_what_a_paused_neighbour_costs_follows_from_the_pair() -> None:
    """Beside one that is at work a quarter of the time: 3/4 at full speed, 1/4 at the pair's. Two are independent."""
    table = sharing([[1, 0.6, 0.8], [0.5, 1, 1], [0.7, 1, 1]], busy=[0.2] * 3)
    for shares, host in (((0.25,), 0.75 + 0.25 * 0.6), ((0.0,), 1.0), ((1.0,), 0.6), ((0.5, 0.1), None)):
        rows = [(0.0, 1, 1e6)] * (1 + len(shares))
        run = shared_run(rows, table, "1x1", "antman", priority=[0] + [-1] * len(shares))
        run.advance(1.0)
        run.state.f[1 : 1 + len(shares), col.SHARE] = shares
        run.engine.rates.update(run.state, run.engine.rule, 1.0)
        speed = run.state.f[: 1 + len(shares), col.SPEED]
        both = 1 / (1 / 0.6 + 1 / 0.8 - 1)
        mean = 0.5 * 0.9 + 0.5 * 0.9 * 0.6 + 0.5 * 0.1 * 0.8 + 0.5 * 0.1 * both
        assert speed[0] == pytest.approx(mean if host is None else host)
        if host is not None:
            assert speed[1] == pytest.approx(max(shares[0] * 0.5, 1e-9))


@pytest.mark.parametrize(("beside", "alone"), [(0.992, 1.0), (0.9, 0.05), (0.6, 0.0125)])
def test_default_options_keep_the_promise_whatever_the_pair_is(beside: float, alone: float) -> None:
    """Nobody tells the policy what the pair is: feedback finds a share that costs half a per cent, or no limit."""
    table = sharing([[1, beside], [0.7, 1]], busy=[0.5, 0.5])
    run = shared_run([(0.0, 1, 1e6), (100.0, 1, 1e6)], table, "1x1", "antman", priority=[0, -1])
    run.advance(160.0)
    before = run.engine.view(160.0).progress_s.copy()
    run.advance(760.0)
    host, guest = (run.engine.view(760.0).progress_s - before) / 600.0
    assert host >= 0.99
    assert run.engine.view(760.0).progress_s[0] >= 0.99 * 760
    assert guest >= 0.7 * 0.9 * alone


def _two_jobs(policy: str) -> tuple[float, float]:
    """GCN (3.5 GiB, 43 min, opportunistic) from 0, ResNet-50 (30 GiB, 91.1 min) from 26 min on a GPU of 32 GiB.

    The paper does not say what they do to each other's speed; here it is nothing, so that all comes from memory.
    """
    curve = np.array([MEMORY_CURVES["sr"], MEMORY_CURVES["resnet"]])
    table = sharing([[1, 1], [1, 1]], memory_gib=[3.5, 30.0], gpu_gib=32.0, busy=[0.2, 0.75], curve=curve)
    rows = [(0.0, 1, 43.0 * MIN), (26 * MIN, 1, 91.1 * MIN)]
    run = shared_run(rows, table, "1x1", policy, priority=[-1, 0] if policy.startswith("antman") else None)
    run.advance(np.inf)
    return run.state.f[0, col.FINISH] / MIN, run.state.f[1, col.FINISH] / MIN - 26


def test_memory_sharing_of_the_paper() -> None:
    one, two = _two_jobs("antman")
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
    """The pauses that the service tells: a step of 120 ms at 60 per cent of the time is followed by 80 ms."""
    assert pause_s(0.120, 0.6) == pytest.approx(0.08)
    assert pause_s(0.120, 1.0) == 0.0
    assert pause_s(0.120, 0.0) == LONGEST_PAUSE_S


RULES = {"tolerance": 0.01, "step": 0.1, "cut": 0.5}


def test_share_rises_by_steps_and_is_cut_to_what_costs_half_the_tolerance() -> None:
    throttle = Throttle.low(0.1, 0.0, 10.0)
    throttle.observe(1.0, 5.0, **RULES)
    assert throttle.share == 0.1
    for now_s in (10.0, 20.0, 30.4):
        throttle.observe(1.0, now_s, **RULES)
    assert (throttle.share, throttle.next_s) == (pytest.approx(0.4), 40.0)
    throttle.observe(1.05, 40.0, **RULES)  # at the first sign nothing, for one period
    assert (throttle.share, throttle.next_s) == (0.0, 50.0)
    throttle.observe(1.0, 50.0, **RULES)  # it was guilty: 0.4 costs 5 %, so 0.04 costs 0.5 %
    assert (throttle.share, throttle.next_s) == (pytest.approx(0.04), 60.0)
    throttle.observe(1.0, 60.0, **RULES)
    assert throttle.share == pytest.approx(0.04)  # no try before 90 s
    throttle.observe(1.0, 100.0, **RULES, spare_s=0.02)
    assert throttle.share == pytest.approx(0.04)  # 0.02 more of 12.5 % of a period are at risk, 0.025 s
    throttle.observe(1.0, 140.0, **RULES, spare_s=0.03)
    assert throttle.share == pytest.approx(0.06)  # by half of it
    throttle.observe(1.0, 150.0, **RULES)
    assert throttle.share == pytest.approx(0.06)  # and then not before 180 s


def test_a_neighbour_that_is_slower_by_itself_is_nobody_s_fault() -> None:
    """Its clocks went down by 3 %: the guest pauses for one period, goes on, and is not asked again."""
    throttle = Throttle.low(0.4, 0.0, 10.0, idle=0.4)
    for now_s, share in ((10.0, 0.0), (20.0, 0.4), (30.0, 0.4)):
        throttle.observe(1.03, now_s, **RULES, spare_s=0.0)
        assert throttle.share == share
    throttle.observe(1.08, 70.0, **RULES, spare_s=0.0)
    throttle.observe(1.03, 80.0, **RULES, spare_s=0.0)
    assert throttle.share == pytest.approx(0.4 * 0.005 / (1.08 / 1.03 - 1))


@pytest.mark.parametrize(("harm", "least"), [(0.003, 0.6), (0.03, 0.1), (0.2, 0.01)])
def test_a_neighbour_whose_speed_wanders_by_two_per_cent(harm: float, least: float) -> None:
    """As was seen on an H200: a harmless guest keeps its share, a harmful one costs less than 1 % on average."""
    shares = []
    for seed in range(8):
        draw, throttle, wander = np.random.default_rng(seed), Throttle.low(0.1, 0.0, 5.0, idle=0.99), 0.0
        for look in range(200):
            wander = 0.5 * wander + draw.normal(0.0, 0.017)
            shares.append(throttle.share)
            slow = max((1 + harm * throttle.share) * (1 + wander), 1.0)
            throttle.observe(slow, 5.0 * (look + 1), tolerance=0.01, step=0.2, cut=0.5, spare_s=1.0)
    assert np.mean(shares) >= least
    assert harm * np.mean(shares) <= 0.01


def test_a_look_before_both_are_at_work_is_no_look() -> None:
    """Nothing is seen while one of them starts up: the share neither climbs nor is left alone for long."""
    throttle = Throttle.low(0.1, 4.0, 2.0, idle=0.4)
    for now_s, next_s in ((5.0, 6.0), (6.0, 8.0), (8.3, 10.0)):
        throttle.wait(now_s)
        assert (throttle.share, throttle.next_s, throttle.with_it) == (0.1, next_s, [])
    throttle.observe(1.2, 10.0, tolerance=0.01, step=0.2, cut=0.5)
    assert (throttle.share, throttle.next_s) == (0.0, 12.0)


def test_share_climbs_to_what_is_idle_and_beyond_only_with_seconds_to_spare() -> None:
    throttle = Throttle.low(0.1, 0.0, 10.0, idle=0.25)
    for now_s in (10.0, 20.0):
        throttle.observe(1.0, now_s, **RULES, spare_s=0.0)
    assert (throttle.share, throttle.next_s) == (0.25, 30.0)
    throttle.observe(1.0, 30.0, **RULES, spare_s=0.9)  # a tenth of ten seconds is at risk
    assert (throttle.share, throttle.next_s) == (0.25, 70.0)
    throttle.observe(1.0, 70.0, **RULES, spare_s=1.1)
    assert throttle.share == pytest.approx(0.35)


def test_nothing_idle_suspends() -> None:
    """A try that hurts goes back to nothing at once, not by halves."""
    throttle = Throttle.low(0.1, 0.0, 10.0, idle=0.0)
    assert throttle.share == 0.0
    throttle.observe(1.0, 10.0, **RULES)
    assert throttle.share == pytest.approx(0.1)
    throttle.observe(1.2, 20.0, **RULES)
    throttle.observe(1.0, 30.0, **RULES)
    assert (throttle.share, throttle.ceiling) == (0.0, 0.0)


def test_short_guaranteed_job_feels_nothing() -> None:
    """It arrives on the GPU of an opportunistic job and keeps it busy all the time, for a minute."""
    table = sharing([[1, 0.5], [0.5, 1]], busy=[1.0, 1.0])
    took = {}
    for options, share in (("", 0.0), (":believe=false,budget=1", 0.1)):
        run = shared_run([(0.0, 1, 1000.0), (100.0, 1, 60.0)], table, "1x1", f"antman{options}", priority=[-1, 0])
        run.advance(104.0)
        assert run.state.f[0, col.SHARE] == share
        run.advance(np.inf)
        took[options] = run.state.f[1, col.FINISH] - 100.0
        assert run.state.f[0, col.FINISH] <= 1000.0 + took[options]
    assert took[""] == pytest.approx(60.0)
    assert took[":believe=false,budget=1"] > 60.2


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


def test_guarantees_of_a_tree_of_tenants() -> None:
    """What a tenant is guaranteed makes its jobs guaranteed, up to that; all others use the rest."""
    tree = Tree((Tenant("owner", guaranteed=3), Tenant("other", guaranteed=1)))
    table = sharing(np.full((6, 6), 0.9), busy=[0.3] * 6)
    rows = [(0.0, 2, 500.0), (1.0, 2, 500.0), (2.0, 1, 500.0), (3.0, 1, 500.0), (4.0, 1, 500.0), (5.0, 1, 500.0)]
    owners = ["owner", "owner", "owner", "other", "other", "nobody"]
    cluster = Cluster((NodeGroup(1, 4),), spec="1x4", tenants=tree)
    run = shared_run(rows, table, cluster, "antman", tenants=owners)
    run.advance(6.0)
    assert run.state.i[:, col.STATE].tolist() == [col.RUNNING] * 6
    assert run.state.i[:, col.OPPORTUNISTIC].tolist() == [0, 1, 0, 0, 1, 1], "2 and 1 of 3, 1 of 1"
    run.advance(np.inf)
    assert (run.state.i[:, col.PREEMPTS] == 0).all(), "nobody is stopped for another's guarantee"
    slow = run.state.f[[0, 2, 3], col.OCCUPIED] / 500.0
    assert slow.max() <= 1.01


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
