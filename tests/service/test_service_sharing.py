"""Several live jobs on one GPU, in a world whose clock moves only when told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_kit import ADMIN, Rig, play

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError
from cotenant.service.facade import Caller, Role, WhatIfWatch

ROUND_S = 5.0
ONE = (NodeInfo("n0", "gpu", 1, 8, 64.0, gpu_mem_gib=80.0),)
TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),)
POLICIES = ["gandiva-packing", "gavel:sharing=true"]


def sharing(home: Path, policy: str, nodes: tuple[NodeInfo, ...], **more: float) -> Rig:
    rig = Rig(home, policy, nodes, round_s=ROUND_S, profile="h200", budget_s=60.0, **more)
    rig.shares = True
    return rig


def states(rig: Rig, jobs: list[str]) -> list[str]:
    return [rig.state(job) for job in jobs]


@pytest.mark.parametrize("policy", POLICIES)
def test_two_jobs_share_one_gpu_to_their_end(tmp_path: Path, policy: str) -> None:
    rig = sharing(tmp_path, policy, ONE)
    jobs = [rig.submit("sleep 20", model="bert") for _ in range(2)]
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    (node,) = rig.service.admin.nodes(ADMIN)
    assert (node.gpus_used, node.gpus_shared, sorted(node.jobs)) == (1, 1, jobs)
    assert [rig.service.desk.job(ADMIN, job).reason for job in jobs] == [
        f"shares its GPUs with job {jobs[1]}", f"shares its GPUs with job {jobs[0]}",
    ]  # fmt: skip
    rig.finish()
    assert states(rig, jobs) == ["succeeded"] * 2
    assert rig.attempts(*jobs) == [1, 1]
    assert rig.service.admin.nodes(ADMIN)[0].gpus_used == 0


@pytest.mark.parametrize("policy", ["muri-s:group=2", "muri-l:group=2"])
def test_muri_groups_jobs_by_the_stages_of_their_steps(tmp_path: Path, policy: str) -> None:
    """One waits for its host while the other computes: the profile knows how long each of them does."""
    rig = sharing(tmp_path, policy, ONE)
    jobs = [rig.submit("sleep 20", model=model) for model in ("lstm", "resnet18_cifar")]
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    busy = [rig.submit("sleep 20", model="bert") for _ in range(2)]
    rig.finish()
    assert states(rig, [*jobs, *busy]) == ["succeeded"] * 4


@pytest.mark.parametrize("first", ["host", "guest"])
def test_whoever_is_left_goes_on_where_it_is(tmp_path: Path, first: str) -> None:
    """A guest inherits the GPUs of its host, and the other way round; neither is restarted."""
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    short, long = ("sleep 8", "sleep 40") if first == "host" else ("sleep 40", "sleep 8")
    jobs = [rig.submit(short, model="lstm"), rig.submit(long, model="recsys")]
    play(rig, ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    play(rig, 3 * ROUND_S)
    left = jobs[1] if first == "host" else jobs[0]
    assert sorted(states(rig, jobs)) == ["running", "succeeded"]
    assert (rig.state(left), rig.service.desk.job(ADMIN, left).reason) == ("running", "")
    later = rig.submit("sleep 10", model="lstm")
    play(rig, 2 * ROUND_S)
    assert rig.state(later) == "running"
    rig.finish()
    assert set(rig.attempts(*jobs, later)) == {1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_crowd_of_gangs_comes_to_its_end(tmp_path: Path, policy: str) -> None:
    rig = sharing(tmp_path, policy, (*TWO, NodeInfo("n1", "gpu", 3, 8, 64.0)))
    models = ("lstm", "recsys", "bert", "gpt2", "resnet50", "mlp_rl")
    jobs = [rig.submit(f"sleep {7 + 3 * k}", gpus=1 + k % 2, model=models[k % 6]) for k in range(14)]
    fixed = rig.submit("sleep 30", preemptible=False, model="lstm")
    shared = 0
    while rig.service.store.book.active and rig.backend.now_s < 1_001_000:
        play(rig, 1.0)
        shared = max(shared, sum(node.gpus_shared for node in rig.service.admin.nodes(ADMIN)))
    assert states(rig, [*jobs, fixed]) == ["succeeded"] * 15
    assert shared > 0
    assert rig.attempts(fixed) == [1]


def test_nothing_is_shared_without_pairs_in_the_profile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "gandiva-packing", ONE, round_s=ROUND_S, budget_s=60.0)
    jobs = [rig.submit("sleep infinity", model=model) for model in ("lstm", "recsys")]
    play(rig, 6 * ROUND_S)
    assert sum(rig.state(job) == "running" for job in jobs) == 1
    assert all(rig.service.desk.job(ADMIN, job).attempts for job in jobs), "they take turns"


def test_a_job_that_may_not_be_stopped_has_its_gpus_alone(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    fixed = rig.submit("sleep 30", model="lstm", preemptible=False)
    other = rig.submit("sleep 30", model="recsys")
    play(rig, ROUND_S)
    assert sum(rig.state(job) == "running" for job in (fixed, other)) == 1
    rig.shares = False  # checked at every look
    rig.finish()


def test_another_policy_parts_what_the_last_one_put_together(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = [rig.submit("sleep 40", model=model) for model in ("lstm", "recsys")]
    play(rig, ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    finish = rig.service.desk.whatif(ADMIN, ["fifo"], WhatIfWatch(budget_s=60.0))
    assert all(row["fifo"] and row["gandiva-packing"] for row in finish["jobs"])
    rig.service.admin.set_policy(ADMIN, "fifo")
    play(rig, ROUND_S)
    rig.shares = False
    rig.finish()
    assert states(rig, jobs) == ["succeeded"] * 2


def test_a_restarted_service_finds_the_pair_as_it_was(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    jobs = [rig.submit("sleep 40", model=model) for model in ("lstm", "recsys")]
    play(rig, ROUND_S)
    rig.restart()
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs) == ["running"] * 2
    rig.finish()
    assert rig.attempts(*jobs) == [1, 1]


def test_tenants_see_that_they_share_but_not_with_whom(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    ada, bob = Caller("ada", Role.USER, "a"), Caller("bob", Role.USER, "b")
    mine, other = rig.submit("sleep 9", ada, model="lstm"), rig.submit("sleep 9", bob, model="recsys")
    play(rig, ROUND_S)
    assert rig.service.desk.job(ada, mine).reason == "shares its GPUs with another tenant's job"
    assert rig.service.desk.job(ADMIN, mine).reason == f"shares its GPUs with job {other}"


def test_memory_that_does_not_fit_is_not_shared(tmp_path: Path) -> None:
    rig = sharing(tmp_path, "gandiva-packing", ONE)
    with pytest.raises(InputError, match="field 'gpu_mem' is 81 GiB per GPU; the most is 80 where there are 1 GPUs"):
        rig.submit(gpu_mem="81G")
    big = [rig.submit("sleep 30", model=model, gpu_mem=50) for model in ("lstm", "recsys")]
    play(rig, 4 * ROUND_S)
    assert sum(rig.state(job) == "running" for job in big) == 1
    small = rig.submit("sleep 30", model="bert", gpu_mem=30)
    together = 0
    while rig.service.store.book.active:
        play(rig, 1.0)
        together = max(together, rig.service.admin.nodes(ADMIN)[0].gpus_shared)
    assert together == 1, "80 GiB hold 50 and 30"
    assert states(rig, [*big, small]) == ["succeeded"] * 3


def test_memory_keeps_jobs_off_small_gpus(tmp_path: Path) -> None:
    nodes = (
        NodeInfo("small", "p100", 2, 8, 64.0, gpu_mem_gib=16.0),
        NodeInfo("large", "v100", 1, 8, 64.0, gpu_mem_gib=32.0),
    )
    rig = Rig(tmp_path, "fifo", nodes)
    jobs = [rig.submit("sleep 5", gpu_mem=20) for _ in range(3)]
    rig.finish()
    assert {rig.service.desk.job(ADMIN, job).attempts[0].nodes[0][0] for job in jobs} == {"large"}
    with pytest.raises(InputError, match="the most is 16 where there are 2 GPUs together"):
        rig.submit(gpus=2, gpu_mem=20)


@pytest.mark.parametrize("pairs", ["oracle", "online", "online,rule=nearest"])
def test_gavel_completes_what_the_profile_does_not_know_of_pairs(tmp_path: Path, pairs: str) -> None:
    """Two models that the profile knows have been here; of a third it is believed what they do, and then measured."""
    rig = sharing(tmp_path, f"gavel:sharing=true,pairs={pairs}", ONE)
    for model in ("bert", "lstm"):
        rig.submit("sleep 1", model=model)
    rig.finish()
    jobs = [rig.submit("sleep 60", model="mine", gpu_mem=20) for _ in range(2)]
    play(rig, 2 * ROUND_S)
    assert states(rig, jobs).count("running") == (1 if pairs == "oracle" else 2)
    rig.finish()
    assert states(rig, jobs) == ["succeeded"] * 2
