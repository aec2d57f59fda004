"""Who may be planned with: jobs that no node that is up could hold are set aside, and come back with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Event, Kind
from cotenant.core.reasons import Cause
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.view import View
from cotenant.engine.cycle import Engine
from cotenant.engine.events import node_down, node_up
from cotenant.engine.explain import explain
from cotenant.engine.invariants import check
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.tables import StopCosts
from cotenant.placement.modes import parse_placement
from cotenant.policies import make_policy
from cotenant.policies.base import Context
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import jobs


class Live:
    """An engine whose jobs come one by one."""

    def __init__(self, policy: str, cluster: str, tree: Tree | None = None) -> None:
        made, context = make_policy(policy), Context()
        made.begin(context)
        rule, costs = made.rule(context), StopCosts(np.inf, most_suspended=2)
        placement, one = parse_placement("consolidated"), np.ones((1, 1, 2))
        site = replace(Cluster.parse(cluster), tenants=tree)
        self.tables = LiveRows(site, placement, rule, one, costs=costs, sharing=True)
        self.engine = Engine(self.tables, made, rule)

    def comes(self, now_s: float, **asks: object) -> int:
        row = self.tables.enter(NewJob(submit_s=now_s, **asks))  # type: ignore[arg-type]
        self.tell(now_s, Event(Kind.ARRIVED, row))
        return row

    def tell(self, now_s: float, *events: Event) -> None:
        self.engine.step(now_s, events)
        check(self.tables.state)

    def status(self, *rows: int) -> list[int]:
        return [int(self.tables.state.i[row, col.STATE]) for row in rows]


SHUT, OPEN = Event(Kind.SHUT, 1), Event(Kind.OPEN, 1)


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "gavel"])
def test_it_keeps_nobody_waiting_and_comes_back(policy: str) -> None:
    live = Live(policy, "2x2")
    live.tell(0.0, SHUT)
    wide, small = live.comes(1.0, gpus=4), live.comes(2.0, gpus=1)
    assert live.status(wide, small) == [col.ASIDE, col.RUNNING]
    live.tell(5.0, Event(Kind.OVER, small), OPEN)
    assert live.status(wide) == [col.RUNNING]
    assert live.tables.state.f[wide, col.WAITED] == 4.0


@pytest.mark.parametrize(
    ("asks", "status"),
    [
        ({"gpus": 4}, col.RUNNING),
        ({"gpus": 5}, col.ASIDE),
        ({"gpus": 2, "cpus": 4.0}, col.RUNNING),
        ({"gpus": 2, "cpus": 18.0}, col.ASIDE),  # the node with many cores is down
        ({"gpus": 2, "mem_gib": 40.0}, col.ASIDE),
        ({"gpus": 2, "nodes": 2}, col.ASIDE),
    ],
)
def test_all_that_a_job_asks_for_counts(asks: dict[str, float], status: int) -> None:
    live = Live("fifo", "1x4/cpu=8,mem=16+1x4/cpu=64,mem=160")
    live.tell(0.0, SHUT)
    assert live.status(live.comes(1.0, **asks)) == [status]


def test_without_any_node_nobody_is_set_aside() -> None:
    live = Live("fifo", "2x2")
    live.tell(0.0, SHUT, Event(Kind.SHUT, 0))
    wide, small = live.comes(1.0, gpus=4), live.comes(2.0, gpus=1)
    assert live.status(wide, small) == [col.WAITING, col.WAITING]
    live.tell(3.0, OPEN)
    assert live.status(wide, small) == [col.ASIDE, col.RUNNING]


def test_whoever_leaves_is_judged_when_it_has_left() -> None:
    live = Live("srtf", "2x2")
    wide = live.comes(0.0, gpus=4)
    state = live.tables.state
    live.tell(1.0, Event(Kind.WITHDRAWN, wide), Event(Kind.ARRIVED, wide), SHUT)
    assert (live.status(wide), state.i[wide, col.LEAVING]) == ([col.WAITING], 1)
    live.tell(2.0, Event(Kind.LEFT, wide))
    assert live.status(wide) == [col.ASIDE]


def test_a_job_set_aside_can_be_held_changed_and_cancelled() -> None:
    live = Live("fifo", "2x2")
    live.tell(0.0, SHUT)
    held, smaller, cancelled = (live.comes(1.0, gpus=4) for _ in range(3))
    live.tell(2.0, Event(Kind.WITHDRAWN, held))
    live.tables.set_gpus(smaller, 1, NewJob(1, 1.0), 3.0)
    live.tell(3.0, Event(Kind.CHANGED, smaller), Event(Kind.OVER, cancelled))
    assert live.status(held, smaller, cancelled) == [col.HELD, col.RUNNING, col.HELD]
    live.tell(4.0, OPEN)
    assert live.status(held, cancelled) == [col.HELD, col.HELD]


@pytest.mark.parametrize("policy", ["fifo", "gavel"])
def test_a_new_tree_of_tenants_sets_aside_and_brings_back(policy: str) -> None:
    tree = Tree((Tenant("small", ceiling=1), Tenant("large")))
    live = Live(policy, "2x2", tree)
    over, fits = live.comes(0.0, gpus=2, tenant="small"), live.comes(0.0, gpus=4, tenant="large")
    late = live.comes(0.0, gpus=3, tenant="large")
    assert live.status(over, fits, late) == [col.ASIDE, col.RUNNING, col.WAITING]
    live.tables.set_tree(Tree((Tenant("small"), Tenant("large", ceiling=4))))
    live.tell(1.0)
    assert live.status(over) == [col.WAITING]
    live.tables.set_tree(Tree((Tenant("small"), Tenant("large", ceiling=2))))
    live.tell(2.0)
    assert live.status(late) == [col.ASIDE]


def test_a_simulated_policy_does_not_see_it() -> None:
    """And sees all in order of arrival when it is back."""
    work = jobs((0, 1, 50), (1, 4, 50), (2, 1, 50), (10, 1, 50))  # a GPU is idle whenever somebody comes
    run = Simulation(Experiment(work, Cluster.parse("2x2"), "gavel", compiled=False))
    seen: list[list[int]] = []
    decide = run.policy.decide  # type: ignore[attr-defined]

    def watch(view: View) -> object:
        seen.append(view.rows.tolist())
        return decide(view)

    run.policy.decide = watch  # type: ignore[attr-defined]
    run.advance(0.5)
    node_down(run.state, run.engine.rule, 1, 0.5)
    run.advance(2.5)
    assert seen[-1] == [0, 2]
    assert explain(run.engine, work, run.experiment.cluster, 1, 2.5).cause == Cause.ASIDE
    node_up(run.state, 1)
    run.advance(10.5)
    assert seen[-1] == [0, 1, 2, 3]
