"""What live Chronus says of a deadline is what its table says, before and after a crash, and it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.chronus_live import check_table, play_fake, play_real
from service_kit import ADMIN, Rig, play

from cotenant.backends.base import NodeInfo
from cotenant.policies.chronus import Chronus

ONE = (NodeInfo("n0", "gpu", 1, 8, 64.0),)
POLICY = "chronus:lease=40,slot=20"


def _rig(home: Path, nodes: tuple[NodeInfo, ...] = ONE, policy: str = POLICY) -> Rig:
    return Rig(home, policy, nodes, budget_s=60.0)


def _told(rig: Rig, run: str, **fields: Any) -> dict[str, Any]:
    job = rig.submit(run, **fields)
    rig.service.tick()
    return rig.service.desk.deadline(ADMIN, job)


def _table(rig: Rig) -> Chronus:
    policy = rig.service.planner.live.policy
    assert isinstance(policy, Chronus)
    return policy


def test_random_submissions_are_answered_by_the_table_and_promises_kept(tmp_path: Path) -> None:
    tally = play_fake(tmp_path, seed=7, jobs=40)
    assert not tally.wrong
    assert min(tally.count("promised"), tally.count("refused"), tally.kills, tally.named) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_200_random_submissions(tmp_path: Path, seed: int) -> None:
    nodes = () if seed == 0 else tuple(NodeInfo(f"n{k}", "gpu", size, 16, 128.0) for k, size in enumerate((8, 3, 2)))
    tally = play_fake(tmp_path, seed, 200, nodes)
    assert not tally.wrong
    assert tally.count("promised") >= 60
    assert min(tally.kills, tally.named) >= 5


@pytest.mark.slow
def test_20_real_jobs_and_a_service_that_is_killed(tmp_path: Path) -> None:
    tally = play_real(tmp_path, jobs=20, kills=3)
    assert not tally.wrong
    assert tally.count("promised") >= 8
    assert tally.kills == 3


def test_a_wrong_answer_would_be_found(tmp_path: Path) -> None:
    """The check of the bench itself: an answer that is not the table's, a promise without leases, a GPU given twice."""
    rig = _rig(tmp_path)
    told = _told(rig, "sleep 100", expected=100, deadline=900)
    policy, names = _table(rig), {row: job for job, row in rig.service.planner.live.follower.row_of.items()}
    assert check_table(policy, names, {told["job"]: told}, [1]) == []
    assert "the desk says" in check_table(policy, names, {told["job"]: {**told, "verdict": "refused"}}, [1])[0]
    assert "GPUs" in check_table(policy, names, {}, [0])[0]
    policy.timetables.table.promises.clear()
    assert "is promised, and the table has None" in check_table(policy, names, {}, [1])[0]


def test_a_deadline_shorter_than_a_lease_is_kept_from_now_on_or_refused(tmp_path: Path) -> None:
    """600 s of work and a deadline in 1000 s, leases of 20 minutes: it begins at once, or is refused."""
    rig = _rig(tmp_path, policy="chronus")
    first = _told(rig, "sleep 600", expected=600, deadline=1000)
    second = _told(rig, "sleep 600", expected=600, deadline=1000)
    assert (first["verdict"], second["verdict"]) == ("promised", "refused")
    assert "from now on" in first["text"]
    assert second["earliest_s"] > second["deadline_s"]
    play(rig, 700)
    job = rig.service.store.book.jobs[first["job"]]
    assert (str(job.state), len(job.attempts)) == ("succeeded", 1)


def test_an_answer_is_journaled_kept_and_told_by_why(tmp_path: Path) -> None:
    rig = _rig(tmp_path)
    first = _told(rig, "sleep 100", expected=100, deadline=200)
    second = _told(rig, "sleep 100", expected=100, deadline=200)
    assert (first["verdict"], second["verdict"]) == ("promised", "refused")
    for told in (first, second):
        job = told["job"]
        (event,) = [one for one in rig.service.desk.events(ADMIN, job) if one.kind == "deadline"]
        assert (event.data["verdict"], event.data["text"]) == (told["verdict"], told["text"])
        assert told["text"] in rig.service.desk.why(ADMIN, job)["text"]
    before = {row: one.leases.tolist() for row, one in _table(rig).timetables.table.promises.items()}
    rig.service.store.snapshot()
    rig.restart()
    assert [rig.service.desk.deadline(ADMIN, told["job"]) for told in (first, second)] == [first, second]
    rig.service.tick()
    assert {row: one.leases.tolist() for row, one in _table(rig).timetables.table.promises.items()} == before
    assert [rig.service.desk.deadline(ADMIN, told["job"]) for told in (first, second)] == [first, second]


def test_another_deadline_is_another_question(tmp_path: Path) -> None:
    rig = _rig(tmp_path)
    _told(rig, "sleep 100", expected=100, deadline=200)
    refused = _told(rig, "sleep 100", expected=100, deadline=200)
    rig.service.desk.set(ADMIN, refused["job"], {"deadline": refused["earliest_s"] - rig.backend.now_s})
    rig.service.tick()
    assert rig.service.desk.deadline(ADMIN, refused["job"])["verdict"] == "promised"


def test_who_promises_nothing_says_so(tmp_path: Path) -> None:
    rig = _rig(tmp_path)
    told = _told(rig, "sleep 100", expected=100, deadline=900)
    held = rig.submit("sleep 100", expected=100, deadline=900, after=told["job"])
    rig.service.tick()
    waits = rig.service.desk.deadline(ADMIN, held)
    assert (waits["verdict"], waits["soon"]) == ("unanswered", False)
    assert f"after job {told['job']}" in waits["text"]
    assert "expected" in _told(rig, "sleep 100", deadline=900)["text"]
    rig.service.admin.set_policy(ADMIN, "fifo")
    rig.service.tick()
    now = rig.service.desk.deadline(ADMIN, told["job"])
    assert now["verdict"] == "at risk"
    assert "what 'chronus:lease=40,slot=20' had promised holds no more" in now["text"]
    assert _told(rig, "sleep 100", expected=100, deadline=50)["verdict"] == "impossible"


def test_a_job_that_nobody_may_stop_waits_where_it_would_break_a_promise(tmp_path: Path) -> None:
    rig = _rig(tmp_path)
    busy = _told(rig, "sleep 60", expected=60, deadline=130)
    later = _told(rig, "sleep 60", expected=60, deadline=300)
    assert (busy["verdict"], later["verdict"]) == ("promised", "promised")
    fixed = rig.submit("sleep 500", preemptible=False)
    while rig.service.store.book.active:
        play(rig, 10)
    jobs = rig.service.store.book.jobs
    assert all(jobs[told["job"]].last.ended_s <= told["deadline_s"] for told in (busy, later))
    assert jobs[fixed].last.launched_s >= jobs[later["job"]].last.ended_s
