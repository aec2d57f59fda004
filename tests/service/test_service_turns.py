"""What a service that was restarted, or given another policy, makes of turns, terms and promises."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_session import promises_of, terms_of
from service_kit import ADMIN, Rig, plan_rig, play, states, tell

from cotenant.backends.base import NodeInfo

TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),)
FOUR = (NodeInfo("n0", "gpu", 4, 8, 64.0, gpu_mem_gib=80.0),)
GANDIVA = "gandiva:packing=false,migration=false,quantum=10"


def _turns(home: Path) -> tuple[Rig, list[str], list[str]]:
    """Two GPUs, two jobs on each: the older one of the second waits for its turn, and the younger one of the first.

    Gandiva would place those two anew the other way round.
    """
    rig = plan_rig(home, GANDIVA, TWO)
    jobs = [rig.submit("sleep 40", model=model, expected=40) for model in ("bert", "gpt2")]
    play(rig, 2)
    jobs.append(rig.submit("sleep 40", model="lstm", expected=40))
    play(rig, 12)
    jobs.append(rig.submit("sleep 40", model="recsys", expected=40))
    play(rig, 8)
    assert states(rig, jobs) == ["running", "suspended", "suspended", "running"]
    return rig, jobs, jobs[1:3]


def test_after_a_restart_turns_go_on_where_they_were(tmp_path: Path) -> None:
    """The policy has forgotten who waits on which GPU; who does loses nothing of his work."""
    rig, jobs, waits = _turns(tmp_path)
    rig.restart()
    play(rig, 1)
    promised = promises_of(rig.service)
    assert [promised[job] for job in waits] == [(("n0", (1,)),), (("n0", (0,)),)]
    rig.finish()
    assert states(rig, jobs) == ["succeeded"] * 4
    assert [len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs] == [1] * 4


def test_a_job_held_during_its_wait_comes_back_to_its_gpus(tmp_path: Path) -> None:
    rig, _, waits = _turns(tmp_path)
    rig.service.desk.hold(ADMIN, waits[0])
    play(rig, 5)
    assert rig.state(waits[0]) == "suspended"
    rig.service.desk.resume(ADMIN, waits[0])
    rig.finish()
    assert len(rig.service.desk.job(ADMIN, waits[0]).attempts) == 1


def test_nobody_begins_anew_at_every_turn(tmp_path: Path) -> None:
    """Where nothing can be suspended and jobs do not save, the second waits for the end of the first."""
    rig = plan_rig(tmp_path, "gandiva:packing=false,quantum=5", max_suspended=0)
    jobs = [rig.submit("sleep 30", model=model, expected=30) for model in ("gpt2", "bert")]
    rig.finish(200)
    assert states(rig, jobs) == ["succeeded"] * 2
    assert [len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs] == [1, 1]


def test_a_pair_of_another_policy_takes_turns_under_gandiva(tmp_path: Path) -> None:
    rig = plan_rig(tmp_path, "sjf-bsbf")
    jobs = []
    for seconds, model in ((90, "lstm"), (60, "recsys")):
        jobs.append(rig.submit(f"sleep {seconds}", model=model, expected=seconds))
        play(rig, 2)
    assert states(rig, jobs) == ["running"] * 2
    rig.service.admin.set_policy(ADMIN, GANDIVA)
    play(rig, 1)
    for _ in range(30):
        assert sorted(states(rig, jobs)) != ["running"] * 2
        play(rig, 1)
    rig.finish()
    assert [len(rig.service.desk.job(ADMIN, job).attempts) for job in jobs] == [1, 1]


@pytest.mark.parametrize("policy", ["sjf-bsbf", "antman", "horus"])
def test_a_suspended_job_goes_on_where_it_is_under_a_policy_that_names_others(tmp_path: Path, policy: str) -> None:
    """The policy would have it on the first GPU; its own one is free as well."""
    rig = plan_rig(tmp_path, "srtf", FOUR)
    others = [rig.submit("sleep 300", gpus=1, expected=300, preemptible=False) for _ in range(3)]
    mine = rig.submit("sleep 60", gpus=1, expected=60)
    play(rig, 20)
    place = rig.service.store.book.jobs[mine].last.gpus
    quick = rig.submit("sleep 5", gpus=1, expected=5)
    play(rig, 2)
    assert states(rig, [mine, quick]) == ["suspended", "running"]
    rig.service.desk.cancel(ADMIN, others[0])
    rig.service.admin.set_policy(ADMIN, policy)
    rig.service.desk.hold(ADMIN, mine)
    play(rig, 6)
    assert rig.state(quick) == "succeeded"
    rig.service.desk.resume(ADMIN, mine)
    play(rig, 2)
    assert (rig.state(mine), rig.service.store.book.jobs[mine].last.gpus) == ("running", place)
    rig.finish()
    assert len(rig.service.desk.job(ADMIN, mine).attempts) == 1


def _opportunist(home: Path) -> tuple[Rig, str, str]:
    """A job that AntMan holds back, beside one whose right the GPU is."""
    rig = plan_rig(home, "antman:control_s=5,busy_limit=1")
    mine = rig.submit("sleep 4000", model="recsys", expected=4000, gpu_mem=20)
    play(rig, 2)
    guest = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=20, priority=-1)
    _run(rig, mine, guest)
    assert (rig.service.reports.told(guest).throttle_s or 0) > 0
    return rig, mine, guest


def _run(rig: Rig, mine: str, guest: str) -> None:
    for second in range(4):
        play(rig, 1)
        tell(rig, mine, 10 * second, 0.1)
        tell(rig, guest, 10 * second, 0.05)
    play(rig, 1)


def test_after_a_restart_antman_still_knows_whose_right_a_gpu_is(tmp_path: Path) -> None:
    rig, mine, guest = _opportunist(tmp_path)
    rig.restart()
    _run(rig, mine, guest)
    assert states(rig, [mine, guest]) == ["running"] * 2
    assert [terms_of(rig.service, job).opportunistic for job in (mine, guest)] == [False, True]
    assert (rig.service.reports.told(guest).throttle_s or 0) > 0


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_was_held_back_is_let_go_with_the_policy(tmp_path: Path, restarts: bool) -> None:
    rig, mine, guest = _opportunist(tmp_path)
    rig.service.desk.cancel(ADMIN, mine)
    rig.service.admin.set_policy(ADMIN, "fifo")
    if restarts:
        rig.restart()
    for second in range(4):
        play(rig, 1)
        tell(rig, guest, 10 * second, 0.05)
    play(rig, 1)
    assert rig.state(guest) in ("running", "suspended")
    if rig.state(guest) == "running":
        assert rig.service.reports.told(guest).throttle_s == 0


@pytest.mark.parametrize("policy", ["gavel", "sjf-bsbf", "chronus", "antman", "srtf"])
def test_a_size_that_is_set_reaches_the_job_under_every_kind_of_policy(tmp_path: Path, policy: str) -> None:
    rig = plan_rig(tmp_path, policy, FOUR, round_s=5.0)
    job = rig.submit("trap '' TERM; sleep 100", gpus=1, elastic={"min_gpus": 1, "max_gpus": 4}, expected=100)
    play(rig, 3)
    rig.service.desk.set(ADMIN, job, {"gpus": 3})
    play(rig, 30)  # it takes its time to leave, in which the policy decides
    assert (rig.state(job), rig.service.store.book.jobs[job].size) == ("running", 3)


@pytest.mark.parametrize(
    "policy", ["horus", "optimus:interval=2", "ones:interval=2", "ones-goodput:interval=2", "gandiva"]
)
def test_a_job_may_stay_where_a_larger_one_of_its_kind_could_not_start(tmp_path: Path, policy: str) -> None:
    """It runs on the two GPUs of its type, and asks for more than there are of that type by now."""
    nodes = (NodeInfo("n0", "h200", 4, 8, 64.0), NodeInfo("n1", "a100", 2, 8, 64.0))
    rig = plan_rig(tmp_path, policy, nodes)
    filler = rig.submit("sleep 60", gpus=4, preemptible=False)
    play(rig, 1)
    job = rig.submit("sleep 30", gpus=1, elastic={"min_gpus": 1, "max_gpus": 4}, expected=30)
    play(rig, 3)
    rig.service.desk.set(ADMIN, job, {"gpus": 4})
    play(rig, 20)
    rig.finish()
    assert states(rig, [filler, job]) == ["succeeded"] * 2
