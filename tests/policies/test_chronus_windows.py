"""Rooms, windows and plans of Chronus: what is promised fits, wherever jobs are bound to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.core.cluster import Cluster
from cotenant.policies.chronus.admission import Ask, Verdict, admit, earliest_end
from cotenant.policies.chronus.leases import in_words, leases_for
from cotenant.policies.chronus.policy import Chronus
from cotenant.policies.chronus.rooms import Blocks, Slots, open_slots
from cotenant.sim.driver import Experiment, Simulation
from cotenant.testing.policy import jobs


def _blocks(*nodes: int) -> Blocks:
    return Blocks(np.array(nodes), max(nodes))


def test_gangs_are_reserved_as_blocks() -> None:
    assert _blocks(8, 8).reserved(np.array([1, 3, 5, 8, 9, 17])).tolist() == [1, 4, 8, 8, 16, 24]
    assert _blocks(6, 6).reserved(np.array([3, 4, 5, 6, 7])).tolist() == [4, 4, 6, 6, 12]
    assert _blocks(8, 8).alike
    assert not _blocks(8, 4).alike
    assert not _blocks(6, 6).alike


@pytest.mark.parametrize("seed", range(30))
def test_what_a_room_allows_fits_onto_the_nodes(seed: int) -> None:
    """Gangs that a room takes one by one are placed on its nodes, largest first, around those that are bound."""
    draw = np.random.default_rng(seed)
    nodes = draw.choice([2, 4, 6, 8], 3)
    blocks = _blocks(*nodes.tolist())
    slots = Slots.empty(blocks, 0, 1)
    for _ in range(3):
        node, gpus = int(draw.integers(3)), int(draw.integers(1, 4))
        if slots.allows(((node, gpus),), 0, 1):
            slots.bind(((node, gpus),), np.array([0]))
    taken = []
    for _ in range(12):
        gpus = int(draw.integers(1, int(nodes.max()) + 1))
        reserved = int(blocks.reserved(np.array([gpus]))[0])
        level = int(blocks.level(np.array([reserved]))[0])
        if len(open_slots(slots.left(), reserved, level, 1)):
            slots.take(reserved, np.array([0]))
            taken.append(reserved)
    free = slots.free[:, 0].tolist()
    for gang in sorted(taken, reverse=True):
        node = next(k for k, left in enumerate(free) if left >= gang)
        free[node] -= gang
    assert taken


def test_leases_leave_time_for_the_start_of_each() -> None:
    assert leases_for(np.array([10.0]), np.array([15.0]), 20.0).tolist() == [3]
    assert leases_for(np.array([10.0]), np.array([20.0]), 20.0)[0] > 5000
    assert [in_words(seconds) for seconds in (59.2, 119.0, 121.0, 7199.5)] == ["60 s", "119 s", "3 min", "120 min"]


def test_a_refusal_names_what_would_be_promised_in_few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    from cotenant.policies.chronus import admission

    calls, real = [], admission.latest_slots
    monkeypatch.setattr(admission, "latest_slots", lambda *args: calls.append(1) or real(*args))
    free = np.concatenate([np.zeros(900, np.int64), np.full(100, 8)])
    new = Ask(4, 3, (500,))
    answer = admit(free, [], new)
    assert answer.verdict is Verdict.REFUSED
    assert answer.earliest_slot == earliest_end(free, [], new) == 903
    assert len(calls) <= 50
    assert admit(free, [], replace(new, slots=(903,))).promised
    assert not admit(free, [], replace(new, slots=(902,))).promised


@pytest.mark.parametrize("policy", ["chronus", "chronus:spare=best-effort", "chronus:solver=milp,budget=1e9"])
@pytest.mark.parametrize("cluster", ["2x4", "1x8+2x3:b"])
def test_simulated_promises_are_kept(policy: str, cluster: str) -> None:
    """With true beliefs, whatever a restore costs: every step that was promised is met."""
    draw = np.random.default_rng(len(policy) + len(cluster))
    count = 40
    lengths, submits = np.floor(300 * 30 ** draw.random(count)), np.cumsum(draw.integers(0, 1500, count))
    work = jobs(*zip(submits.astype(float), draw.choice([1, 1, 2, 3, 4], count).tolist(), lengths, strict=True))
    work = replace(work, deadline_s=work.submit_s + np.floor(lengths * draw.uniform(1.2, 5, count)) + 1800)
    run = Simulation(Experiment(work, Cluster.parse(cluster), policy, compiled=False))
    told: dict[int, float] = {}
    for now_s in range(0, 200_000, 600):
        run.advance(float(now_s))
        assert isinstance(run.policy, Chronus)
        told |= {row: one.by_s for row, one in run.policy.deadline_answers().items() if one.verdict == "promised"}
    run.advance(np.inf)
    finish_s = run.outcome().finish_s
    assert len(told) >= 15
    assert {row: by_s for row, by_s in told.items() if finish_s[row] > by_s} == {}


def test_the_next_lease_is_spared_while_somebody_without_a_promise_is_here() -> None:
    """`adaptive` looks at who was here during the last lease, not only at who was refused in it."""
    work = jobs((0.0, 4, 20_000.0), (10.0, 1, 60.0))
    work = replace(work, deadline_s=np.array([15_000.0, np.nan]))
    run = Simulation(Experiment(work, Cluster.parse("1x4"), "chronus", costs="none", compiled=False))
    policy = run.policy
    assert isinstance(policy, Chronus)
    seen = []
    for lease in (1, 2, 5):
        run.advance(lease * 1200.0 + 400.0)
        seen.append(policy.timetables.refused)
    assert seen == [True] * 3


def test_a_job_is_looked_at_before_it_is_answered() -> None:
    work = replace(jobs((0.0, 1, 100.0)), deadline_s=np.array([5000.0]))
    run = Simulation(Experiment(work, Cluster.parse("1x4"), "chronus:profiling=90", costs="none", compiled=False))
    run.advance(80.0)
    assert isinstance(run.policy, Chronus)
    assert run.policy.deadline_answers() == {}
    run.advance(95.0)
    assert [one.verdict for one in run.policy.deadline_answers().values()] == ["promised"]
    run.advance(np.inf)
    assert run.outcome().finish_s.tolist() == [190.0]


@pytest.mark.parametrize(("night", "start_s"), [("false", 3600.0), ("true", 8 * 3600.0)])
def test_idle_nodes_sleep_at_night_unless_a_lease_needs_them(night: str, start_s: float) -> None:
    work = jobs((3600.0, 1, 600.0), (3600.0, 1, 600.0))
    work = replace(work, deadline_s=np.array([np.nan, 9000.0]))
    run = Simulation(Experiment(work, Cluster.parse("2x1"), f"chronus:night={night}", costs="none", compiled=False))
    run.advance(np.inf)
    finish_s = run.outcome().finish_s
    assert finish_s[0] == start_s + 600
    assert finish_s[1] <= 9000
