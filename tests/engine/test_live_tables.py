"""What the world tells of live jobs, taken into the tables: jobs that stand still, and sizes that nobody asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Change, Event, Kind, Transition
from cotenant.core.plan import Plan
from cotenant.core.tenants import Tree
from cotenant.engine.cycle import Engine
from cotenant.engine.easy import first_short
from cotenant.engine.invariants import check
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.plans import carry_out_plan
from cotenant.engine.pools import carry_out_pools
from cotenant.engine.tables import StopCosts
from cotenant.engine.turns import go_off
from cotenant.placement.modes import parse_placement
from cotenant.policies import make_policy
from cotenant.policies.base import Context

COSTS = StopCosts(np.inf, most_suspended=4, patience_s=5.0)


class Live:
    """An engine whose jobs come one by one."""

    def __init__(self, policy: str, cluster: str, tenants: Tree | None = None) -> None:
        made, context = make_policy(policy), Context()
        made.begin(context)
        rule = made.rule(context)
        placement = parse_placement("consolidated")
        shared = replace(Cluster.parse(cluster), tenants=tenants)
        self.tables = LiveRows(shared, placement, rule, np.ones((1, 1, 2)), costs=COSTS, sharing=True)
        self.engine = Engine(self.tables, made, rule)

    def job(self, gpus: int, belief_s: float = 100.0, tenant: str = "") -> int:
        row = self.tables.enter(NewJob(gpus, 0.0, tenant))
        self.tables.state.f[row, col.BELIEF] = belief_s
        return row

    def tell(self, now_s: float, *events: Event) -> list[Transition]:
        decision = self.engine.step(now_s, events)
        check(self.tables.state)
        return list(decision.transitions)

    def size(self, row: int) -> int:
        return int(self.tables.state.i[row, col.GPUS])

    def status(self, row: int) -> int:
        return int(self.tables.state.i[row, col.STATE])


def arrived(row: int) -> Event:
    return Event(Kind.ARRIVED, row)


def test_backfill_does_not_start_a_job_that_stood_still_a_second_time() -> None:
    live = Live("easy", "1x4")
    short = live.job(1, 5.0)
    told = live.tell(0.0, arrived(short), Event(Kind.ADOPTED_STILL, short, ((0, 1, 1),)))
    assert [(item.change, item.row) for item in told] == [(Change.RESUME, short)]
    runs, head, behind = live.job(2), live.job(4), live.job(1, 1000.0)
    told = live.tell(1.0, arrived(runs), arrived(head), arrived(behind))
    assert [item.row for item in told] == [runs], "one GPU is idle, but the long job would delay the head"


def test_backfill_finds_a_job_again_that_was_ended_where_it_stood() -> None:
    live = Live("easy", "1x4")
    there, short = live.job(1), live.job(1, 5.0)
    live.tell(0.0, arrived(there))
    told = live.tell(1.0, arrived(short), Event(Kind.ADOPTED_STILL, short, ((0, 1, 1),)))
    assert not told, "another has its GPU, and it has lost nothing by waiting yet"
    live.engine.observe(2.0, [])
    assert [(item.change, item.row) for item in live.engine.transitions()] == [(Change.END, short)]
    state = live.tables.state
    assert first_short(state, int(state.i[short, col.CLASS]), 10.0) == short


def test_backfill_does_not_start_a_job_twice_that_waits_for_others_to_leave() -> None:
    live = Live("easy", "1x4")
    leaves, full = live.job(1), live.job(3)
    live.tell(0.0, arrived(leaves), arrived(full))
    promised = live.job(1)
    (told,) = live.tell(1.0, Event(Kind.WITHDRAWN, leaves), arrived(promised))
    assert (told.change, told.row) == (Change.PROMISE, promised)
    head, long, short = live.job(4), live.job(1, 1000.0), live.job(1, 50.0)
    told = live.tell(2.0, Event(Kind.OVER, full), arrived(head), arrived(long), arrived(short))
    assert [item.row for item in told] == [short], "the head begins when the promised job is believed to end"


@pytest.mark.parametrize("policy", ["fifo", "backfill", "easy", "srtf", "sjf"])
@pytest.mark.parametrize(("asked", "stands"), [(2, 1), (1, 2), (3, 1)])
def test_a_job_that_stands_still_goes_on_with_the_size_it_has(policy: str, asked: int, stands: int) -> None:
    live = Live(policy, "1x4")
    job = live.job(asked)
    (told,) = live.tell(0.0, arrived(job), Event(Kind.ADOPTED_STILL, job, ((0, stands, (1 << stands) - 1),)))
    assert (told.change, sum(gpus for _, gpus, _ in told.places)) == (Change.RESUME, stands)
    (told,) = live.tell(1.0, Event(Kind.AGAIN, job))
    assert (told.change, sum(gpus for _, gpus, _ in told.places)) == (Change.START, asked)


def test_a_job_ended_where_it_stood_asks_for_its_own_size() -> None:
    live = Live("fifo", "1x4")
    full, job = live.job(4), live.job(2)
    live.tell(0.0, arrived(full))
    live.tell(1.0, arrived(job), Event(Kind.ADOPTED_STILL, job, ((0, 1, 1),)))
    assert live.size(job) == 1
    live.tell(2.0, Event(Kind.AGAIN, job))
    assert live.size(job) == 2


def adopted(live: Live, asked: int, place: tuple[int, int, int]) -> int:
    """A job that runs with another size than it asks for."""
    row = live.job(asked)
    live.engine.observe(0.0, [arrived(row), Event(Kind.ADOPTED, row, (place,), since_s=0.0)])
    return row


def test_a_guest_of_another_size_than_it_asks_for_joins_nobody() -> None:
    live = Live("gavel:sharing=true", "1x4")
    guest = adopted(live, 2, (0, 1, 1))
    host = live.job(1)
    live.engine.observe(0.0, [arrived(host)])
    state, rows, pools = live.tables.state, np.array([host, guest]), np.zeros(2, np.int64)
    mark = np.zeros(len(state.f), np.int64)
    assert carry_out_pools(state, live.engine.rule, rows, pools, np.array([-1, host]), mark, 0.0) == 1
    check(state)
    assert live.status(host) == col.RUNNING


def test_a_plan_does_not_carry_a_size_elsewhere_that_nobody_asked_for() -> None:
    live = Live("horus", "2x4")
    job = adopted(live, 2, (0, 1, 1))
    view = live.engine.view(0.0)
    carry_out_plan(live.tables.state, live.engine.rule, Plan(run={job: ((0, 1, 1),)}), view, "kept", 0.0)
    assert (live.status(job), live.size(job)) == (col.RUNNING, 1)
    carry_out_plan(live.tables.state, live.engine.rule, Plan(run={job: ((1, 1, 1),)}), view, "moved", 0.0)
    check(live.tables.state)
    assert (live.status(job), live.size(job)) == (col.WAITING, 2)


def test_of_two_that_stand_still_on_one_gpu_only_the_one_planned_there_goes_on() -> None:
    live = Live("ones", "1x4")
    one, two = live.job(1), live.job(1)
    still = [Event(Kind.ADOPTED_STILL, row, ((0, 1, 1),)) for row in (one, two)]
    live.engine.observe(0.0, [arrived(one), arrived(two), *still])
    plan = Plan(run={one: ((0, 1, 2),), two: ((0, 1, 1),)})
    carry_out_plan(live.tables.state, live.engine.rule, plan, live.engine.view(0.0), "both", 0.0)
    check(live.tables.state)
    assert (live.status(one), live.status(two)) == (col.WAITING, col.RUNNING)


@pytest.mark.parametrize(("ways", "size"), [(1, 1), (2, 2)])
def test_a_job_whose_turn_is_over_has_its_size_again_only_where_it_stands(ways: int, size: int) -> None:
    live = Live("gandiva", "1x4")
    job = adopted(live, 2, (0, 1, 1))
    live.tables.state.i[job, col.YIELDS] = ways
    go_off(live.tables.state, live.engine.rule, job, 1.0)
    check(live.tables.state)
    assert (live.size(job), live.status(job)) == (size, col.RUNNING if size == 1 else col.WAITING)
