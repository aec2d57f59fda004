"""Policies of rounds on a live service, in a world whose clock moves only when told to."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from service_kit import ADMIN, Rig, play, tell

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.plan import Plan
from cotenant.core.view import View
from cotenant.policies.rounds.rounds import RoundPolicy
from cotenant.policies.rounds.standing import Standing
from cotenant.service.core import CoreService

TYPES = ("v100", "p100", "k80")
NODES = tuple(NodeInfo(f"n-{kind}", kind, 2, 8, 64.0) for kind in TYPES)
POLICY = "gavel:objective=las,walk=global"
SPEEDS = {"even": (1.0, 0.9, 0.8), "steep": (1.0, 0.3, 0.1), "mild": (1.0, 0.7, 0.5), "odd": (0.5, 1.0, 0.25)}
MODELS = ("steep", "mild", "odd", "even", "steep", "mild", "odd", "even")
ROUND_S = 5.0


@pytest.fixture
def profile(tmp_path: Path) -> str:
    lines = [f"{model},{kind},{speed}" for model, own in SPEEDS.items() for kind, speed in zip(TYPES, own, strict=True)]
    path = tmp_path / "speeds.csv"
    path.write_text("model,gpu_type,consolidated\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def rig(tmp_path: Path, profile: str) -> Rig:
    return Rig(tmp_path, POLICY, NODES, max_suspended=0, round_s=ROUND_S, profile=profile, budget_s=60.0)


def received(service: CoreService, jobs: list[str], since_s: float, now_s: float) -> np.ndarray:
    """Jobs x types: fraction of the time since a moment in which each really held GPUs of each type."""
    held = np.zeros((len(jobs), len(TYPES)))
    for at, job in enumerate(jobs):
        for attempt in service.desk.job(ADMIN, job).attempts:
            kind = TYPES.index(attempt.nodes[0][0].removeprefix("n-"))
            if attempt.started_s is not None:
                end_s = now_s if attempt.ended_s is None else attempt.ended_s
                held[at, kind] += max(end_s - max(attempt.started_s, since_s), 0.0)
    return held / (now_s - since_s)


def standing(service: CoreService) -> Standing:
    """Where jobs stood when the last round began, those of the view in order of submission."""
    policy = service.planner.live.policy
    assert isinstance(policy, RoundPolicy)
    assert policy.standing is not None
    assert policy.standing.pool_types == TYPES
    return policy.standing


def targets(service: CoreService) -> np.ndarray:
    return standing(service).target


def test_time_received_converges_to_the_targets(rig: Rig) -> None:
    jobs = [rig.submit("sleep infinity", model=model) for model in MODELS]
    play(rig, 0.5)
    began_s = rig.backend.now_s
    target = targets(rig.service)
    assert target.sum(axis=0) == pytest.approx([2, 2, 2], abs=0.1)
    play(rig, 40 * ROUND_S)
    got = received(rig.service, jobs, began_s, rig.backend.now_s)
    assert abs(got - target).max() < 0.05
    assert targets(rig.service) == pytest.approx(target), "nobody came or went: there was nothing to solve anew"


def test_measured_speeds_replace_what_is_believed_of_types(tmp_path: Path) -> None:
    """Without a profile types are alike; jobs that have run on two of them tell, and a restart does not forget it."""
    rig = Rig(tmp_path, POLICY, NODES[:2], max_suspended=0, round_s=ROUND_S, budget_s=60.0)
    steps = {"steep": {"n-v100": 0.02, "n-p100": 0.1}, "even": {"n-v100": 0.05, "n-p100": 0.05}}
    models = ["steep", "even"] * 3
    jobs = [rig.submit("sleep infinity", model=model) for model in models]
    done = dict.fromkeys(jobs, 0.0)

    def on_fast_gpus() -> tuple[list[float], list[float]]:
        policy = rig.service.planner.live.policy
        assert isinstance(policy, RoundPolicy)
        assert policy.standing is not None
        return tuple(policy.standing.target[at::2, 0].tolist() for at in (0, 1))

    play(rig, 0.5)
    steep, even = on_fast_gpus()
    assert steep == pytest.approx(even)
    for _ in range(80):
        play(rig, 0.5)
        for job, model in zip(jobs, models, strict=True):
            if rig.state(job) == "running":
                step_s = steps[model][rig.service.store.book.jobs[job].last.gpus[0][0]]
                done[job] += 0.5 / step_s
                tell(rig, job, int(done[job]), step_s)
    for restarted in (False, True):
        if restarted:
            rig.restart()
        play(rig, 1.5 * ROUND_S)
        steep, even = on_fast_gpus()
        assert min(steep) > max(even) + 0.2, "who gains from fast GPUs has them"


def test_a_job_that_is_chosen_again_is_not_restarted(rig: Rig) -> None:
    stay = [rig.submit("sleep infinity", gpus=f"{kind}:2") for kind in ("v100", "p100")]
    swap = [rig.submit("sleep infinity", gpus="k80:2") for _ in range(2)]
    play(rig, 10.5 * ROUND_S)
    assert rig.attempts(*stay) == [1, 1]
    assert rig.attempts(*swap) == [pytest.approx(5.5, abs=1)] * 2


def test_nothing_is_asked_between_rounds_when_nothing_happens(rig: Rig) -> None:
    for model in MODELS:
        rig.submit("sleep infinity", model=model)
    play(rig, 2.5 * ROUND_S)
    before = rig.service.admin.metrics()["cotenant_decisions_total"]
    until_s = standing(rig.service).next_s
    while rig.backend.now_s + rig.service.tick() < until_s - 1e-6:
        rig.backend.advance(0.3)
    assert rig.service.admin.metrics()["cotenant_decisions_total"] - before <= 1


def test_gpus_that_fall_idle_go_to_who_waits_at_once(rig: Rig) -> None:
    rig.submit("sleep 2", gpus=2)
    jobs = [rig.submit("sleep infinity", gpus=2) for _ in range(3)]
    play(rig, 0.8 * ROUND_S)
    assert sorted(map(rig.state, jobs)) == ["running"] * 3


def test_a_promised_job_gets_its_gpus_when_the_deaf_leave(rig: Rig) -> None:
    """GPUs that one job is about to give back go to the one they were promised, not to who is older."""
    deaf = [rig.submit("trap '' TERM; sleep infinity", gpus=2, model=model) for model in ("even", "steep", "mild")]
    play(rig, 1.0)
    late = rig.submit("sleep infinity", gpus=2, model="odd")
    seen = False
    for _ in range(400):
        play(rig, 0.2)
        why = rig.service.desk.why(ADMIN, late)
        seen |= "as soon as others have given them back" in why["text"]
        if rig.state(late) == "running":
            break
    assert seen
    assert rig.state(late) == "running"
    assert sum(rig.attempts(*deaf)) >= 3
    kinds = [record.kind for record in rig.service.store.story(late)]
    assert kinds[: kinds.index("launch")].count("promise") == 1, "promised once, and kept"


def test_why_tells_targets_received_and_the_next_round(rig: Rig) -> None:
    jobs = [rig.submit("sleep infinity", model="steep") for _ in range(8)]
    play(rig, 4.4 * ROUND_S)
    waiting = next(job for job in jobs if rig.state(job) == "pending")
    reason = rig.service.desk.why(ADMIN, waiting)
    assert reason["cause"] == "held back by policy"
    assert "target 0." in reason["text"]
    assert " of v100" in reason["text"]
    assert "received 0." in reason["text"]
    assert "next round at " in reason["text"]
    new = rig.submit("sleep infinity")
    assert "cause" in rig.service.desk.why(ADMIN, new), "before any decision knew it"
    play(rig, 0.1)
    assert "owed " in reason["text"] or "ahead of its share" in reason["text"]
    assert "came after the last round began" in rig.service.desk.why(ADMIN, new)["text"]


def test_a_gpu_type_can_be_asked_for(rig: Rig) -> None:
    with pytest.raises(InputError, match="asks for type 'h200'; there is v100"):
        rig.submit(gpus="h200:1")
    with pytest.raises(InputError, match="the largest pool has 2 of type 'k80'"):
        rig.submit(gpus="k80:3")
    jobs = [rig.submit("sleep infinity", gpus="k80:1") for _ in range(3)]
    play(rig, 4 * ROUND_S)
    nodes = {attempt.nodes[0][0] for job in jobs for attempt in rig.service.desk.job(ADMIN, job).attempts}
    assert nodes == {"n-k80"}
    assert sorted(map(rig.state, jobs)) == ["pending", "running", "running"]


@pytest.mark.parametrize("policy", ["allox", "gandiva-packing", "gavel:objective=fifo", "gavel:objective=ftf"])
def test_other_policies_of_rounds_bring_jobs_to_their_end(tmp_path: Path, profile: str, policy: str) -> None:
    rig = Rig(tmp_path, policy, NODES, round_s=ROUND_S, profile=profile, budget_s=60.0)
    jobs = [rig.submit(f"sleep {3 + k}", gpus=1 + k % 2, model=MODELS[k], expected=3 + k) for k in range(8)]
    fixed = rig.submit("sleep 20", gpus="v100:2", preemptible=False)
    rig.finish()
    assert [rig.state(job) for job in [*jobs, fixed]] == ["succeeded"] * 9
    assert rig.attempts(fixed) == [1]


def test_suspended_jobs_take_part(tmp_path: Path, profile: str) -> None:
    """Jobs that cannot be asked are suspended at a round's end and go on, or start again on another type."""
    rig = Rig(tmp_path, "gavel", NODES, round_s=ROUND_S, profile=profile, budget_s=60.0)
    jobs = [rig.submit("sleep 30", model=model) for model in MODELS]
    rig.finish()
    assert [rig.state(job) for job in jobs] == ["succeeded"] * 8


def test_another_policy_starts_a_fresh_history(rig: Rig) -> None:
    for model in MODELS:
        rig.submit("sleep infinity", model=model)
    play(rig, 3 * ROUND_S)
    kept = rig.service.planner.live.policy
    play(rig, 3 * ROUND_S)
    assert rig.service.planner.live.policy is kept
    assert standing(rig.service).received_s.max() > ROUND_S
    rig.service.admin.set_policy(ADMIN, "fifo")
    play(rig, 1.0)
    waiting = next(job for job in rig.service.store.book.jobs if rig.state(job) == "pending")
    assert "of 2 waiting" in rig.service.desk.why(ADMIN, waiting)["text"]
    assert "policy" not in rig.service.store.book.memory
    rig.service.admin.set_policy(ADMIN, POLICY)
    play(rig, 0.1)
    assert standing(rig.service).received_s.max() == 0.0


def test_what_jobs_were_promised_and_have_had_survives_a_crash(rig: Rig) -> None:
    """Targets, time received and what is owed from before are those of the last round; nothing is solved anew."""
    jobs = [rig.submit("sleep infinity", model=model) for model in MODELS]
    play(rig, 0.5)
    began_s = rig.backend.now_s
    play(rig, 3 * ROUND_S)
    late = rig.submit("sleep infinity", model="even")  # owed something from before the last solve
    play(rig, 5.2 * ROUND_S)
    before, records = standing(rig.service), rig.service.store.journal.last_seq
    rig.restart()
    play(rig, 0.1)
    after = standing(rig.service)
    assert after.solved_s == before.solved_s
    assert after.next_s == before.next_s
    for one, two in ((after.target, before.target), (after.received_s, before.received_s)):
        assert one == pytest.approx(two, abs=1e-5)
    assert after.deficit_s == pytest.approx(before.deficit_s, abs=1e-5)
    assert rig.service.store.journal.last_seq == records, "and nobody was moved"
    play(rig, 40 * ROUND_S)
    assert targets(rig.service) == pytest.approx(before.target, abs=1e-5)
    got = received(rig.service, [*jobs, late], before.solved_s, rig.backend.now_s)
    assert abs(got - before.target).max() < 0.1
    assert began_s < before.solved_s


@pytest.mark.parametrize("policy", ["allox", "gandiva-packing", "gavel:objective=ftf"])
def test_other_policies_of_rounds_go_on_after_a_crash(tmp_path: Path, profile: str, policy: str) -> None:
    rig = Rig(tmp_path, policy, NODES, round_s=ROUND_S, profile=profile, budget_s=60.0)
    jobs = [rig.submit(f"sleep {30 + k}", model=MODELS[k], expected=30 + k) for k in range(8)]
    play(rig, 2.3 * ROUND_S)
    before = standing(rig.service)
    rig.restart()
    play(rig, 0.1)
    assert standing(rig.service).target == pytest.approx(before.target, abs=1e-5)
    rig.finish()
    assert [rig.state(job) for job in jobs] == ["succeeded"] * 8


def test_what_is_remembered_is_written_once_per_round(rig: Rig) -> None:
    for model in MODELS:
        rig.submit("sleep infinity", model=model)
    play(rig, 10 * ROUND_S)
    written = [row for row in rig.store.rows if row[2] == "memory"]
    assert 8 <= len(written) <= 12


def test_lost_and_drained_nodes_keep_the_pools_in_place(rig: Rig) -> None:
    jobs = [rig.submit("sleep infinity", model=model) for model in MODELS]
    play(rig, 2 * ROUND_S)
    rig.backend.set_node("n-v100", up=False)
    play(rig, 2 * ROUND_S)
    assert targets(rig.service).sum(axis=0) == pytest.approx([0, 2, 2], abs=1e-3)
    assert sum(rig.state(job) == "running" for job in jobs) == 4
    rig.backend.set_node("n-v100", up=True)
    rig.service.admin.drain(ADMIN, "n-k80")
    play(rig, 3 * ROUND_S)
    assert targets(rig.service).sum(axis=0) == pytest.approx([2, 2, 0], abs=1e-3)


def test_a_policy_that_thinks_long_is_never_asked_twice_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """When time is up the last plan stays; the answer that comes late is taken before the next question."""
    jobs = [rig.submit("sleep infinity", model=model) for model in MODELS]
    play(rig, 2 * ROUND_S)
    policy, budget = rig.service.planner.live.policy, rig.service.planner.live.budget
    assert isinstance(policy, RoundPolicy)
    budget.seconds = 0.0
    go_on, inside, most = threading.Event(), [0], [0]
    decide = policy.decide

    def slow(view: View) -> Plan:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        go_on.wait(30)
        plan = decide(view)
        inside[0] -= 1
        return plan

    monkeypatch.setattr(policy, "decide", slow)
    running = {job for job in jobs if rig.state(job) == "running"}
    play(rig, 3 * ROUND_S)
    assert {job for job in jobs if rig.state(job) == "running"} == running, "the last good plan stays"
    assert rig.service.admin.metrics()["cotenant_decision_timeouts_total"] > 1
    go_on.set()
    budget.seconds = 30.0
    tries = sum(rig.attempts(*jobs))
    play(rig, 4 * ROUND_S)
    assert sum(rig.attempts(*jobs)) > tries
    assert most[0] == 1


@pytest.mark.slow
def test_what_if_leaves_the_live_policy_alone(rig: Rig) -> None:
    for model in MODELS:
        rig.submit("sleep infinity", model=model, expected=40)
    play(rig, 2 * ROUND_S)
    before = targets(rig.service)
    finish = rig.service.desk.whatif(ADMIN, ["fifo", "allox"])
    assert all(row["fifo"] and row["allox"] for row in finish["jobs"])
    assert all(row[POLICY] is None for row in finish["jobs"])  # they cannot save, and begin anew at every round
    play(rig, 2 * ROUND_S)
    assert targets(rig.service) == pytest.approx(before)
