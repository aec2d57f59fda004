"""Gandiva live: weights, groups of unknown jobs by trial, moves and their undoing; in a world whose clock is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import Rig, cells, plan_rig, play, states, tell

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.policies.gandiva.policy import Gandiva
from cotenant.service.facade import Caller, Role

TWO = tuple(NodeInfo(f"n{k}", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0) for k in range(2))
FAST = {"n0": 0.05, "n1": 0.05}
MOVES = "gandiva:packing=false,defragmentation=false,residence_s=5,trial_s=5"


def _where(rig: Rig, job: str) -> set[str]:
    return {node for node, _ in cells(rig.service.store.book.jobs[job].last.gpus)}


def _steps(rig: Rig, times: dict[str, dict[str, float]], seconds: float) -> None:
    """Jobs that run say twice a second how long their steps take, by the node on which they are."""
    for _ in range(int(seconds * 2)):
        for job, step_s in times.items():
            if rig.state(job) == "running":
                (node,) = _where(rig, job)
                tell(rig, job, int(rig.backend.now_s / min(step_s.values())), step_s[node])
        play(rig, 0.5)


def _pair(home: Path, policy: str = MOVES, **fields: object) -> tuple[Rig, list[str]]:
    """Two jobs on the first of two nodes, each on a GPU of its own; alone the first takes 0.05 s for a step."""
    rig = plan_rig(home, policy, TWO)
    jobs = [rig.submit("sleep infinity", expected=1000, **fields)]
    _steps(rig, {jobs[0]: FAST}, 8.0)
    jobs.append(rig.submit("sleep infinity", expected=1000))
    play(rig, 1.0)
    assert [_where(rig, job) for job in jobs] == [{"n0"}, {"n0"}]
    return rig, jobs


def test_a_job_that_others_of_its_node_slow_down_moves_away(tmp_path: Path) -> None:
    rig, jobs = _pair(tmp_path)
    _steps(rig, {jobs[0]: {"n0": 0.08, "n1": 0.05}, jobs[1]: FAST}, 20.0)
    assert [_where(rig, job) for job in jobs] == [{"n1"}, {"n0"}]
    assert rig.attempts(*jobs) == [2, 1], "it stays where it is well"
    assert rig.service.admin.metrics()["cotenant_moves_total"] == 1


def test_a_move_that_made_it_worse_is_undone_once(tmp_path: Path) -> None:
    rig, jobs = _pair(tmp_path)
    _steps(rig, {jobs[0]: {"n0": 0.08, "n1": 0.2}, jobs[1]: FAST}, 5.0)
    assert _where(rig, jobs[0]) == {"n1"}
    _steps(rig, {jobs[0]: {"n0": 0.08, "n1": 0.2}, jobs[1]: FAST}, 30.0)
    assert (_where(rig, jobs[0]), rig.attempts(*jobs)) == ({"n0"}, [3, 1])


@pytest.mark.parametrize(("policy", "movable"), [(f"{MOVES},parting=false", True), (MOVES, False)])
def test_who_said_no_is_not_moved(tmp_path: Path, policy: str, movable: bool) -> None:
    rig, jobs = _pair(tmp_path, policy, movable=movable)
    _steps(rig, {jobs[0]: {"n0": 0.08}, jobs[1]: FAST}, 15.0)
    assert rig.attempts(*jobs) == [1, 1]


def test_turns_go_by_weight(tmp_path: Path) -> None:
    """Turns of 20 and 10 s on one GPU: in three minutes one has run about twice as long as the other."""
    rig = plan_rig(tmp_path, "gandiva:packing=false,migration=false,quantum=10")
    jobs = [rig.submit("sleep 1000", model=model, weight=weight) for model, weight in (("gpt2", 2), ("bert", 1))]
    ran = dict.fromkeys(jobs, 0)
    for _ in range(180):
        play(rig, 1.0)
        for job in jobs:
            ran[job] += rig.state(job) == "running"
    assert ran[jobs[0]] / ran[jobs[1]] == pytest.approx(2.0, rel=0.2)
    assert rig.attempts(*jobs) == [1, 1]


@pytest.mark.parametrize("value", [0, -1, 101, "much", True])
def test_weights_are_checked(value: object) -> None:
    with pytest.raises(InputError, match="field 'weight' is"):
        parse_job({"run": "x", "weight": value})
    assert parse_job({"run": "x", "weight": 3}).weight == 3.0


def test_only_admins_give_longer_turns(tmp_path: Path) -> None:
    rig, ann = plan_rig(tmp_path, "gandiva"), Caller("ann", Role.USER, "red")
    with pytest.raises(InputError, match="field 'weight' is 2: your token may ask for at most 1"):
        rig.submit("sleep 1", caller=ann, weight=2)
    jobs = [rig.submit("sleep 1", caller=ann, weight=0.5), rig.submit("sleep 1", weight=2)]
    assert [rig.service.store.book.jobs[job].spec.weight for job in jobs] == [0.5, 2.0]


def test_three_jobs_share_a_gpu_and_the_one_that_spoils_it_parts(tmp_path: Path) -> None:
    """Watched alone in their turns, joined one by one; when all become slow, the last to come takes turns again."""
    rig = plan_rig(tmp_path, "gandiva:quantum=5,watch_s=5,trial_s=6,migration=false")
    jobs = [rig.submit("sleep infinity", model=model, gpu_mem="5G") for model in ("mlp_rl", "recsys", "lstm")]
    _steps(rig, {job: {"n0": 0.05} for job in jobs}, 50.0)
    assert states(rig, jobs) == ["running"] * 3
    policy = rig.service.planner.live.policy
    assert isinstance(policy, Gandiva)
    assert [trial.kept for trial in policy.packing.trials.values()] == [True, True]
    _steps(rig, {job: {"n0": 0.3} for job in jobs}, 20.0)
    assert sorted(states(rig, jobs)) != ["running"] * 3
    assert policy.counts["undone"] >= 1
