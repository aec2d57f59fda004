"""A home that commit 7050bf1 left behind when it was killed (see `record_home.py`) opens, and its jobs are finished."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend, Script, read_script
from cotenant.core.jobspec import parse_job
from cotenant.journal import open_journal
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Conflict, JobInfo, Role

ADMIN = Caller("root", Role.ADMIN)
RECORDED = Path(__file__).parent / "home_7050bf1"
ANSWERS: dict[str, Any] = json.loads((RECORDED / "answers.json").read_text())
WORLD: dict[str, Any] = json.loads((RECORDED / "world.json").read_text())
IDS = {job["name"]: job["id"] for job in ANSWERS["jobs"]}
AGAIN = parse_job({"run": "sleep 40", "name": "again", "gpus": 2, "expected": 30})


def _world() -> FakeBackend:
    """The processes as they were at the moment of the kill."""
    left_s = {job["key"]: job["left_s"] for job in WORLD["jobs"]}

    def behave(spec: LaunchSpec) -> Script:
        return replace(read_script(spec), duration_s=left_s.pop(spec.key, read_script(spec).duration_s))

    backend = FakeBackend([NodeInfo(**node) for node in WORLD["nodes"]], behave)
    backend.world.now_s = WORLD["now_s"]
    for job in WORLD["jobs"]:
        gpus = tuple((node, tuple(indexes)) for node, indexes in job["gpus"])
        backend.launch(LaunchSpec(key=job["key"], job=job["job"], workdir="", script=job["script"], gpus=gpus))
        backend.advance(0.0)
        if job["state"] == "suspended":
            backend.suspend(job["key"])
        backend.world.jobs[job["key"]].started_s = job["started_s"]
    return backend


@pytest.fixture
def service(tmp_path: Path) -> Iterator[CoreService]:
    """Opened, not reconciled yet."""
    with sqlite3.connect(tmp_path / "journal.db") as database:
        database.executescript((RECORDED / "journal.sql").read_text())
    database.close()
    backend = _world()
    clock = lambda: backend.now_s  # noqa: E731
    journal = open_journal(str(tmp_path / "journal.db"), clock)
    made = CoreService(journal, backend, home=tmp_path, grace_s=5.0, clock=clock, inline=True)
    yield made
    journal.close()


def _finish(service: CoreService) -> None:
    backend = service.backend
    assert isinstance(backend, FakeBackend)
    until_s = backend.now_s + 1000
    while any(not job.held for job in service.store.book.active.values()):
        wait_s = service.tick()
        used: list[tuple[str, int]] = []
        for job in backend.world.jobs.values():
            if job.state in ("starting", "running"):
                used += [(node, index) for node, indexes in job.spec.gpus for index in indexes]
        assert len(used) == len(set(used)), "a GPU has two jobs"
        assert backend.now_s < until_s, {job.id: str(job.state) for job in service.store.book.active.values()}
        backend.wait_change(max(wait_s, 0.01))


def _infos(service: CoreService) -> dict[str, JobInfo]:
    return {info.id: service.desk.job(ADMIN, info.id) for info in service.desk.jobs(ADMIN)}


def test_every_answer_is_the_same_as_before_the_upgrade(service: CoreService) -> None:
    now = {name: json.loads(json.dumps(info.as_dict())) for name, info in _infos(service).items()}
    assert list(now) == [job["id"] for job in ANSWERS["jobs"]]
    for before in ANSWERS["jobs"]:
        for key in before.keys() - {"reason"}:  # why it waits is said in other words
            assert now[before["id"]][key] == before[key], (before["id"], key)
    assert service.store.book.policy == ANSWERS["policy"] == "srtf"
    assert service.store.book.costs.rows() == [row for row in ANSWERS["costs"] if not row[0]]
    assert ANSWERS["costs"]
    assert service.store.book.seq == ANSWERS["seq"]


def test_tokens_keys_and_drained_nodes_are_known(service: CoreService) -> None:
    assert service.admin.authenticate("ct_of-alice-in-tests") == Caller("alice", Role.USER, "a")
    assert service.admin.authenticate("ct_of-mallory-in-tests") is None
    assert service.desk.submit(ADMIN, [AGAIN], "twice", "the same") == [[IDS["again"]]]
    with pytest.raises(Conflict):
        service.desk.submit(ADMIN, [AGAIN], "twice", "another")
    assert [node.state for node in service.admin.nodes(ADMIN)] == ["up", "draining"]
    ((new,),) = service.desk.submit(ADMIN, [AGAIN], "new", "new")
    assert int(new) == 1 + max(int(job["id"].split(".")[0]) for job in ANSWERS["jobs"])


def test_what_runs_stands_still_and_waits_is_adopted_and_finished_once(service: CoreService) -> None:
    service.reconcile()
    jobs = service.store.book.jobs
    assert {name: str(jobs[IDS[name]].state) for name in ("stays", "away", "measured", "held", "unborn")} == {
        "stays": "running", "away": "running", "measured": "suspended", "held": "pending", "unborn": "pending",
    }  # fmt: skip
    _finish(service)
    assert [job.id for job in service.store.book.active.values()] == [IDS["held"]]
    assert service.admin.nodes(ADMIN)[1].state == "drained"
    service.desk.resume(ADMIN, IDS["held"])
    _finish(service)
    infos = _infos(service)
    ends = {"fails": "failed", "cancelled": "cancelled"}
    for before in ANSWERS["jobs"]:
        info = infos[before["id"]]
        assert str(info.state) == ends.get(info.name, "succeeded"), info
        tries = 2 if info.name == "unborn" else 1  # its launch was journaled, but did not happen
        assert len(info.attempts) == tries, info
        assert sum(attempt.lost_s for attempt in info.attempts if attempt.exit_code == 0) == 0.0
        if before["state"] == "running":  # it was let alone
            assert info.started_s == before["started_s"]
            assert json.loads(json.dumps(info.attempts[0].nodes)) == before["attempts"][0]["nodes"]
    for name in ("first", "row", "second", "unborn"):
        assert {node for node, _ in infos[IDS[name]].attempts[-1].nodes} == {"n0"}, "n1 is drained"
    assert (infos[IDS["second"]].started_s or 0) >= (infos[IDS["first"]].ended_s or 1e9)


def test_the_story_goes_on_where_it_was(service: CoreService) -> None:
    service.reconcile()
    _finish(service)
    kinds = [event.kind for event in service.desk.events(ADMIN, IDS["measured"])]
    before = ["submit", "launch", "started", *("stop", "rung", "suspended", "continue", "continued"), "stop", "rung"]
    assert kinds == [*before, "suspended", "continue", "continued", "exit"]
    ended = [event.kind for event in service.desk.events(ADMIN, IDS["done"])]
    assert ended == ["submit", "launch", "started", "exit"]
