"""What the planner is asked by people, and how long it may take."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from cotenant.service.planner.live import Verdict
from cotenant.service.planner.rows import MOST, SUBMITTED, Row, Rows
from service_kit import ADMIN, Rig

from cotenant.policies.base import PriorityPolicy
from cotenant.service.planner.budget import Budget


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


class _Slow(PriorityPolicy):
    """Waits until it is told to go on."""

    name = "slow-test"
    go = threading.Event()

    def priority(self, view):  # type: ignore[no-untyped-def]
        self.go.wait(20)
        return np.zeros(len(view.rows))


def test_a_slow_policy_does_not_hold_the_service_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, budget_s=0.01)
    job = rig.submit("sleep 5")
    monkeypatch.setattr("cotenant.service.planner.live.make_policy", lambda name: _Slow())
    _Slow.go.clear()
    rig.service.tick()
    rig.service.tick()
    assert rig.state(job) == "pending"
    assert rig.service.admin.metrics()["cotenant_decision_timeouts_total"] == 2
    rig.service._budget.seconds = 20
    _Slow.go.set()
    rig.finish()
    assert rig.state(job) == "succeeded"


def test_the_budget_hands_over_late_answers_and_errors() -> None:
    gate, answer = threading.Event(), Verdict(stops=["1"])

    def think() -> Verdict:
        gate.wait(20)
        return answer

    budget = Budget(0.0)
    assert budget.decide(think) is None
    assert budget.decide(lambda: Verdict()) is None
    gate.set()
    budget.seconds = 20
    assert budget.decide(lambda: Verdict()) is answer
    with pytest.raises(ZeroDivisionError):
        budget.decide(lambda: 1 / 0)  # type: ignore[arg-type, return-value]


def test_rows_keep_the_order_of_submission_through_holes() -> None:
    rows, chance = Rows(), np.random.default_rng(1)
    alive: dict[str, int] = {}
    for order in range(5000):
        rows.put(order, Row(f"j{order}", "t", 1, (float(order),) * (MOST + 1)))
        alive[f"j{order}"] = order
        if chance.random() < 0.9:
            gone = next(iter(alive))
            rows.drop(gone)
            back = alive.pop(gone)
            if chance.random() < 0.1:  # preempted and back in the queue
                rows.put(back, Row(gone, "t", 1, (float(back),) * (MOST + 1)))
                alive[gone] = back
    columns = rows.columns(0.0, [("j4999", ((0, 1),))])
    assert columns.ids.tolist() == sorted(alive, key=alive.__getitem__)
    assert columns.of(SUBMITTED).tolist() == sorted(map(float, alive.values()))
    assert columns.ids[columns.running[0]] == "j4999"


def test_in_a_long_queue_many_questions_share_tables(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.planner.answers.LONG_QUEUE", 0)
    rig.submit("sleep 100", gpus=4)
    rig.ticks(1)
    one, two = rig.submit(gpus=4), rig.submit(gpus=4)
    assert rig.service.desk.why(ADMIN, two)["position"] == 2
    rig.service.desk.cancel(ADMIN, one)
    assert rig.service.desk.why(ADMIN, two)["position"] == 2, "an answer may be two seconds old"
    assert rig.service.desk.why(ADMIN, one)["cause"] == "cancelled", "but a job's own state is never old"
    rig.backend.advance(1.5)
    rig.service.tick()
    tables = rig.service.planner._explained[0]
    assert rig.service.desk.why(ADMIN, two)["position"] == 1, "the scheduler's thread has renewed the tables"
    assert rig.service.planner._explained[0] is tables
    rig.backend.advance(100)
    rig.service.tick()
    assert rig.service.planner._explained[0] is None, "nobody has asked for a minute"
