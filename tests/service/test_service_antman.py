"""AntMan in the live service: quotas by tenant, and utilisation that was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_session import terms_of
from service_kit import ADMIN, Rig, plan_rig, play, tell

from cotenant.backends.base import NodeInfo
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.tenants import Tree
from cotenant.runtime.protocol import Progress
from cotenant.service.facade import Caller, Role

TWO = (NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),)
OWNER, OTHER = Caller("olga", Role.USER, "owner"), Caller("otto", Role.USER, "other")


def shared(home: Path) -> Rig:
    tree = Tree.from_dict({"tenants": {"owner": {"guaranteed": 2}, "other": {"guaranteed": 0}}}, "test")
    return plan_rig(home, "antman", TWO, cluster=Cluster((NodeGroup(1, 2),), tenants=tree))


def is_spare(rig: Rig, job: str) -> bool:
    return terms_of(rig.service, job).opportunistic


def test_a_guarantee_makes_jobs_guaranteed_and_nobody_has_to_leave(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    spare = [rig.submit("sleep 4000", OTHER, model="mlp_rl", expected=4000, gpu_mem=10) for _ in range(2)]
    play(rig, 3)
    assert [is_spare(rig, job) for job in spare] == [True, True], "its tenant is guaranteed nothing"
    assert [terms_of(rig.service, job).share for job in spare] == [1.0, 1.0], "nobody is there to be slowed"
    mine = [rig.submit("sleep 4000", OWNER, model="lstm", expected=4000, gpu_mem=10) for _ in range(3)]
    play(rig, 3)
    assert [rig.state(job) for job in (*spare, *mine)] == ["running"] * 4 + ["pending"]
    assert [is_spare(rig, job) for job in mine[:2]] == [False, False]
    assert all(terms_of(rig.service, job).share < 1 for job in spare), "they are held back, not stopped"
    assert "0 GPUs of its quota left" in rig.service.desk.why(ADMIN, mine[2])["text"]
    assert rig.attempts(*spare) == [1, 1]


def test_a_job_is_upgraded_when_its_tenant_is_given_more(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    spare = rig.submit("sleep 4000", OTHER, model="mlp_rl", expected=4000, gpu_mem=10)
    play(rig, 3)
    assert is_spare(rig, spare)
    rig.service.tenants.set(ADMIN, "owner", {"guaranteed": 1})
    rig.service.tenants.set(ADMIN, "other", {"guaranteed": 1})
    play(rig, 3)
    assert not is_spare(rig, spare)
    rig.restart()
    play(rig, 3)
    assert rig.state(spare) == "running"
    assert not is_spare(rig, spare)


@pytest.mark.parametrize("who_says", ["driver", "runtime", "nobody"])
def test_how_busy_a_job_keeps_its_gpu_is_measured(tmp_path: Path, who_says: str) -> None:
    """By the profile resnet50 leaves nothing idle, so that no guest comes to it; it was seen to leave half."""
    rig = plan_rig(tmp_path, "antman")
    if who_says == "driver":
        rig.backend.world.uses = lambda spec: (0.5, 20.0)
    mine = rig.submit("sleep 4000", model="resnet50", expected=4000, gpu_mem=20)
    for second in range(30):
        play(rig, 1)
        busy = 0.5 if who_says == "runtime" else 0.0
        rig.says(mine, Progress(10 * second, 100_000, 0.1, saves=True, busy=busy))
    guest = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=20, priority=-1)
    play(rig, 3)
    tell(rig, mine, 400, 0.1)
    assert rig.state(guest) == ("pending" if who_says == "nobody" else "running")


def test_a_host_that_was_never_alone_is_measured_while_its_guest_stands_still(tmp_path: Path) -> None:
    """The guest was there first. By the profile it costs this host nothing; in truth half of its time."""
    rig = plan_rig(tmp_path, "antman:believe=false")
    guest = rig.submit("sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10, priority=-1)
    play(rig, 2)
    host = rig.submit("sleep 4000", model="lstm", expected=4000, gpu_mem=10)
    steps, stands_until_s, shares = {guest: 0.0, host: 0.0}, 0.0, []
    for _ in range(160):
        play(rig, 0.5)
        pauses = [event for event in rig.service.desk.events(ADMIN, guest) if event.kind == "pause"]
        stands_until_s = pauses[-1].time_s + pauses[-1].data["seconds"] if pauses else 0.0
        share = 0.0 if rig.backend.now_s < stands_until_s else terms_of(rig.service, guest).share
        shares.append(terms_of(rig.service, guest).share)
        for job, step_s, part in ((guest, 0.01, share), (host, 0.05 * (1 + share), 1.0)):
            steps[job] += 0.5 * part / step_s
            rig.says(job, Progress(int(steps[job]), 1_000_000, step_s, saves=True))
    assert len(pauses) == 1, "once is enough"
    assert pauses[0].data["beside"] == host
    assert max(shares) > 0.2, "it was let in"
    assert shares[-1] < 0.05, "and held back when it was seen what it costs"


@pytest.mark.parametrize("measured", [False, True])
def test_horus_joins_who_leaves_most_by_the_profile_or_as_measured(tmp_path: Path, measured: bool) -> None:
    """By the profile mlp_rl leaves most of its GPU idle and resnet50 nothing; the driver says the contrary."""
    rig = plan_rig(tmp_path, "horus", TWO)
    if measured:
        rig.backend.world.uses = lambda spec: (0.2 if "full" in spec.script else 1.0, 10.0)
    full = rig.submit("python full.py; sleep 4000", model="resnet50", expected=4000, gpu_mem=10)
    light = rig.submit("python light.py; sleep 4000", model="mlp_rl", expected=4000, gpu_mem=10)
    for second in range(30):
        play(rig, 1)
        for job in (full, light):
            tell(rig, job, 10 * second, 0.1)
    guest = rig.submit("sleep 4000", model="lstm", expected=4000, gpu_mem=10)
    play(rig, 3)
    sits = {job: rig.service.store.book.jobs[job].last.gpus for job in (full, light, guest)}
    assert [rig.state(job) for job in sits] == ["running"] * 3
    assert sits[full] != sits[light]
    assert sits[guest] == sits[full if measured else light]
