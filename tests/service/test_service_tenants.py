"""Tenants in a live service, in virtual time: kept, changed, administered; limits of users; nodes for some only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig, play

from cotenant.backends.base import NodeInfo
from cotenant.core.cluster import Cluster, NodeGroup
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.tenants import Tree
from cotenant.service.facade import Caller, Conflict, NotAllowed, NotFound, Role, TooMany

TREE: dict[str, Any] = {
    "research": {
        "guaranteed": 4,
        "admins": ["ada"],
        "children": {"vision": {"guaranteed": 2, "admins": ["vic"]}, "nlp": {"guaranteed": 1}},
    },
    "product": {"guaranteed": 2, "admins": ["pia"]},
}
EIGHT = (NodeInfo("n0", "gpu", 4, 8, 64.0), NodeInfo("n1", "gpu", 4, 8, 64.0))
ADA, VIC = Caller("ada", Role.USER, "research"), Caller("vic", Role.USER, "vision")
PIA, NED = Caller("pia", Role.USER, "product"), Caller("ned", Role.USER, "nlp")


def tree(**more: Any) -> Tree:
    return Tree.from_dict({"tenants": {**TREE, **more}}, "test")


def shared(home: Path, policy: str = "fifo", **more: Any) -> Rig:
    return Rig(home, policy, EIGHT, cluster=Cluster((NodeGroup(2, 4),), tenants=tree(**more)))


def known(rig: Rig, caller: Caller) -> Caller:
    return rig.service.tenants.known(caller)


def shown(rig: Rig, name: str) -> dict[str, Any]:
    return next(row for row in rig.service.tenants.tenants(ADMIN)["tenants"] if row["name"] == name)


def test_the_file_is_for_the_first_start_and_the_journal_wins(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    assert rig.service.tenants.set(ADMIN, "product", {"guaranteed": 4}) == "product: guaranteed 2 -> 4"
    rig.restart()  # with the same file
    assert shown(rig, "product")["guaranteed"] == 4
    rig.service.store.snapshot()
    rig.restart()
    found = rig.service.tenants.tenants(ADMIN)
    assert [(row["name"], row["guaranteed"]) for row in found["tenants"]] == [
        ("research", 4), ("vision", 2), ("nlp", 1), ("product", 4),
    ]  # fmt: skip
    assert (found["changed_by"], found["changed_s"]) == ("root", rig.backend.now_s)
    done, wrong = rig.service.tenants.take(ADMIN, tree(), (NodeGroup(3, 4),))
    assert (done, wrong) == (
        "4 tenants; 0 of 2 nodes dedicated or labelled",
        ["groups[0]: 2 of 3 nodes with 4 GPUs are there"],
    )
    assert shown(rig, "product")["guaranteed"] == 2


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("vision", {"guaranteed": 9}, "guaranteed is 4, but its children are guaranteed 10"),
        ("research", {"guaranteed": 99}, "101 GPUs would be guaranteed, but all nodes together have 8"),
        ("vision", {"garanteed": 1}, "did you mean 'guaranteed'"),
        ("vision", {"guaranteed": "x"}, "tenants.vision.guaranteed is 'x'"),
        ("vision", {"limits": {"gpus": -1}}, "tenants.vision.limits.gpus is -1"),
        ("vision", {"parent": "nobody"}, "unknown tenant 'nobody'"),
    ],
)
def test_what_is_wrong_is_refused_before_it_is_journaled(
    tmp_path: Path, name: str, fields: dict[str, Any], said: str
) -> None:
    rig = shared(tmp_path)
    before = rig.service.store.book.seq
    with pytest.raises(InputError, match=said):
        rig.service.tenants.set(ADMIN, name, fields)
    with pytest.raises(NotFound, match="unknown tenant 'visio'"):
        rig.service.tenants.set(ADMIN, "visio", {"weight": 2})
    assert rig.service.store.book.seq == before


def test_a_tenant_with_jobs_stays(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    jobs = [rig.submit(caller=NED) for _ in range(2)]
    with pytest.raises(Conflict, match="tenant 'nlp' has 2 jobs that have not ended"):
        rig.service.tenants.remove(ADMIN, "nlp")
    with pytest.raises(InputError, match="has children"):
        rig.service.tenants.remove(ADMIN, "research")
    for job in jobs:
        rig.service.desk.cancel(ADMIN, job)
    rig.ticks(1)
    assert rig.service.tenants.remove(ADMIN, "nlp") == "nlp: removed"
    assert rig.service.desk.submit(NED, [], "") == []
    assert rig.submit(caller=NED)  # as a tenant that nobody declared
    assert [row["name"] for row in rig.service.tenants.tenants(ADMIN)["tenants"] if not row["declared"]] == ["nlp"]


# -- administrators ------------------------------------------------------------------------------------------------


def test_an_administrator_looks_after_the_jobs_below_and_nobody_elses(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    desk = rig.service.desk
    mine, theirs = rig.submit("sleep 50", caller=VIC), rig.submit("sleep 50", caller=PIA)
    rig.ticks(1)
    ada, vic, namesake = known(rig, ADA), known(rig, VIC), known(rig, Caller("ada", Role.USER, "product"))
    assert (ada.administers, vic.administers) == ({"research", "vision", "nlp"}, {"vision"})
    assert namesake.administers == frozenset()
    desk.set(ada, mine, {"priority": 7})
    desk.requeue(ada, mine)
    desk.hold(ada, mine)
    rig.ticks(2)
    assert (desk.job(ada, mine).reason, desk.job(ADMIN, mine).priority) == ("held", 7)
    desk.resume(ada, mine)
    for verb in ("cancel", "hold", "resume", "requeue"):
        for caller in (ada, vic, known(rig, NED)):
            with pytest.raises(NotFound):
                getattr(desk, verb)(caller, theirs)
        for caller in (namesake, known(rig, NED), known(rig, PIA)):
            with pytest.raises(NotFound):
                getattr(desk, verb)(caller, mine)
    with pytest.raises(NotFound):
        desk.set(ada, theirs, {"priority": 1})
    with pytest.raises(CotenantError, match="needs the role user"):
        desk.cancel(known(rig, Caller("ada", Role.VIEWER, "research")), mine)
    with pytest.raises(InputError, match="your token is for 'research'"):
        rig.submit(caller=ada, tenant="vision")  # to look after it is not to be it
    desk.cancel(ada, mine)
    rig.ticks(1)
    assert (rig.state(mine), rig.state(theirs)) == ("cancelled", "running")


def test_an_administrator_changes_what_is_inside_his_tenant_only(tmp_path: Path) -> None:
    rig = shared(tmp_path)
    tenants, ada = rig.service.tenants, known(rig, ADA)
    assert "guaranteed 1 -> 2" in tenants.set(ada, "nlp", {"guaranteed": 2, "weight": 3.0})
    tenants.set(ada, "research", {"limits": {"gpus": 3}})
    tenants.add(ada, "speech", "nlp", {"guaranteed": 1})
    tenants.remove(ada, "speech")
    refused: list[tuple[Caller, str, dict[str, Any]]] = [
        (ada, "research", {"guaranteed": 6}), (ada, "research", {"ceiling": 8}), (ada, "research", {"weight": 9.0}),
        (ada, "product", {"limits": {"gpus": 1}}), (ada, "vision", {"parent": ""}),
        (ada, "vision", {"parent": "product"}), (ada, "vision", {"reclaims": False}),
        (known(rig, VIC), "nlp", {"weight": 2.0}),
        (known(rig, VIC), "vision", {"guaranteed": 1}), (known(rig, NED), "nlp", {"weight": 2.0}),
        (Caller("ada", Role.VIEWER, "research"), "nlp", {"weight": 2.0}),
    ]  # fmt: skip
    before = rig.service.store.book.seq
    for caller, name, fields in refused:
        with pytest.raises(NotAllowed):
            tenants.set(caller, name, fields)
    with pytest.raises(NotAllowed):
        tenants.add(ada, "new", "", {})
    with pytest.raises(NotAllowed):
        tenants.add(ada, "new", "product", {})
    with pytest.raises(NotAllowed):
        tenants.remove(known(rig, PIA), "nlp")
    assert rig.service.store.book.seq == before
    tenants.set(ADMIN, "vision", {"guaranteed": 0, "limits": {"gpus": 2}})
    tenants.set(ADMIN, "nlp", {"guaranteed": 0})
    tenants.set(ADMIN, "research", {"guaranteed": 0})
    with pytest.raises(NotAllowed, match="0 GPUs are guaranteed to 'research'"):
        tenants.set(ada, "nlp", {"guaranteed": 1})  # else it would be its parent's, too


# -- limits of users -----------------------------------------------------------------------------------------------


def test_waiting_jobs_and_their_rate_are_limited_by_user(tmp_path: Path) -> None:
    rig = shared(tmp_path, product={"limits": {"pending_jobs": 3, "submits_per_hour": 5}})
    bob = Caller("bob", Role.USER, "product")
    for _ in range(3):
        rig.submit(caller=PIA)
    with pytest.raises(TooMany, match="may have 3 jobs waiting, you have 3"):
        rig.submit(caller=PIA)
    rig.submit(caller=bob)
    rig.ticks(1)
    rig.submit(caller=PIA)
    rig.restart()
    rig.submit(caller=PIA)
    with pytest.raises(TooMany, match="may submit 5 jobs an hour, you have submitted 5: try again in 3599 s") as error:
        rig.submit(caller=PIA)
    assert error.value.retry_s == pytest.approx(3599.0)
    with pytest.raises(TooMany, match="you have 0 and ask for 7 more: send fewer"):
        rig.submit(caller=bob, array="0-6")
    rig.backend.advance(3600.0)
    rig.submit(caller=PIA)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "gavel", "easy"])
def test_running_jobs_and_gpus_of_a_user_are_limited_and_why_says_so(tmp_path: Path, policy: str) -> None:
    rig = shared(tmp_path, policy, product={"limits": {"running_jobs": 2, "gpus": 3}})
    with pytest.raises(InputError, match="a user of tenant 'product' may have 3 at a time"):
        rig.submit(caller=PIA, gpus=4)
    jobs = [rig.submit("sleep 20", caller=PIA, gpus=gpus, expected=20) for gpus in (2, 2, 1, 1, 1)]
    other = rig.submit("sleep 20", caller=Caller("bob", Role.USER, "product"), gpus=2)
    rig.ticks(2)
    assert rig.state(other) == "running"
    assert [rig.state(job) for job in jobs] == ["running", *["pending"] * 4]  # nobody overtakes the second
    reason = rig.service.desk.why(ADMIN, jobs[1])
    assert reason["cause"] == "over the user's limit"
    assert "3 GPUs at a time and pia's have 2 of them" in reason["text"]
    rig.service.desk.hold(ADMIN, jobs[1])
    rig.ticks(2)
    assert [rig.state(job) for job in jobs] == ["running", "pending", "running", "pending", "pending"]
    rig.service.tenants.set(ADMIN, "product", {"limits": {"running_jobs": None, "gpus": 4}})
    rig.ticks(2)
    assert [rig.state(job) for job in jobs] == ["running", "pending", "running", "running", "pending"]
    rig.restart()
    rig.service.desk.resume(ADMIN, jobs[1])
    while rig.service.store.book.active:
        play(rig, 1.0)
        assert sum(job.size for job in rig.service.store.book.on_gpus.values() if job.user == "pia") <= 4
    assert [rig.state(job) for job in jobs] == ["succeeded"] * 5


def test_priorities_have_a_default_and_a_highest(tmp_path: Path) -> None:
    rig = shared(tmp_path, product={"default_priority": 2, "highest_priority": 5})
    assert [rig.service.desk.job(ADMIN, rig.submit(caller=PIA, **more)).priority for more in ({}, {"priority": 5})] == [
        2,
        5,
    ]
    for caller in (PIA, ADMIN):
        with pytest.raises(InputError, match="the highest in tenant 'product' is 5"):
            rig.submit(caller=caller, tenant="product", priority=6)
    job = rig.submit(caller=PIA)
    with pytest.raises(InputError, match="at most 5"):
        rig.service.desk.set(PIA, job, {"priority": 6})
    rig.service.desk.set(ADMIN, job, {"priority": 6})


# -- nodes for some ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "gavel"])
def test_dedicated_nodes_take_their_tenants_only(tmp_path: Path, policy: str) -> None:
    groups = (NodeGroup(1, 4, dedicated=("research",), labels=(("rack", "a3"),), names=("n1",)), NodeGroup(1, 4))
    cluster = Cluster(groups, tenants=tree(shut={"only_dedicated": True}))
    rig = Rig(tmp_path, policy, EIGHT, cluster=cluster)
    nodes = rig.service.admin.nodes(ADMIN)
    assert [(node.dedicated, node.labels) for node in nodes] == [((), {}), (("research",), {"rack": "a3"})]
    with pytest.raises(InputError, match="no node takes jobs of tenant 'shut'"):
        rig.submit(tenant="shut")
    with pytest.raises(InputError, match="field 'gpus' is 5; the largest pool has 4"):
        rig.submit(caller=VIC, gpus=5)
    theirs = [rig.submit("sleep 30", caller=PIA, gpus=2, expected=30) for _ in range(3)]
    mine = [rig.submit("sleep 30", caller=VIC, gpus=2, expected=30) for _ in range(2)]
    seen = set()
    while rig.service.store.book.active:
        play(rig, 1.0)
        for job in rig.service.store.book.on_gpus.values():
            places = {node for node, _ in job.last.gpus}
            assert job.tenant == "vision" or places == {"n0"}
            seen |= {(job.tenant, node) for node in places}
    assert {("product", "n0"), ("vision", "n1")} <= seen
    assert [rig.state(job) for job in (*theirs, *mine)] == ["succeeded"] * 5
    with pytest.raises(Conflict, match="node n1 is dedicated to tenant 'research'"):
        rig.service.tenants.take(ADMIN, Tree(), groups)
    rig.service.tenants.take(ADMIN, tree(), (NodeGroup(2, 4),))
    assert not any(node.dedicated for node in rig.service.admin.nodes(ADMIN))


# -- borrowed GPUs come back ---------------------------------------------------------------------------------------

THREE = {"vision": {"guaranteed": 4}, "nlp": {"guaranteed": 2}, "product": {"guaranteed": 2}}
VISION, NLP = Caller("vic", Role.USER, "vision"), Caller("ned", Role.USER, "nlp")
MIN_RUN_S, GRACE_S = 10.0, 5.0


def three(home: Path, policy: str) -> Rig:
    tree = Tree.from_dict({"fair_share": {"min_run": MIN_RUN_S}, "tenants": THREE}, "test")
    return Rig(home, policy, EIGHT, cluster=Cluster((NodeGroup(2, 4),), tenants=tree), round_s=4.0)


def held(rig: Rig, tenant: str) -> int:
    return sum(job.size for job in rig.service.store.book.on_gpus.values() if job.tenant == tenant)


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "tiresias-l", "gavel"])
def test_borrowed_gpus_return_when_their_owner_asks(tmp_path: Path, policy: str) -> None:
    """One borrows all that is idle; within the minimum run and the grace it is the owner's, and nothing is lost."""
    rig = three(tmp_path, policy)
    theirs = [rig.submit("sleep 200", caller=PIA, gpus=2, expected=200) for _ in range(4)]
    rig.ticks(2)
    assert held(rig, "product") == 8
    rig.ticks(MIN_RUN_S)
    mine = rig.submit("sleep 20", caller=VISION, gpus=4, expected=20)
    play(rig, GRACE_S)
    assert (rig.state(mine), held(rig, "vision"), held(rig, "product")) == ("running", 4, 4)
    rig.service.store.snapshot()
    other = rig.submit("sleep 20", caller=NLP, gpus=2, expected=20)  # and what it may borrow goes to nobody else
    play(rig, GRACE_S)
    assert (rig.state(other), held(rig, "product")) == ("running", 2)
    rig.finish()
    jobs = [rig.service.desk.job(ADMIN, job) for job in (mine, other, *theirs)]
    assert {str(job.state) for job in jobs} == {"succeeded"}
    if policy in ("fifo", "easy", "tiresias-l"):  # others have them go on elsewhere, from their last save
        assert sum(attempt.lost_s for job in jobs for attempt in job.attempts) == 0.0
    assert [len(job.attempts) for job in jobs[:2]] == [1, 1]  # what is guaranteed is not taken back


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_another_quota_holds_at_the_next_decision_and_after_a_crash(tmp_path: Path, policy: str) -> None:
    rig = three(tmp_path, policy)
    for _ in range(4):
        rig.submit("sleep 200", caller=PIA, gpus=2, expected=200)
    rig.ticks(MIN_RUN_S + 2)
    wide = rig.submit("sleep 20", caller=NLP, gpus=4, expected=300)
    rig.ticks(2)
    assert (rig.state(wide), held(rig, "product")) == ("pending", 8)  # it is guaranteed two
    rig.service.tenants.set(ADMIN, "vision", {"guaranteed": 2})
    rig.service.tenants.set(ADMIN, "nlp", {"guaranteed": 4})
    rig.restart()  # before anything was decided
    play(rig, GRACE_S)
    assert (rig.state(wide), held(rig, "product")) == ("running", 4)
    rig.service.tenants.set(ADMIN, "product", {"ceiling": 2})
    play(rig, GRACE_S)
    assert held(rig, "product") == 2
    rig.service.tenants.set(ADMIN, "product", {"ceiling": None})
    play(rig, 30.0)  # whoever stands still goes on where it was, once that is free
    assert (rig.state(wide), held(rig, "product")) == ("succeeded", 8)


@pytest.mark.parametrize("policy", ["fifo", "easy", "gavel"])
def test_who_is_alone_has_all_that_is_idle(tmp_path: Path, policy: str) -> None:
    """Whatever the sizes of its jobs, and at the first decision; and it is foretold when they end."""
    rig = three(tmp_path, policy)
    jobs = [rig.submit("sleep 50", caller=PIA, gpus=gpus, expected=50) for gpus in (2, 1, 2, 1, 2)]
    rig.service.tick()
    rig.ticks(1)
    assert held(rig, "product") == 8
    later = rig.submit("sleep 50", caller=VISION, gpus=4, expected=50)
    rig.service.tick()
    told = {row["id"]: row["srtf"] for row in rig.service.desk.whatif(ADMIN, ["srtf"])["jobs"]}
    assert {*told} == {*jobs, later}
    assert all(told.values())


def test_what_was_used_before_a_restart_counts(tmp_path: Path) -> None:
    """Two borrow what nobody is guaranteed: who had all of it before has less of it now, also after a restart.

    Eight GPUs for 490 s are worth 8 (1 - 2^-0.49) = 2.3 GPUs at a half-life of 1000 s: red's 3 beside blue's 5.
    """
    share = {"fair_share": {"half_life": 1000, "min_run": 0}, "tenants": {"red": {}, "blue": {}, "none": {}}}
    rig = Rig(tmp_path, "fifo", EIGHT, cluster=Cluster((NodeGroup(2, 4),), tenants=Tree.from_dict(share, "test")))
    red, blue = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "blue")
    for _ in range(8):
        rig.submit("sleep 500", caller=red)
    rig.ticks(490, 10.0)
    for _ in range(8):
        for caller in (red, blue):
            rig.submit("sleep 500", caller=caller)
    rig.restart()
    rig.ticks(20)
    assert (held(rig, "red"), held(rig, "blue")) == (3, 5)
