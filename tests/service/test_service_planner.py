"""How long the planner may take, what it says of its decisions, and what it writes down."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from service_kit import ADMIN, Rig, play

import effort
from cotenant.backends.base import NodeInfo
from cotenant.core.decision import Decision
from cotenant.core.view import View
from cotenant.policies.base import PriorityPolicy
from cotenant.service.planner.budget import Budget
from cotenant.service.planner.nodes import MOST_GPUS, NodeNumbers


class _Slow(PriorityPolicy):
    """Waits until it is told to go on."""

    name = "slow-test"
    go = threading.Event()

    def priority(self, view: View) -> np.ndarray:
        self.go.wait(20)
        return np.zeros(len(view.rows))


def test_a_slow_policy_does_not_hold_the_service_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, budget_s=0.01)
    job = rig.submit("sleep 5")
    monkeypatch.setattr("cotenant.service.planner.session.make_policy", lambda name: _Slow())
    _Slow.go.clear()
    rig.service.tick()
    rig.service.tick()
    assert rig.state(job) == "pending"
    assert rig.service.desk.why(ADMIN, job)["text"] == "the next decision comes at once"
    assert rig.service.admin.metrics()["cotenant_decision_timeouts_total"] == 2
    rig.service.planner.live.budget.seconds = 20
    _Slow.go.set()
    rig.finish()
    assert rig.state(job) == "succeeded"


def test_the_answer_of_a_policy_that_was_replaced_meanwhile_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, "srtf", budget_s=0.01)
    with monkeypatch.context() as slow:
        slow.setattr("cotenant.service.planner.session.make_policy", lambda name: _Slow())
        _Slow.go.clear()
        job = rig.submit("sleep 5")
        rig.service.tick()
    rig.service.admin.set_policy(ADMIN, "fifo")
    rig.service.planner.live.budget.seconds = 20
    _Slow.go.set()
    rig.service.tick()
    assert rig.state(job) == "pending"
    rig.finish()
    assert rig.state(job) == "succeeded"


def test_an_answer_that_comes_after_a_new_beginning_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are those of other tables."""
    rig = Rig(tmp_path, budget_s=0.01)
    gone, job = rig.submit("sleep 5"), rig.submit("sleep 5")
    monkeypatch.setattr("cotenant.service.planner.session.make_policy", lambda name: _Slow())
    _Slow.go.clear()
    rig.service.tick()
    assert rig.service.planner.live.busy
    rig.service.desk.cancel(ADMIN, gone)
    rig.service.planner.begin_anew()
    rig.service.tick()
    assert rig.service.planner.live.name_of(0) == job
    rig.service.planner.live.budget.seconds = 20
    _Slow.go.set()
    rig.finish()
    assert (rig.state(gone), rig.state(job)) == ("cancelled", "succeeded")


def test_the_budget_hands_over_late_answers_and_errors() -> None:
    gate, answer = threading.Event(), Decision(1.0)

    def think() -> Decision:
        gate.wait(20)
        return answer

    budget = Budget(0.0)
    assert budget.decide(think) is None
    assert budget.busy
    assert budget.decide(lambda: Decision(2.0)) is None
    gate.set()
    budget.seconds = 20
    assert budget.decide(lambda: Decision(3.0)) is answer
    assert not budget.busy
    with pytest.raises(ZeroDivisionError):
        budget.decide(lambda: 1 / 0)  # type: ignore[arg-type, return-value]


def test_nodes_and_gpus_have_numbers_and_names() -> None:
    nodes = [NodeInfo("b0", "b", 2, 8, 64.0), NodeInfo("a0", "a", 130, 8, 64.0), NodeInfo("b1", "b", 1, 8, 64.0)]
    numbers = NodeNumbers(nodes)
    assert numbers.types == ("b", "a")
    assert [numbers.numbers(name) for name in ("b0", "b1", "a0", "c")] == [[0], [1], [2, 3, 4], ()]
    gpus = (("b0", (1,)), ("a0", (0, MOST_GPUS - 1, MOST_GPUS, 129)))
    assert numbers.places(gpus) == ((0, 1, 2), (2, 2, 1 | 1 << (MOST_GPUS - 1)), (3, 1, 1), (4, 1, 1 << 9))
    assert numbers.gpus(numbers.places(gpus)) == gpus
    assert numbers.places((("gone", (0,)),)) == ()
    assert NodeNumbers.shape_of(nodes) == NodeNumbers.shape_of(reversed(nodes))


def test_questions_change_nothing(tmp_path: Path) -> None:
    """`why` and `whatif` decide nothing: what is journaled is the same with and without them."""
    stories = []
    for asks in (False, True):
        rig = Rig(tmp_path, "tiresias-l:threshold=60")
        jobs = [rig.submit("sleep 30", gpus=1 + k % 4, expected=30 + k) for k in range(8)]
        for turn in range(12):
            play(rig, 7.0)
            for job in jobs if asks else ():
                rig.service.desk.why(ADMIN, job)
            if asks and turn in effort.some(range(12)):
                rig.service.desk.whatif(ADMIN, ["srtf"])
        rig.finish()
        stories.append([(row[2], row[3]) for row in rig.store.rows])
    assert stories[0] == stories[1]


def test_promotions_survive_a_crash(tmp_path: Path) -> None:
    """What a starved job had attained does not count against it any more, whoever asks and whenever."""
    rig = Rig(tmp_path, "tiresias-l:threshold=4,knob=1,weigh=false", max_suspended=0)
    rig.submit("sleep 1000", gpus=4)
    rig.submit("sleep 1000", gpus=4)
    promoted: dict[str, float] = {}
    for _ in range(200):
        play(rig, 1.0)
        promoted = rig.service.store.book.memory.get("promoted", {})
        if promoted:
            break
    assert promoted
    stopped = sum(rig.attempts(*rig.service.store.book.jobs))
    rig.restart()
    play(rig, 0.1)
    assert rig.service.store.book.memory["promoted"] == promoted
    assert sum(rig.attempts(*rig.service.store.book.jobs)) == stopped, "the order is as it was"


def test_an_order_journals_what_a_stop_gains_and_costs(tmp_path: Path) -> None:
    """Who has just started is left alone; later it makes room, for one who needs its GPUs far shorter."""
    rig = Rig(tmp_path, "srtf", max_suspended=0)
    long = rig.submit("sleep 500", gpus=4, expected=500)
    rig.ticks(1)
    rig.submit("sleep 20", gpus=4, expected=20)
    rig.ticks(2)
    assert rig.state(long) == "running"
    rig.ticks(30)
    (stop,) = [event for event in rig.service.desk.events(ADMIN, long) if event.kind == "stop"]
    assert stop.data["gain_s"] > stop.data["cost_s"] > 0
    assert stop.data["gain_s"] < 480
    rig.finish()
