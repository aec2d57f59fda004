"""Philly by hand: attempts and relaxed locality, quotas that are lent and taken back, gangs that hold each other up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.core.errors import InputError
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Workload
from cotenant.policies.philly import Philly
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import PolicyContract, jobs

HOUR = 3600.0


def played(work: Workload, cluster: str | Cluster, policy: str = "philly", until_s: float = np.inf) -> Simulation:
    machines = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    run = Simulation(Experiment(work, machines, policy, costs="none", check_invariants=True, compiled=False))
    run.advance(until_s)
    return run


def starts(run: Simulation) -> list[float]:
    return run.outcome().first_start_s.tolist()


def on_two_nodes(work: Workload, *rows: int) -> Workload:
    """These jobs sit on two nodes, half on each."""
    nodes = np.zeros(len(work), np.int64)
    nodes[list(rows)] = 2
    return replace(work, nodes=nodes)


def shared(cluster: str, **quotas: int) -> Cluster:
    tree = Tree(tuple(Tenant(name, guaranteed=gpus) for name, gpus in quotas.items()))
    return replace(Cluster.parse(cluster), tenants=tree)


HALF_BUSY = on_two_nodes(jobs((0, 8, HOUR), (0, 8, 100)), 0)  # 4 GPUs of each node busy; a job that wants a whole node


class TestReserving(PolicyContract):
    policy = "philly:wait=reserve"
    work_conserving = False


def test_a_gang_tries_four_times_and_then_takes_what_there_is() -> None:
    """Attempts of 150 s begin at 0, 270, 540 and 810; the fifth, at 4 * 270 = 1,080, may use both nodes.

    Each of the four holds the 4 free GPUs of one node for 150 s: 4 * 4 * 150 = 2,400 GPU-seconds for nothing.
    """
    run = played(HALF_BUSY, "2x8")
    assert starts(run) == [0.0, 1080.0]
    summary = run.outcome().summary
    assert summary["delay_fragmentation_5-8"] == 1
    assert summary["delay_fragmentation_s_5-8"] == 1080.0
    assert summary["delay_fair_share_5-8"] == summary["delay_fair_share_s_5-8"] == 0
    assert summary["held_idle_gpu_s"] == 2400.0


def test_whoever_waits_is_told_its_attempts() -> None:
    run = played(HALF_BUSY, "2x8", until_s=10.0)
    assert "attempt 1 of 4 holds 4 of them until 150 s" in run.engine.answers()(1)
    run.advance(450.0)
    said = run.engine.answers()(1)
    assert "waits for locality" in said
    assert "attempt 2 of 4 timed out, next at 540 s" in said
    assert "8 GPUs of its quota of 16" in said


def test_with_a_heartbeat_time_outs_wait_for_it() -> None:
    """The fifth attempt, due at 1,080, is looked at on the next multiple of 100 s."""
    assert starts(played(HALF_BUSY, "2x8", "philly:heartbeat=100")) == [0.0, 1100.0]


def test_several_racks_come_after_more_servers_of_one() -> None:
    """Racks of one node: more servers of a rack do not help. Three attempts later, at 7 * 270, two racks may do."""
    assert starts(played(HALF_BUSY, "2x8", "philly:rack_nodes=1")) == [0.0, 1890.0]


def test_without_holding_small_jobs_starve_a_large_one() -> None:
    """Two jobs of 4 GPUs on one node, each a minute long, renewed by turns: without a hold 8 are never free together.

    With one the large job has the first 4 as they fall free, at 60 s, and the rest at 90 s.
    """
    stream = [(30.0 * k, 4, 60.0) for k in range(40)]
    rows = sorted([*stream, (45.0, 8, 10.0)])
    large = rows.index((45.0, 8, 10.0))
    assert starts(played(jobs(*rows), "1x8", "philly:wait=hold"))[large] == 90.0
    assert starts(played(jobs(*rows), "1x8", "philly:wait=none"))[large] >= 40 * 30.0
    assert starts(played(jobs(*rows), "1x8", "philly:wait=reserve"))[large] == 90.0


def test_two_large_jobs_hold_each_others_gpus_until_the_time_out() -> None:
    """Two gangs of 8 hold 4 GPUs of a node each; a job of 4 GPUs could run on either, and gets them at 150 s."""
    work = on_two_nodes(jobs((0, 8, HOUR), (0, 8, 100), (0, 8, 100), (10, 4, 50)), 0)
    run = played(work, "2x8", until_s=100.0)
    assert run.policy.figures()["held_idle_gpu_s"] == 8 * 10  # up to the last decision
    run.advance(np.inf)
    assert starts(run)[3] == 150.0


def test_lent_gpus_are_taken_back_when_the_cluster_is_full() -> None:
    """16 GPUs, quotas of 8: A has 8, B 4. A's next 4 are lent to it; B asks for 4 more within its quota.

    All 16 are in use, so A's youngest job leaves, and B starts at once.
    """
    work = jobs((0, 8, HOUR), (0, 4, HOUR), (10, 4, HOUR), (20, 4, 100), tenants=("a", "b", "a", "b"))
    run = played(work, shared("2x8", a=8, b=8))
    assert starts(run) == [0.0, 0.0, 10.0, 20.0]
    assert run.outcome().preemptions.tolist() == [0, 0, 1, 0]
    assert run.outcome().finish_s[2] == 120.0 + HOUR - 10.0  # it goes on where it was as soon as B's job has ended


def test_nobody_is_preempted_below_the_threshold() -> None:
    """17 GPUs, of which 15 are in use: 15 / 17 < 0.9. B wants 2 on one node and there is one on each."""
    work = jobs((0, 8, HOUR), (0, 4, HOUR), (10, 3, HOUR), (20, 2, 100), tenants=("a", "b", "a", "b"))
    cluster = shared("2x8+1x1", a=8, b=8)
    assert played(work, cluster).outcome().preemptions.sum() == 0
    assert played(work, cluster, "philly:threshold=0.8").outcome().preemptions.tolist() == [0, 0, 1, 0]


def test_a_delay_passes_from_one_class_to_the_other() -> None:
    """8 GPUs, A and B have 4 each by quota, B uses 6, A 2: a job of B waits for its fair share.

    At 100 B's job of 4 GPUs ends, and A takes them all: B, with 2, is below its quota, and its job of 4 waits for GPUs.
    """
    work = jobs((0, 4, 100), (0, 2, HOUR), (0, 2, HOUR), (10, 4, HOUR), (20, 4, 50), tenants=("b", "b", "a", "a", "b"))
    run = played(work, shared("1x8", a=4, b=4), "philly:threshold=2,wait=none")
    summary = run.outcome().summary
    assert starts(run)[3] == 100.0
    assert summary["delay_fair_share_s_2-4"] == 80.0
    assert summary["delay_fair_share_2-4"] == 1


def test_the_queue_furthest_below_its_quota_comes_first() -> None:
    """One GPU falls free for two jobs: A has 2 of 4, B 1 of 4, so it is B's, though A's came first."""
    work = jobs((0, 2, HOUR), (0, 1, HOUR), (0, 1, 50), (10, 1, 9), (20, 1, 9), tenants=("a", "b", "c", "a", "b"))
    assert starts(played(work, shared("1x4", a=4, b=4, c=1)))[3:] == [59.0, 50.0]


def test_small_jobs_are_packed_and_large_ones_go_where_it_is_empty() -> None:
    """2 GPUs go beside the job of 5, where 3 are left; 12 GPUs to the rack of the two empty nodes."""
    run = played(jobs((0, 5, HOUR), (1, 2, HOUR), (2, 12, HOUR)), "4x8", "philly:rack_nodes=2", until_s=3.0)
    view = run.engine.view(3.0)
    assert view.placement(0)[0][0] == view.placement(1)[0][0]
    assert view.placement(2) == ((2, 8), (3, 4))


def test_overtaking_is_counted_and_judged() -> None:
    """A job of 8 waits for a node; two of 2 GPUs overtake it. The first ends before the node is otherwise empty, the
    second does not: without it the large job would have started at 100."""
    rows = ((0, 4, 100), (0, 8, 50), (10, 2, 20), (10, 2, 500))
    run = played(jobs(*rows), "1x8", "philly:wait=none")
    figures = run.policy.figures()
    assert starts(run) == [0.0, 510.0, 10.0, 10.0]
    assert (figures["starts_out_of_order"], figures["starts_past_large"], figures["starts_past_large_harmful"]) == (
        2, 2, 1,
    )  # fmt: skip


def test_what_was_told_comes_back() -> None:
    run = played(HALF_BUSY, "2x8", until_s=300.0)
    told = run.policy.remember()
    assert told == {(1,): {"began_s": 0.0, "holds": [[0, 4]]}}
    again = Philly()
    again.begin(run.context)
    again.recall({(1,): told[(1,)]})
    assert again.remember() == told
    plan = again.decide(run.engine.view(300.0))
    assert plan.next_s == 420.0
    assert plan.why(1) == run.engine.answers()(1)


@pytest.mark.parametrize(
    "params", ["timeout=0", "backoff=-1", "retries=-1", "rack_nodes=-2", "wait=sleep", "threshold=-1"]
)
def test_bad_parameters_are_one_line(params: str) -> None:
    with pytest.raises(InputError, match=f"policy 'philly': {params.split('=', maxsplit=1)[0]}="):
        played(HALF_BUSY, "2x8", f"philly:{params}")
