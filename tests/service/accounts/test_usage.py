"""Accounts add up: cut at any border, kept through retention, crashes, copies and upgrades, each run once."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crash_memory import ME, MemoryWorld, Step
from hypothesis import given, settings
from hypothesis import strategies as st
from service_kit import ADMIN, Rig

from cotenant.core.errors import InputError
from cotenant.core.jobspec import JobSpec
from cotenant.journal import open_journal
from cotenant.journal.codec import Stored, to_record
from cotenant.journal.copying import restore
from cotenant.journal.memory import MemoryStore
from cotenant.policies import registry
from cotenant.runtime.protocol import Checkpoint
from cotenant.service.accounts import archive
from cotenant.service.accounts.account import JobAccount, RunAccount, account_of
from cotenant.service.accounts.usage import BY, usage
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.options import Keep
from cotenant.service.store.book import Book
from cotenant.service.store.job import MOST_STRETCHES, Attempt

DAY_S = 86400.0
ALICE = Caller("alice", Role.USER, "vision")


def hours(report: dict[str, Any], *names: str) -> float:
    """GPU-hours of the line of this name."""
    by = report["by"]
    (found,) = [row["gpu_hours"] for row in report["rows"] if tuple(row[key] for key in by) == names]
    return float(found)


# -- the arithmetic ------------------------------------------------------------------------------------------------


@st.composite
def accounts(draw: st.DrawFn) -> list[JobAccount]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        marks = sorted(draw(st.lists(st.integers(1, 40 * 3600), min_size=2, max_size=8, unique=True)))
        had = tuple((float(a), float(b)) for a, b in list(pairwise(marks))[::2])
        end = draw(st.sampled_from(("", "succeeded", "failed", "lost", "preempt", "cancelled")))
        run = RunAccount(draw(st.integers(0, 8)), had, float(draw(st.integers(0, 9000))), end)
        who = draw(st.sampled_from(("a", "b"))), draw(st.sampled_from(("x", "y")))
        made.append(JobAccount(str(number), *who, "", "failed", 0.0, had[-1][1], (run,)))
    return made


@settings(max_examples=60, deadline=None)
@given(
    accounts(), st.lists(st.integers(0, 41 * 3600), min_size=1, max_size=4, unique=True), st.sets(st.sampled_from(BY))
)
def test_neighbouring_times_add_up_and_lines_add_up_to_the_total(
    jobs: list[JobAccount], borders: list[int], by: set[str]
) -> None:
    whole = usage(jobs, sorted(by), 0.0, 50 * 3600.0)
    true_gpu_s = sum(run.gpus * (b - a) for job in jobs for run in job.runs for a, b in run.had)
    assert whole["total"]["gpu_hours"] == pytest.approx(true_gpu_s / 3600)
    parts = [
        usage(jobs, sorted(by), a, b) for a, b in pairwise([0.0, *map(float, sorted(borders)), 50 * 3600.0]) if a < b
    ]
    for name in ("gpu_hours", "lost_gpu_hours", "failures", "preemptions", "started"):
        assert sum(part["total"][name] for part in parts) == pytest.approx(whole["total"][name]), name
        assert sum(row[name] for row in whole["rows"]) == pytest.approx(whole["total"][name]), name


def test_a_run_across_borders_and_midnights_is_cut_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs for 50 hours from 22:00 on, in a zone whose clocks go back in the second night (a day of 25 hours)."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        from_s = time.mktime((2026, 10, 23, 22, 0, 0, 0, 0, -1))
        run = RunAccount(2, ((from_s, from_s + 50 * 3600),), lost_s=3 * 3600.0, end="failed")
        job = JobAccount("1", "a", "x", "", "failed", from_s - 60, from_s + 50 * 3600, (run,))
        found = usage([job], ["day"], 0.0, from_s + DAY_S * 9)
        rows = {row["day"]: (row["gpu_hours"], row["lost_gpu_hours"], row["failures"]) for row in found["rows"]}
    finally:
        monkeypatch.undo()
        time.tzset()
    assert rows == {"2026-10-23": (4, 0, 0), "2026-10-24": (48, 0, 0), "2026-10-25": (48, 6, 1)}
    cut = usage([job], [], from_s + 10, from_s + 46)["total"]
    assert (cut["gpu_hours"] * 3600, cut["jobs"], cut["started"], cut["failures"]) == (72, 1, 0, 0)
    assert found["total"]["wait_mean_s"] == 60
    assert found["total"]["jobs"] == 1


def test_bad_questions_are_refused() -> None:
    with pytest.raises(InputError, match="unknown --by 'tennant'"):
        usage([], ["tennant"], 0.0, 1.0)
    with pytest.raises(InputError, match="--from must be before --to"):
        usage([], ["tenant"], 2.0, 2.0)


# -- the service -----------------------------------------------------------------------------------------------------


def test_what_a_service_did_is_accounted_by_tenant_and_user(tmp_path: Path) -> None:
    rig = Rig(tmp_path, policy="srtf:weigh=false")
    nlp = Caller("bob", Role.USER, "nlp")
    rig.submit("sleep 100", ALICE, gpus=2, model="resnet50")
    rig.submit("exit 3", nlp)
    rig.ticks(10)
    big = rig.submit("sleep 30", ALICE, gpus=4, expected=1)
    rig.ticks(10)
    report = rig.service.accounts.usage(ADMIN, ("tenant", "user"))
    running = rig.service.accounts.usage(ALICE, ("state",))
    assert [(row["tenant"], row["user"]) for row in report["rows"]] == [("nlp", "bob"), ("vision", "alice")]
    assert report["rows"][0]["failures"] == 1
    assert running["total"]["gpu_hours"] == pytest.approx(hours(report, "vision", "alice")), "up to now"
    rig.finish()
    report = rig.service.accounts.usage(ADMIN, ("model",))
    assert hours(report, "resnet50") == pytest.approx(200 / 3600, abs=2 / 3600)
    assert (report["total"]["preemptions"], report["total"]["lost_gpu_hours"]) == (1, 0), "it was suspended"
    assert rig.state(big) == "succeeded"
    assert {row["tenant"] for row in rig.service.accounts.usage(ALICE, ("tenant",))["rows"]} == {"vision"}
    assert rig.service.accounts.usage(Caller("eve", Role.VIEWER, "none"))["rows"] == []


def test_what_was_not_saved_is_lost_work(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    job = rig.submit("sleep 100; exit 1", gpus=2)
    rig.ticks(70)
    rig.says(job, Checkpoint(70, "", 1.0))
    rig.finish()
    (row,) = rig.service.accounts.usage(ADMIN)["rows"]
    assert row["lost_gpu_hours"] * 3600 == pytest.approx(2 * 30, abs=4)
    assert row["gpu_hours"] * 3600 == pytest.approx(2 * 100, abs=2)


def test_accounts_outlive_their_jobs_restarts_and_copies(tmp_path: Path) -> None:
    rig = Rig(tmp_path, keep=Keep(DAY_S))
    rig.submit("sleep 50", ALICE, gpus=2)
    rig.submit("exit 1", ALICE)
    rig.finish()
    before = rig.service.accounts.usage(ADMIN, BY)
    later_s = rig.backend.now_s + 5.0
    rig.backend.advance(2 * DAY_S)
    rig.submit("sleep 5", ALICE)
    rig.finish()
    assert [job.id for job in rig.service.desk.jobs(ADMIN)] == ["3"]
    assert not any(row[3] in ("1", "2") for row in rig.store.rows), "nothing else is left of them"
    rig.restart()
    after = rig.service.accounts.usage(ADMIN, BY, to_s=later_s)
    assert (after["rows"], after["total"]) == (before["rows"], before["total"])
    rig.service.store.journal.backup(tmp_path / "copy.db")
    restore(tmp_path / "copy.db", str(tmp_path / "new.db"))
    with open_journal(str(tmp_path / "new.db")) as journal:
        kept = list(archive.read_archive(journal, journal.last_seq))
    assert {job.id for job in kept} == {"1", "2"}
    assert usage(kept, BY, 0.0, later_s)["rows"] == before["rows"]
    assert not [event for event in rig.service.desk.events(ADMIN) if event.kind == "account"]


def test_books_of_older_versions_are_accounted_by_what_they_know() -> None:
    """Their attempts say when they were launched and ended, but not when they had their GPUs."""
    import json

    rows = [
        {
            "number": 1,
            "gpus": [["n0", [0, 1]]],
            "launched_s": 10.0,
            "started_s": 11.0,
            "ended_s": 20.0,
            "why": "preempted",
        },
        {"number": 2, "gpus": [["n0", [0]]], "launched_s": 30.0, "started_s": 31.0},
    ]
    spec = JobSpec("true", gpus=2).as_dict()
    job = {"id": "1", "order": 1, "spec": spec, "tenant": "a", "user": "x", "submitted_s": 4.0, "state": "running"}
    data = {"jobs": [{**job, "attempts": rows}], "tokens": {}, "drained": [], "policy": "fifo", "next_id": 2, "seq": 9}
    book = Book.thaw(json.dumps({**data, "rungs": []}).encode())
    found = account_of(book.jobs["1"], 40.0)
    told = [(run.gpus, run.had, run.lost_s, run.end) for run in found.runs]
    assert told == [(2, ((10.0, 20.0),), 0.0, "stopped"), (1, ((30.0, 40.0),), 0.0, "")]
    assert dict(book.gpu_s) == {"a": 20.0}
    assert JobAccount.read(json.loads(json.dumps(found))) == found


def test_an_attempt_that_takes_turns_for_ever_stays_small_and_its_length_exact() -> None:
    attempt = Attempt(1, (("n0", (0, 1)),), 0.0)
    for turn in range(2 * MOST_STRETCHES):
        attempt.taken_s = 100.0 * turn
        attempt.give_back(100.0 * turn + 30.0)
    assert len(attempt.had) == MOST_STRETCHES
    assert sum(b - a for a, b in attempt.had) == pytest.approx(30.0 * 2 * MOST_STRETCHES)
    assert all(a <= b <= c for (a, b), (c, _) in pairwise(attempt.had))
    assert attempt.had[-1] == (99_900.0, 99_930.0)


# -- crashes ---------------------------------------------------------------------------------------------------------


class Unpruned(MemoryStore):
    """Remembers every record that was ever written."""

    def __init__(self) -> None:
        self.ever: dict[int, Stored] = {}
        super().__init__()

    @property
    def rows(self) -> list[Stored]:  # type: ignore[override]
        return self._rows

    @rows.setter
    def rows(self, rows: list[Stored]) -> None:
        self._rows = rows
        self.ever.update((row[0], row) for row in rows)


def gpu_seconds_by_the_records(store: Unpruned) -> float:
    """Worked out without the book: who was given GPUs, and when they were given back."""
    size: dict[str, int] = defaultdict(int)
    since_s: dict[str, float] = {}
    found = 0.0
    for _, row in sorted(store.ever.items()):
        record = to_record(row)
        now_s, data = record.data["written_s"], record.data
        if record.kind == "launch":
            size[record.job] = sum(len(indexes) for _, indexes in data["gpus"])
        if record.kind in ("launch", "continue"):
            since_s[record.job] = now_s
        elif record.kind in ("suspended", "exit") and record.job in since_s:
            began_s, at_s = since_s.pop(record.job), data.get("at_s", now_s)
            if record.kind == "suspended" or "at_s" in data:
                found += size[record.job] * max(at_s - began_s, 0.0)
    assert not since_s
    return found


def _play(home: Path, *crash_at: int) -> tuple[MemoryWorld, CoreService]:
    world = MemoryWorld(home, crash_at=frozenset(crash_at), keep=Keep(jobs_s=4.0))
    world.store = Unpruned()
    done: set[str] = set()

    def submit(*specs: JobSpec) -> Any:
        def act(service: CoreService) -> None:  # what was accepted is known by its number, though long forgotten
            missing = [spec for spec in specs if spec.name not in done]
            first = service.store.book.next_id
            for spec in missing:
                if not any(to_record(row).data["spec"]["name"] == spec.name for row in submits(world)):
                    service.desk.submit(ME, [spec])
                done.add(spec.name)
            assert service.store.book.next_id >= first

        return act

    steps = [
        Step(0, submit(JobSpec("sleep 6", name="long", gpus=2, expected_s=600),
                       JobSpec("trap '' TERM; sleep 7", name="deaf", gpus=2, expected_s=500))),
        Step(3, submit(JobSpec("sleep 2", name="short", gpus=3, expected_s=2))),
        Step(4, submit(JobSpec("exit 3", name="fails", retries=1, expected_s=1))),
        Step(16, submit(JobSpec("sleep 3", name="late", gpus=1, expected_s=1))),
        Step(30, submit(JobSpec("sleep 1", name="last", gpus=1, expected_s=1))),
    ]  # fmt: skip
    return world, world.run(steps)


def submits(world: MemoryWorld) -> list[Stored]:
    assert isinstance(world.store, Unpruned)
    return [row for row in world.store.ever.values() if row[2] == "submit"]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.store.store.SNAPSHOT_EVERY", 9)
    monkeypatch.setattr("cotenant.service.retention.RETIRE_EVERY_S", 5.0)
    monkeypatch.setattr(registry, "known_policies", functools.cache(registry.known_policies))


def _check_crash(home: Path, step: int, point: str) -> None:
    """After a crash at this step the accounts say what all records ever written say."""
    world, service = _play(home, step)
    assert isinstance(world.store, Unpruned)
    total = service.accounts.usage(ME, ("user",))["total"]
    assert len(service.store.book.jobs) < 6 == total["jobs"], (step, point)
    true_gpu_s = gpu_seconds_by_the_records(world.store)
    assert total["gpu_hours"] * 3600 == pytest.approx(true_gpu_s), (step, point)
    assert sum(service.store.book.gpu_s.values()) == pytest.approx(true_gpu_s), (step, point)
    assert (total["failures"], total["started"]) == (2, 6), (step, point)
    assert true_gpu_s > 30
    assert total["preemptions"] >= 2


@pytest.mark.usefixtures("often")
def test_no_run_is_lost_or_counted_twice_by_a_crash_in_retention(tmp_path: Path) -> None:
    points = _play(tmp_path)[0].fuse.points
    first = points.index("before:account") + 1
    assert {"after:account", "before:forget", "after:forget", "after:snapshot"} <= set(points[first:])
    for step in range(first, first + 7):
        _check_crash(tmp_path, step, points[step - 1])


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_no_run_is_lost_or_counted_twice_by_a_crash_anywhere(tmp_path: Path) -> None:
    quiet, _ = _play(tmp_path)
    for step in quiet.fuse.distinct():
        _check_crash(tmp_path, step, quiet.fuse.points[step - 1])
