"""The desks over a store and fakes of everything else."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cotenant.backends.base import NodeInfo, Stream
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import parse_job
from cotenant.core.reasons import Cause, Reason
from cotenant.journal import Entry
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.desk.admin import Admin
from cotenant.service.desk.desk import Desk
from cotenant.service.facade import (
    Caller,
    Conflict,
    NotFound,
    Role,
    Unavailable,
    WhatIfWatch,
    Which,
)
from cotenant.service.forecasts.background import Forecasts
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.store.store import Store

ADMIN = Caller("root", Role.ADMIN)
ANN, BOB, EVE = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "blue"), Caller("eve", Role.VIEWER, "red")
COUNTERS = ("decisions", "decision_s", "decision_timeouts", "preemptions", "suspensions", "lost_work_s", "moves")


class Others:
    """Planner, machines, reports and logs, of which only what a test says is true."""

    def __init__(self) -> None:
        self.reasons: dict[str, Reason] = {}
        self.said: dict[str, Any] = {}
        self.state, self.woken, self.asked = "up", 0, list[str]()
        self.foretold: dict[str, Foretold | None] = {}
        self.look = lambda: None

    def why(self, job: str, now_s: float) -> Reason | None:
        self.asked.append(job)
        return self.reasons.get(job)

    def forecast(self, policies: Sequence[str], watch: WhatIfWatch) -> dict[str, dict[str, Foretold | None]]:
        return {name: {"1": Foretold(2000.0 + at, 1900.0, 2500.0 + at)} for at, name in enumerate(policies)}

    def scene(self, policy: str = "") -> Any:
        return SimpleNamespace(name="fifo", now_s=1000.0)

    def foretell(self, scene: Any, rest_s: float) -> tuple[dict[str, Foretold | None], float]:
        return self.foretold, 0.0

    def close(self) -> None:
        pass

    def check(self, policy: str) -> None:
        if policy not in ("fifo", "srtf"):
            raise InputError(f"unknown policy '{policy}'")

    def nodes(self) -> list[NodeInfo]:
        return [NodeInfo("n0", "gpu", 4, 8, 64.0, state=self.state)]  # type: ignore[arg-type]

    def wake(self) -> None:
        self.woken += 1

    def open_log(self, key: str, stream: Stream) -> Any:
        return key, stream

    def of(self, job: str) -> Any:
        self.look()
        return self.said.get(job)


class Office:
    """Both desks, over one store."""

    def __init__(self, home: Path) -> None:
        self.disk, self.others, self.now_s = MemoryStore(), Others(), 1000.0
        self.store = Store(MemoryJournal(self.disk), lambda: self.now_s)
        self.forecasts = Forecasts(self.store, self.others, self.others.of, 5.0, self.others)
        self.desk = Desk(self.store, self.others, self.others, self.others.of, self.forecasts)
        self.ready = False
        self.admin = Admin(self.store, self.others, self.others, home, dict.fromkeys(COUNTERS, 0.0), lambda: self.ready)

    def submit(self, caller: Caller = ADMIN, **fields: Any) -> str:
        return self.desk.submit(caller, [parse_job({"run": "true", **fields})])[0][0]

    def happens(self, kind: str, job: str = "", **data: Any) -> None:
        self.store.write([Entry(kind, job, data)])

    def runs(self, job: str, *gpus: int) -> None:
        self.happens("launch", job, gpus=[["n0", gpus or [0]]])
        self.happens("started", job)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_only_the_planner_knows_why_a_job_waits_that_could_start(office: Office) -> None:
    runs, waits, held = office.submit(), office.submit(), office.submit()
    chained = office.submit(after=[runs])
    office.runs(runs)
    office.desk.hold(ADMIN, held)
    office.others.reasons[waits] = Reason(waits, 1000.0, Cause.OVER_QUOTA, "red has all it may have", 1)
    causes = {job: office.desk.why(ADMIN, job)["cause"] for job in (runs, waits, held, chained)}
    assert causes == {runs: "running", waits: "over quota", held: "held", chained: "waiting for another job"}
    assert office.others.asked == [waits]
    del office.others.reasons[waits]
    assert office.desk.why(ADMIN, waits)["cause"] == "waiting for capacity"
    office.others.state = "down"
    assert office.desk.why(ADMIN, waits)["text"] == "no node is up"
    with pytest.raises(NotFound):
        office.desk.why(BOB, waits)


def test_whatif_is_the_planners_forecast(office: Office) -> None:
    one, two = office.submit(name="a"), office.submit(name="b")
    answer = office.desk.whatif(ADMIN, ["srtf", "fifo"])
    assert answer["policies"] == ["fifo", "srtf"]
    assert answer["jobs"] == [
        {"id": one, "name": "a", "fifo": 2000.0, "srtf": 2001.0, "forecasts": {
            "fifo": {"expected_end_s": 2000.0, "expected_end_low_s": 1900.0, "expected_end_high_s": 2500.0},
            "srtf": {"expected_end_s": 2001.0, "expected_end_low_s": 1900.0, "expected_end_high_s": 2501.0},
        }},
        {"id": two, "name": "b", "fifo": None, "srtf": None, "forecasts": {}},
    ]  # fmt: skip
    assert office.desk.whatif(ANN, [])["jobs"] == []
    told = office.submit(name="c", expected=60)
    office.others.said[one] = SimpleNamespace(step=1, total=9, step_time_s=2.0, metrics={})
    answer = office.desk.whatif(ADMIN, [])
    assert (answer["assumed"], answer["assumed_s"], told) == ([two], 3600.0, "3")


def test_no_answer_holds_the_lock_while_it_is_built(office: Office) -> None:
    """While ten thousand jobs are listed somebody else submits."""
    office.desk.submit(ADMIN, [parse_job({"run": "true", "array": "0-9999"})])
    for number in range(5):
        office.runs(f"1.{number}")
    free = []

    def look() -> None:
        if not free:
            taker = threading.Thread(target=lambda: free.append(office.store.lock.acquire(timeout=20)))
            taker.start()
            taker.join(20)

    office.others.look = look
    assert len(office.desk.jobs(ADMIN, limit=10_000)) == 10_000
    assert free == [True], "another thread had the lock"


def test_what_was_listed_stays_as_it_was(office: Office) -> None:
    job = office.submit()
    office.runs(job)
    office.happens("exit", job, to="failed", why="exit code 1")
    history, shown = office.desk.history(ADMIN), office.desk.jobs(ADMIN)
    office.happens("forget", jobs=[job])
    assert [(info.id, info.state, info.reason) for info in history] == [(job, "failed", "exit code 1")]
    assert [info.id for info in shown] == [job]
    assert office.desk.jobs(ADMIN) == []


def test_of_too_many_jobs_those_that_run_are_listed_and_the_rest_is_counted(office: Office) -> None:
    jobs = [office.submit(caller) for caller in (ANN, BOB, ANN, ANN)]
    office.runs(jobs[2])
    some = office.desk.jobs(ADMIN, limit=2)
    assert ([info.id for info in some], some.left_out) == ([jobs[0], jobs[2]], 2)
    pending = office.desk.jobs(ADMIN, Which(states=("pending",)), limit=2)
    assert ([info.id for info in pending], pending.left_out) == ([jobs[0], jobs[1]], 1)
    office.happens("exit", jobs[2], to="failed", why="exit code 1")
    assert [info.id for info in office.desk.jobs(ANN, limit=2)] == [jobs[0], jobs[3]]
    assert [info.id for info in office.desk.jobs(ADMIN, skip=1)] == jobs[1:]
    assert [info.id for info in office.desk.jobs(BOB)] == [jobs[1]]


def test_progress_and_company(office: Office) -> None:
    one, two, three = office.submit(ANN), office.submit(BOB), office.submit(ANN)
    for job in (one, two, three):
        office.runs(job, 0, 1)
    office.others.said[one] = SimpleNamespace(step=4, total=10, step_time_s=2.0, metrics={"loss": 0.5})
    info = office.desk.job(ADMIN, one)
    assert (info.step, info.total_steps, info.metrics, info.expected_end_s) == (4, 10, {"loss": 0.5}, 1012.0)
    assert info.reason == f"shares its GPUs with job {two} and job {three}"
    assert office.desk.job(ANN, one).reason == f"shares its GPUs with job {three} and another tenant's job"
    assert {item.id: item.reason for item in office.desk.jobs(ANN)}[one] == office.desk.job(ANN, one).reason
    (node,) = office.admin.nodes(ANN)
    assert (node.gpus_used, node.gpus_shared, node.jobs) == (2, 2, (one, three))


def test_the_story_of_a_job_in_words_and_without_secrets(office: Office) -> None:
    job = office.submit(ANN, env={"KEY": "hunter2"})
    office.admin.create_token(ADMIN, "x", Role.ADMIN, "")
    office.happens("promise", job, gpus=[["n0", [0, 1]], ["n1", [3]]])
    office.happens("memory", job, key="promoted", value=12.5)
    office.happens("promise", job, gpus=None)
    office.happens("memory", key="pairs", value=["x" * 1000])
    story = office.desk.events(ANN, job)
    assert [event.kind for event in story] == ["submit", "promise", "memory", "promise"]
    assert story[0].data["spec"]["env"] == {"KEY": "***"}
    assert story[1].data["text"] == "it starts on GPUs 0, 1 of n0 and GPU 3 of n1 as soon as others have left"
    assert story[2].data == {"key": "promoted", "text": "the policy remembers 'promoted': 12.5"}
    assert story[3].data["text"] == "it is promised no GPUs any more"
    everything = office.desk.events(ADMIN)
    assert [event.kind for event in everything] == ["submit", "promise", "memory", "promise", "memory"]
    assert len(everything[-1].data["text"]) < 300
    assert "hunter2" not in str(everything)
    assert [event.seq for event in office.desk.events(ANN, after=story[0].seq, limit=2)] == [e.seq for e in story[1:3]]


def test_changes_wake_the_scheduler_and_end_with_the_job(office: Office) -> None:
    job = office.submit(ANN, elastic={"min_gpus": 1, "max_gpus": 2})
    woken = office.others.woken
    office.desk.hold(ANN, job)
    office.desk.set(ANN, job, {"gpus": 2, "deadline": "1h:2,2h:1"})
    office.desk.set(ANN, job, {})
    assert office.others.woken == woken + 3
    info = office.desk.job(ANN, job)
    assert (info.gpus, info.reason, info.spec["deadline_steps"]) == (2, "held", ((3600.0, 2.0), (7200.0, 1.0)))
    for changes in ({"gpus": 3}, {"colour": "red"}):
        with pytest.raises(InputError):
            office.desk.set(ANN, job, changes)
    with pytest.raises(CotenantError, match="role"):
        office.desk.hold(EVE, job)
    with pytest.raises(NotFound):
        office.desk.cancel(BOB, job)
    office.desk.cancel(ANN, job)
    office.desk.cancel(ANN, job)
    with pytest.raises(Conflict):
        office.desk.resume(ANN, job)


def test_where_logs_are(office: Office) -> None:
    job = office.submit(ANN)
    assert office.desk.open_log(ANN, job) is None
    office.runs(job)
    office.happens("exit", job, to="pending", why="preempted")
    office.runs(job)
    assert office.desk.open_log(ANN, job, attempt=1) == ("1-1", "stdout")
    assert office.desk.open_log(ANN, job, "stderr") == ("1-2", "stderr")
    with pytest.raises(NotFound):
        office.desk.open_log(BOB, job)


def test_a_key_is_free_again_only_for_the_first_that_had_it(office: Office) -> None:
    spec = [parse_job({"run": "true"})]
    office.disk.room = 0
    with pytest.raises(Unavailable):
        office.desk.submit(ANN, spec, "k", "x")
    office.disk.room = None
    first = office.desk.submit(ANN, spec, "k", "y")
    assert office.desk.submit(ANN, spec, "k", "y") == first
    with pytest.raises(Conflict):
        office.desk.submit(ANN, spec, "k", "x")
    assert [info.id for info in office.desk.jobs(ADMIN)] == first[0]


def test_the_cluster(office: Office, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        office.admin.set_policy(ADMIN, "best")
    with pytest.raises(InputError, match="file"):
        office.admin.set_policy(ADMIN, "mine.py:Mine")
    office.admin.set_policy(ADMIN, "srtf")
    assert office.admin.policy() == "srtf"
    office.runs(office.submit(), 2)
    office.admin.drain(ADMIN, "n0")
    assert [node.state for node in office.admin.nodes(ADMIN)] == ["draining"]
    office.admin.drain(ADMIN, "n0", undo=True)
    numbers = office.admin.metrics()
    assert (numbers["cotenant_gpus"], numbers["cotenant_gpus_used"], numbers["cotenant_queue_length"]) == (4, 1, 0)
    assert numbers['cotenant_jobs{state="running"}'] == 1.0
    assert not office.admin.ready()
    office.ready = True
    assert office.admin.ready()
    for act in (office.admin.tokens, lambda caller: office.admin.backup(caller, "x.db")):
        with pytest.raises(CotenantError, match="role"):
            act(ANN)
    for path in ("../x.db", "."):
        with pytest.raises(InputError):
            office.admin.backup(ADMIN, path)
    office.admin.backup(ADMIN, "x.db")
    with pytest.raises(Conflict):
        office.admin.backup(ADMIN, "x.db")
    assert (tmp_path / "backups" / "x.db").exists()
