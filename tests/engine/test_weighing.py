"""An order's preemption has to gain more than it costs, is never in vain, and says what it was worth."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core import columns as col
from cotenant.core.cluster import Cluster
from cotenant.core.decision import Change, Event, Kind, Transition
from cotenant.core.plan import Places
from cotenant.core.view import Facts
from cotenant.core.workload import Workload
from cotenant.engine.cycle import Engine
from cotenant.engine.events import reheat
from cotenant.engine.invariants import check
from cotenant.engine.live_rows import LiveRows, NewJob
from cotenant.engine.observe import Window
from cotenant.engine.tables import StopCosts
from cotenant.placement.modes import parse_placement
from cotenant.policies import PriorityPolicy, make_policy
from cotenant.policies.base import Context, Policy
from cotenant.sim.driver import Experiment, Simulation, simulate
from cotenant.testing.policy import jobs, random_workload

ORDERS = ("srtf", "srsf", "las:round=30", "tiresias-l:threshold=60,knob=6", "tiresias-g:thresholds=[60]")
COSTS = {
    "restoring": StopCosts(),
    "leaving": StopCosts(save_s=3.0, start_s=4.0),
    "standing still": StopCosts(
        save_s=2.0, start_s=4.0, resume_s=1.0, suspends=True, most_suspended=3, patience_s=20.0
    ),
}


def told(policy: str, work: Workload, cluster: str = "1x1", costs: str = "0", **options: object) -> Simulation:
    run = Simulation(
        Experiment(
            work, Cluster.parse(cluster), policy, costs=costs, transitions=True, compiled=False, skip_infeasible=True,
            check_invariants=True, **options,  # type: ignore[arg-type]
        )
    )  # fmt: skip
    run.advance(inf)
    return run


def tiered(work: Workload, seed: int) -> Workload:
    return replace(work, priority=(np.random.default_rng(seed).random(len(work)) < 0.2).astype(np.int64))


@settings(deadline=None, max_examples=60)
@given(
    long=st.integers(1, 80), short=st.integers(1, 40), at=st.integers(1, 60), start=st.integers(0, 9),
    save=st.integers(0, 5), restore=st.integers(0, 12),
)  # fmt: skip
def test_a_swap_happens_exactly_when_both_finish_sooner_together(
    long: int, short: int, at: int, start: int, save: int, restore: int
) -> None:
    work = jobs((0, 1, long), (at, 1, short))
    options = {"costs": str(restore), "stop_costs": StopCosts(save_s=save, start_s=start)}
    sums = {
        policy: float(told(policy, work, **options).outcome().finish_s.sum())  # type: ignore[arg-type]
        for policy in ("srtf:min_run=0", "srtf:weigh=false", "fifo")
    }
    if at > start:  # before its first step nothing is to be restored, and the rule supposes that it is
        assert sums["srtf:min_run=0"] == min(sums["srtf:weigh=false"], sums["fifo"])
    assert sums["srtf:min_run=0"] <= max(sums["srtf:weigh=false"], sums["fifo"])


@pytest.mark.parametrize("policy", ["srtf", "srsf", "las:round=30", "tiresias-l:threshold=60", "tiresias-g"])
def test_without_costs_it_is_the_order_of_the_books(policy: str) -> None:
    unweighed = policy + ("," if ":" in policy else ":") + "weigh=false"
    for seed in range(4):
        work = tiered(random_workload(seed, 40, 8), seed) if seed % 2 else random_workload(seed, 40, 8)
        one, other = (told(text, work, "2x4", "none") for text in (policy, unweighed))
        assert one.transitions == other.transitions
        assert one.outcome().finish_s.tolist() == other.outcome().finish_s.tolist()


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("policy", ORDERS)
def test_every_stop_gains_more_than_it_costs_and_none_is_in_vain(policy: str, costs: str) -> None:
    stops = 0
    for seed in range(6):
        work = tiered(random_workload(seed, 30, 6, busy_s=90), seed)
        run = told(policy, work, "2x4", "5", stop_costs=COSTS[costs], round_s=30.0)
        found = [item for _, item in run.transitions if item.change in (Change.STOP, Change.SUSPEND)]
        assert [item for item in found if not item.gain_s > item.cost_s - 1e-6] == []
        assert all(item.cost_s >= 3.0 for item in found), "five seconds to restore, or three to fall still and go on"
        summary = run.outcome().summary
        finite = [item for item in found if item.gain_s < inf]
        assert summary.get("weighed_stops", 0) == len(finite)
        if finite:
            assert summary["stop_gain_s"] == pytest.approx(sum(item.gain_s for item in finite))
            assert summary["stop_cost_s"] == pytest.approx(sum(item.cost_s for item in finite))
        assert restarted_for_nothing(run.transitions) == []
        stops += len(found)
    assert stops > 5


def restarted_for_nothing(stream: list[tuple[float, Transition]]) -> list[tuple[float, int]]:
    """Who was stopped by an order and then started on the very GPUs that it had, on which nobody else had run.

    A promise that an owner's priority takes back is the only excuse.
    """
    had: dict[int, Places] = {}
    left: dict[int, tuple[Places, set[tuple[int, int]]]] = {}  # where it ran, and which of those GPUs others have had
    wrong = []
    for at_s, item in stream:
        if item.change in (Change.START, Change.RESUME):
            if item.row in left:
                places, used = left.pop(item.row)
                if item.places == places and not used:
                    wrong.append((at_s, item.row))
            had[item.row] = item.places
            for row, (places, used) in left.items():
                if row != item.row:
                    used |= cells(places) & cells(item.places)
        elif item.change in (Change.STOP, Change.SUSPEND) and item.row in had:
            left[item.row] = had.pop(item.row), set()
        elif item.change == Change.WITHDRAW:
            for _, used in left.values():
                used.add((-1, item.row))
    return wrong


def cells(places: Places) -> set[tuple[int, int]]:
    return {(node, gpu) for node, _, mask in places for gpu in range(mask.bit_length()) if (mask >> gpu) & 1}


def test_a_minimum_run_holds_back_the_order_but_not_a_priority() -> None:
    """Stopping costs 40 s, so the first run is left alone for 40 s, or less where that is the most: 10 by default."""
    work = jobs((0, 1, 500), (5, 1, 5))
    for min_run, starts_s in (("", 10.0), (":min_run=25", 25.0), (":min_run=90", 40.0), (":min_run=0", 5.0)):
        assert told(f"srtf{min_run}", work, costs="40").state.f[1, col.FIRST] == starts_s
    first = replace(work, priority=np.array([0, 1]))
    run = told("srtf", first, costs="40")
    assert run.state.f[1, col.FIRST] == 5.0
    ((_, stop),) = [one for one in run.transitions if one[1].change == Change.STOP]
    assert (stop.gain_s, stop.cost_s) == (inf, 40.0)


def test_a_demotion_counts_when_the_job_has_attained_what_its_stop_costs_on_top() -> None:
    """One GPU, limit 100, 30 s a stop: the long job makes room at 130 s, and gains are what it has attained more."""
    work = jobs((0, 1, 400), (10, 1, 20))
    run = told("tiresias-l:threshold=100", work, costs="30")
    ((at_s, stop),) = [one for one in run.transitions if one[1].change == Change.STOP]
    assert (at_s, stop.gain_s, stop.cost_s) == (130.0, 130.0, 30.0)
    assert run.outcome().finish_s.tolist() == [450.0, 150.0]


def test_what_cannot_be_saved_counts_as_lost() -> None:
    """200 s done of 300, nothing saved: a job of 80 s gains 20 s by going first, and would throw 200 away."""
    for yields, runs in ((2, 1), (0, 0)):
        live = Live(make_policy("srtf:min_run=0"))
        first = live.job(1, 300.0)
        live.tell(0.0, Event(Kind.ARRIVED, first))
        live.tables.state.i[first, col.YIELDS] = yields
        second = live.job(1, 80.0)
        live.tell(200.0, Event(Kind.ARRIVED, second))
        assert live.tables.state.i[second, col.PROMISED] == runs


class Live:
    """An engine whose jobs come one by one, and whose world takes its time."""

    def __init__(self, policy: Policy, cluster: str = "1x1") -> None:
        policy.begin(Context())
        rule, costs = policy.rule(Context()), StopCosts(inf, most_suspended=4, patience_s=5.0)
        placement = parse_placement("consolidated")
        self.tables = LiveRows(Cluster.parse(cluster), placement, rule, np.ones((1, 1, 2)), costs=costs, sharing=True)
        self.engine = Engine(self.tables, policy, rule)
        self.stream: list[tuple[float, Transition]] = []

    def job(self, gpus: int, belief_s: float, priority: float = 0.0) -> int:
        row = self.tables.enter(NewJob(gpus, 0.0, priority=priority))
        self.tables.state.f[row, [col.BELIEF, col.START_UP, col.RESTORE, col.SAVING]] = belief_s, 8.0, 2.0, 1.0
        return row

    def tell(self, now_s: float, *events: Event) -> list[Transition]:
        reheat(self.tables.state)
        decision = self.engine.step(now_s, events)
        check(self.tables.state)
        self.stream += [(now_s, item) for item in decision.transitions]
        return list(decision.transitions)

    def believe(self, now_s: float, row: int, belief_s: float) -> list[Transition]:
        self.tables.state.f[row, col.BELIEF] = belief_s
        return self.tell(now_s, Event(Kind.CHANGED, row))


class Drawn(PriorityPolicy):
    """By what is believed, as NumPy says."""

    def priority(self, view):  # type: ignore[no-untyped-def]
        return view.remaining_s


@pytest.mark.parametrize("policy", ["srtf", "srsf", "numpy"])
def test_who_was_stopped_does_not_take_its_gpus_back_from_whom_they_were_promised(policy: str) -> None:
    """What it says when it saves makes it shorter than the one for whom it has to go."""
    live = Live(Drawn() if policy == "numpy" else make_policy(policy))
    old, new = live.job(1, 500.0), live.job(1, 20.0)
    live.tell(0.0, Event(Kind.ARRIVED, old))
    made = live.tell(90.0, Event(Kind.ARRIVED, new))
    assert [(item.change, item.row) for item in made] == [(Change.STOP, old), (Change.PROMISE, new)]
    assert live.believe(90.5, old, 91.0) == []
    (begun,) = live.tell(91.0, Event(Kind.LEFT, old))
    assert (begun.change, begun.row) == (Change.START, new)


LIVE = ("srtf", "srsf", "las:round=30", "tiresias-l:threshold=60,knob=6", "numpy")


@pytest.mark.parametrize("policy", LIVE)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_whatever_is_believed_nobody_is_stopped_for_nothing(policy: str, data: st.DataObject) -> None:
    """Jobs come, end and are believed to be longer or shorter all the time; leaving takes a while."""
    live = Live(Drawn() if policy == "numpy" else make_policy(policy), "1x3")
    draw, seconds = data.draw, st.integers(1, 400)
    rows = [live.job(draw(st.integers(1, 2)), draw(seconds), draw(st.sampled_from([0, 0, 0, 1]))) for _ in range(8)]
    still = draw(st.sets(st.sampled_from(rows)))
    live.tables.state.i[list(still), col.RUNG] = 1
    coming, leaving, now_s = list(rows), dict[int, float](), 0.0
    for _ in range(40):
        now_s += draw(st.sampled_from([0.0, 1.0, 5.0, 20.0, 60.0]))
        state = live.tables.state
        events = []
        for row in [row for row, at_s in leaving.items() if at_s <= now_s]:
            del leaving[row]
            events.append(Event(Kind.STANDS if state.i[row, col.HOME] >= 0 else Kind.LEFT, row))
        begun = [row for row in rows if state.i[row, col.STATE] == col.RUNNING and not state.i[row, col.PROMISED]]
        what = draw(st.sampled_from(["come", "end", "believe", "wait"]))
        if what == "come" and coming:
            events.append(Event(Kind.ARRIVED, coming.pop(0)))
        elif what == "end" and begun and draw(st.booleans()):
            events.append(Event(Kind.OVER, draw(st.sampled_from(begun))))
        elif what == "believe":
            known = [row for row in rows if state.i[row, col.STATE] in (col.WAITING, col.RUNNING)]
            if known:
                row = draw(st.sampled_from(known))
                state.f[row, col.BELIEF] = state.f[row, col.DONE] + draw(seconds)
                events.append(Event(Kind.CHANGED, row))
        made = live.tell(now_s, *events)
        tiers = {item.row: live.tables.state.f[item.row, col.TIER] for item in made}
        given_ = [tiers[item.row] for item in made if item.change in (Change.PROMISE, Change.START, Change.RESUME)]
        for item in made:
            if item.change == Change.WITHDRAW:
                assert min(given_) < tiers[item.row], "only an owner's priority takes a promise back"
            if item.change in (Change.STOP, Change.SUSPEND, Change.END):
                leaving[item.row] = now_s + draw(st.sampled_from([0.0, 1.0, 7.0, 30.0]))
                assert policy == "numpy" or item.change == Change.END or item.gain_s > item.cost_s - 1e-6
    assert restarted_for_nothing(live.stream) == []
    assert stopped_for_nobody(live.stream) == []


def stopped_for_nobody(stream: list[tuple[float, Transition]]) -> list[float]:
    """Moments at which an order stopped somebody and nobody was given GPUs."""
    moments = {at_s for at_s, item in stream if item.change in (Change.STOP, Change.SUSPEND)}
    given_ = {at_s for at_s, item in stream if item.change in (Change.START, Change.RESUME, Change.PROMISE)}
    return sorted(moments - given_)


def test_who_starts_up_slows_nobody_down() -> None:
    """Two jobs of 100 s on one GPU, 20 s of them start-up: the first is alone until the second has started."""
    work = jobs((0, 1, 100), (0, 1, 100), models=("resnet50", "resnet50"))

    def ends(start_s: float) -> list[float]:
        stop_costs = StopCosts(start_s=start_s)
        options = {"profile": "h200", "stop_costs": stop_costs, "check_invariants": True, "compiled": False}
        cluster, policy = Cluster.parse("1x1:h200"), "sjf-ffs"
        late = replace(work, submit_s=np.array([0.0, 30.0]))
        return simulate(Experiment(late, cluster, policy, **options)).finish_s.tolist()  # type: ignore[arg-type]

    at_once, slowly = ends(0.0), ends(20.0)
    pace = 70.0 / (at_once[0] - 30.0)  # side by side, as long as the first one is there
    assert 0.3 < pace < 0.9
    assert slowly[0] == pytest.approx(50.0 + 70.0 / pace), "30 s of work until 50 s, alone"


def test_a_run_that_stalled_gets_on() -> None:
    """Rounds shorter than restoring: the books' order stops everybody before it has restored."""
    work = jobs(*((0, 1, 400) for _ in range(3)))
    weighed = told("las:round=10", work, costs="60", round_s=10.0)
    assert np.isfinite(weighed.outcome().finish_s).all()
    assert weighed.outcome().preemptions.sum() < 30


def test_policies_see_that_a_stop_costs_a_start_too() -> None:
    run = Simulation(
        Experiment(jobs((0, 1, 50)), Cluster.parse("1x1"), "fifo", costs="6", stop_costs=StopCosts(start_s=4.0))
    )
    assert Window().view(run.state, Facts(), np.arange(1), 0.0).restore_s.tolist() == [10.0]
