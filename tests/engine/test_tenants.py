"""The rule of tenants in the simulator: quotas and ceilings hold, guarantees come back, nobody starves or is chased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tenant_kit import Evictions, Returns, cluster_of, play, trees, workloads

from cotenant.core import columns as col
from cotenant.core.cluster import NodeGroup
from cotenant.core.decision import Change, Event, Kind
from cotenant.core.errors import InputError
from cotenant.core.state import State
from cotenant.core.tenants import Tenant, Tree
from cotenant.core.workload import Codes, Workload, make_workload
from cotenant.engine.cycle import Engine
from cotenant.engine.explain import tenant_facts
from cotenant.engine.invariants import check
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.tables import StopCosts
from cotenant.placement.modes import parse_placement
from cotenant.policies import make_policy
from cotenant.policies.base import Context
from cotenant.sim.driver import Experiment, Simulation

AGING = f"{Path(__file__).parents[2]}/examples/policies/aging.py:Aging"  # a computed priority
POLICIES = (
    "fifo", "fifo:strict=true", "backfill", "srtf", "srtf:weigh=false", "tiresias-l:threshold=400,knob=4", "easy",
    "las:round=60", "gavel", "muri-s", "themis", "antman", AGING,
)  # fmt: skip
COSTS = (
    StopCosts(),
    StopCosts(save_s=7.0, start_s=3.0),
    StopCosts(save_s=7.0, start_s=3.0, resume_s=2.0, suspends=True, most_suspended=3, patience_s=40.0),
)


def try_out(times: int, policy: str, holds: Callable[[str, st.DataObject], None]) -> None:
    """So many random cases, as they come."""

    @settings(
        max_examples=times,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.generate],
    )
    @given(st.data())
    def case(data: st.DataObject) -> None:
        holds(policy, data)

    case()


@pytest.mark.parametrize("policy", POLICIES)
def test_quotas_and_ceilings_hold_at_every_event(policy: str) -> None:
    try_out(3, policy, _quotas_hold)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_quotas_and_ceilings_hold_at_every_event_of_many_cases(policy: str) -> None:
    try_out(60, policy, _quotas_hold)


def _quotas_hold(policy: str, data: st.DataObject) -> None:
    groups = (NodeGroup(2, 4, dedicated=data.draw(st.sampled_from([(), ("lab",), ("eve",)]))), NodeGroup(1, 8))
    tree = data.draw(trees(16))
    experiment = Experiment(
        data.draw(workloads(most_gpus=8)), cluster_of(tree, *groups), policy, costs="20",
        stop_costs=data.draw(st.sampled_from(COSTS)),
        placement=data.draw(st.sampled_from(["consolidated", "relaxed:after=100"])),
        fail_nodes=data.draw(st.sampled_from([None, "mtbf=600,mttr=100"])), skip_infeasible=True, check_invariants=True,
        compiled=False,
    )  # fmt: skip
    play(experiment, Evictions())


AT_EVENTS = ["fifo", "backfill", "srtf", "tiresias-l:threshold=400,knob=4", "las:round=60"]
PLANNED = ["gavel", "themis", "sjf-bsbf", "sjf-ffs", "horus", "antman"]  # start whom they like, when they like


@pytest.mark.parametrize("policy", AT_EVENTS)
def test_guaranteed_gpus_come_back_after_the_minimum_run_at_the_latest(policy: str) -> None:
    try_out(3, policy, _guarantees_return)


@pytest.mark.parametrize("policy", PLANNED)
def test_guaranteed_gpus_are_cleared_and_kept_for_whoever_a_plan_starts(policy: str) -> None:
    try_out(3, policy, _guarantees_return)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*AT_EVENTS, *PLANNED])
def test_guaranteed_gpus_come_back_in_many_cases(policy: str) -> None:
    try_out(20 if policy in PLANNED else 60, policy, _guarantees_return)


def _guarantees_return(policy: str, data: st.DataObject) -> None:
    tree = data.draw(trees(12, deep=False))
    tree = Tree(tuple(replace(tenant, reclaims=True) for tenant in tree.tenants), min_run_s=tree.min_run_s)
    work = data.draw(workloads(most_gpus=4))
    stop_costs, planned = data.draw(st.sampled_from(COSTS[:2])), policy in PLANNED
    saving_s = stop_costs.save_s if planned else 0.0  # an order's job counts as started as soon as GPUs are promised
    returns, evictions = Returns(tree.min_run_s + saving_s, policy == "fifo", cleared=planned), Evictions()

    def look(state: State) -> None:
        returns(state)
        evictions(state)

    experiment = Experiment(
        work, cluster_of(tree, NodeGroup(1, 12)), policy, stop_costs=stop_costs,
        skip_infeasible=True, check_invariants=True, compiled=False,
    )  # fmt: skip
    try:
        play(experiment, look)
    except InputError as error:  # everybody's ceiling is too low for its jobs
        assume("no job fits" not in str(error))
        raise


def _jobs(*lines: tuple[float, str, int, float, int]) -> Workload:
    """(submitted, tenant, GPUs, seconds, how many of them)."""
    rows = [line[:4] for line in lines for _ in range(line[4])]
    names = tuple(sorted({row[1] for row in rows}))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    codes = np.array([names.index(name) for name in columns[1]], np.int64)
    order = np.argsort(columns[0].astype(float), kind="stable")
    return make_workload(
        "given", columns[0].astype(float)[order], columns[2].astype(np.int64)[order],
        columns[3].astype(float)[order], tenant=Codes(codes[order], names),
    )  # fmt: skip


SLOWER = [pytest.param(name, marks=pytest.mark.slow) for name in ("tiresias-l", "easy", "gavel", "themis")]
EVERYBODY = ["fifo", "srtf", *SLOWER]


@pytest.mark.parametrize("policy", EVERYBODY)
def test_shares_converge_to_weights_when_all_want_more(policy: str) -> None:
    tree = Tree((Tenant("one"), Tenant("two", weight=2.0), Tenant("four", weight=4.0)))
    work = _jobs(
        *[(float(at), name, 1, 97.0, 4) for at in range(0, 2000, 50) for name in ("one", "two", "four", "four")]
    )
    cluster = cluster_of(tree, NodeGroup(1, 14))
    run = Simulation(Experiment(work, cluster, policy, compiled=False))
    run.advance(2000.0)
    used = dict(zip(work.tenant.names, run.state.use[:, col.U_USED].tolist(), strict=True))
    total = sum(used.values())
    assert total > 0.85 * 14 * 2000
    for name, weight in (("one", 1), ("two", 2), ("four", 4)):
        assert used[name] / total == pytest.approx(weight / 7, rel=0.15), used


@pytest.mark.parametrize("policy", EVERYBODY)
def test_a_large_gang_is_not_starved_by_small_borrowers(policy: str) -> None:
    started = {}
    for reserve_after_s in (600.0, np.inf):
        tree = Tree((Tenant("small"), Tenant("large")), reserve_after_s=reserve_after_s)
        work = _jobs((100.0, "large", 8, 200.0, 1), *[(float(at), "small", 1, 150.0, 1) for at in range(0, 2400, 15)])
        run = Simulation(Experiment(work, cluster_of(tree, NodeGroup(1, 8)), policy, compiled=False))
        run.advance(np.inf)
        started[reserve_after_s] = float(run.state.f[work.gpus == 8, col.FIRST][0])
    assert started[600.0] <= 100 + 600 + 150 + 360  # waiting, then the longest job, and a round
    assert started[np.inf] > 2300, "nothing keeps small jobs off what a large one could use"


class Live:
    """An engine whose jobs come one by one, on one node of 8 GPUs that is shared by a tree."""

    def __init__(self, tree: Tree, policy: str = "srtf") -> None:
        made, context = make_policy(policy), Context()
        made.begin(context)
        rule = made.rule(context)
        cluster = cluster_of(tree, NodeGroup(1, 8))
        placement, speed = parse_placement("consolidated"), np.ones((1, 1, 2))
        self.tables = LiveRows(cluster, placement, rule, speed, costs=StopCosts(np.inf, most_suspended=4), sharing=True)
        self.engine = Engine(self.tables, made, rule)
        self.work = Names(self.tables)

    def tell(self, now_s: float, *events: Event) -> list[tuple[Change, int]]:
        decision = self.engine.step(now_s, events)
        check(self.tables.state)
        return [(item.change, item.row) for item in decision.transitions]

    def come(self, now_s: float, tenant: str, gpus: int, count: int = 1) -> tuple[list[int], list[tuple[Change, int]]]:
        rows = [self.tables.enter(NewJob(gpus, now_s, tenant)) for _ in range(count)]
        self.tables.state.f[rows, col.BELIEF] = 1000.0
        return rows, self.tell(now_s, *(Event(Kind.ARRIVED, row) for row in rows))


@dataclass
class Names:
    """Who is who in the tables."""

    tables: LiveRows

    @property
    def job_id(self) -> list[str]:
        return [f"job{row}" for row in range(len(self.tables))]

    def tenant_of(self, row: int) -> str:
        return self.tables.tenants[int(self.tables.state.i[row, col.TENANT])]

    def asks(self, row: int) -> str:
        return f"{self.tables.state.i[row, col.GPUS]} GPUs"


TWO = Tree((Tenant("owner", guaranteed=4), Tenant("guest")), min_run_s=30.0)


def test_live_borrowed_gpus_are_promised_to_their_owner_and_left_by_the_guest() -> None:
    live = Live(TWO)
    guests, _ = live.come(0.0, "guest", 2, 4)
    (owner,), told = live.come(10.0, "owner", 4)
    assert not told, "guests run for half a minute at least"
    facts = tenant_facts(live.engine, live.work, owner)
    assert facts is not None
    assert (facts.used, facts.guaranteed, facts.reclaiming, facts.next_s) == (0, 4, True, 30.0)
    told = live.tell(30.0)
    assert [change for change, _ in told] == [Change.STOP, Change.STOP, Change.PROMISE]
    assert {row for change, row in told if change == Change.STOP} == set(guests[2:]), "the youngest leave"
    left = [Event(Kind.LEFT, row) for row in guests[2:]]
    assert live.tell(33.0, *left) == [(Change.START, owner)]
    waits = tenant_facts(live.engine, live.work, guests[3])
    assert waits is not None
    assert (waits.limit, waits.used, waits.borrowed) == (4, 4, 4)


def test_live_a_new_tree_holds_from_the_next_decision_on() -> None:
    live = Live(TWO)
    guests, _ = live.come(0.0, "guest", 2, 4)
    assert live.tables.set_tree(TWO.with_(Tenant("guest", ceiling=4)))
    assert live.tell(5.0) == [(Change.STOP, row) for row in reversed(guests[2:])]
    live.tell(6.0, *(Event(Kind.LEFT, row) for row in guests[2:]))
    assert not live.tell(7.0)
    assert live.tables.set_tree(TWO)
    assert sorted(live.tell(8.0)) == sorted((Change.START, row) for row in guests[2:])
    assert not live.tables.set_tree(None), "jobs would have to be told apart in another way"


def test_live_a_policy_that_shares_by_itself_hears_of_a_new_tree_once() -> None:
    live = Live(TWO, "antman")
    live.come(0.0, "guest", 2, 2)
    assert live.tables.set_tree(TWO.with_(Tenant("owner", guaranteed=6)))
    assert live.engine.step(5.0).asked
    assert not live.engine.step(6.0).asked
    assert live.tables.state.quota[live.tables.tenants.index("guest"), col.Q_GUARANTEED] == 0


def test_live_who_starts_for_a_guarantee_is_not_stopped_in_the_same_decision() -> None:
    live = Live(Tree((Tenant("owner", guaranteed=4), Tenant("guest"))))
    live.come(0.0, "owner", 3)
    live.come(0.0, "guest", 1, 4)
    ahead, behind = (live.tables.enter(NewJob(gpus, 100.0, "owner")) for gpus in (4, 1))
    live.tables.state.f[[ahead, behind], col.BELIEF] = 10.0, 100.0
    assert live.tell(100.0, *(Event(Kind.ARRIVED, row) for row in (ahead, behind))) == [(Change.START, behind)]
    stopped = live.tell(101.0, Event(Kind.CHANGED, behind))
    assert (Change.STOP, behind) in stopped
    assert (Change.PROMISE, ahead) in stopped, "the policy's order holds from the next decision on"


@pytest.mark.parametrize("policy", ["gavel", "muri-s", "chronus", AGING])
def test_nobody_is_displaced_in_a_tenant_that_does_not_want_it(policy: str) -> None:
    stops = []
    for preempts in (True, False):
        tree = Tree((Tenant("one", guaranteed=8, preempts=preempts),))
        lines = [(25.0 * at, "one", 1 << at % 3, 2000.0 / (1 + at), 1) for at in range(12)]
        run = play(Experiment(_jobs(*lines), cluster_of(tree, NodeGroup(2, 4)), policy, compiled=False))
        stops.append(int(run.state.i[:, col.PREEMPTS].sum()))
        assert run.state.x[col.N_FINISHED] == len(lines)
    assert stops[1] == 0
    assert stops[0] > 0, "or nothing is shown"


def test_priority_displaces_inside_a_tenant_only() -> None:
    tree = Tree((Tenant("one", guaranteed=4), Tenant("two", guaranteed=4), Tenant("calm", preempts=False)))
    work = _jobs(
        (0.0, "one", 4, 1000.0, 1), (0.0, "two", 2, 1000.0, 2), (10.0, "two", 2, 50.0, 1), (10.0, "one", 4, 5.0, 1)
    )
    run = play(Experiment(work, cluster_of(tree, NodeGroup(2, 4)), "srtf:weigh=false", check_invariants=True))
    assert run.state.i[:, col.PREEMPTS].tolist() == [1, 0, 1, 0, 0]
    calm = replace(tree, tenants=tuple(replace(tenant, preempts=False) for tenant in tree.tenants))
    run = play(Experiment(work, cluster_of(calm, NodeGroup(2, 4)), "srtf:weigh=false", check_invariants=True))
    assert not run.state.i[:, col.PREEMPTS].any()


def test_past_use_counts_against_whoever_borrows() -> None:
    lines = [(0.0, "greedy", 4, 1000.0, 4), (900.0, "modest", 4, 1000.0, 4), (900.0, "greedy", 4, 1000.0, 4)]
    at_once = []
    for half_life_s in (300.0, np.inf):
        tree = Tree((Tenant("greedy"), Tenant("modest")), half_life_s=half_life_s)
        run = play(Experiment(_jobs(*lines), cluster_of(tree, NodeGroup(2, 8)), "backfill", check_invariants=True))
        at_once.append(int((run.state.f[run.work.tenant.code == 1, col.FIRST] == 1000.0).sum()))
    assert at_once == [4, 2], "all GPUs go to who has used none before; or each has half of them"
