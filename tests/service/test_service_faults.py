"""A service whose journal, disk or clock fails, in virtual time: nothing lost, doubled, or killed that should live."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from service_kit import ADMIN, Rig

from cotenant.core.jobspec import parse_job
from cotenant.journal import JournalFull
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.core import CoreService
from cotenant.service.facade import Unavailable
from cotenant.service.observer.unknown import UnknownJobs
from cotenant.service.options import Keep

DAY_S = 86400.0


class Faulty(Rig):
    """A rig whose clock can be set (`set_s`) while the world's own time goes on, and whose home can change journals."""

    def __init__(self, home: Path, policy: str = "fifo", **more: Any) -> None:
        self.set_s, self.unknown = 0.0, ""
        super().__init__(home, policy, **more)

    def _open(self, policy: str) -> CoreService:
        journal = MemoryJournal(self.store, clock=lambda: self.backend.now_s)
        service = CoreService(
            journal, self.backend, home=self.home, policy=policy, grace_s=5.0, inline=True, check_invariants=True,
            clock=lambda: self.backend.now_s + self.set_s, steady=lambda: self.backend.now_s,
            unknown_jobs=self.unknown, **self.more,
        )  # fmt: skip
        try:
            service.reconcile()
        except BaseException:
            journal.close()
            raise
        return service

    def look(self) -> str:
        """One look as the scheduler's loop takes it: what it could not do is said, and that is all."""
        try:
            self.service.tick()
        except Unavailable as error:
            return str(error)
        return ""

    def looks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.backend.advance(1.0)
            self.look()

    def alive(self) -> list[str]:
        return [key for key, job in self.backend.world.jobs.items() if job.state in ("starting", "running")]

    def told(self) -> dict[str, list[str]]:
        """What was done to whom in the world."""
        return {key: job.told for key, job in self.backend.world.jobs.items() if job.told}


@pytest.fixture
def rig(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path)


# -- a journal that does not know what runs --------------------------------------------------------------------------


def _run_two(rig: Faulty) -> list[str]:
    jobs = [rig.submit("sleep 1000", env={"SEED": "7"}), rig.submit("sleep 1000", gpus=2)]
    rig.ticks(2)
    return jobs


@pytest.mark.parametrize("journal", ["emptied", "older", "of another service"])
def test_a_journal_that_does_not_know_the_running_jobs_is_refused(rig: Faulty, journal: str) -> None:
    old = len(rig.store.rows)
    _run_two(rig)
    alive = rig.alive()
    right, rig.store = rig.store, MemoryStore()
    if journal == "older":
        rig.store.rows = right.rows[:old]
        rig.store.last_seq = old
    elif journal == "of another service":
        _fill_another(rig.store, rig.home / "another")
    for _ in range(2):
        with pytest.raises(
            UnknownJobs, match=r"2 jobs here that the journal does not know, 2 of them running \(1-1, 2-1"
        ):
            rig.restart()
        assert (rig.alive(), rig.told()) == (alive, {})
    rig.store = right
    rig.restart()
    rig.finish(step_s=60.0)
    assert rig.attempts("1", "2") == [1, 1]


def _fill_another(store: MemoryStore, home: Path) -> None:
    """Another service's journal, in which the same ids are other jobs, long ended."""
    home.mkdir()
    other = Faulty(home)
    for _ in range(3):
        other.submit("sleep 1")
    other.finish()
    other.service.close()
    store.rows, store.snapshot, store.last_seq = other.store.rows, other.store.snapshot, other.store.last_seq


def test_unknown_jobs_can_be_adopted(rig: Faulty) -> None:
    jobs = _run_two(rig)
    rig.backend.set_node("n0", up=False)
    rig.ticks(2)
    rig.backend.set_node("n0", up=True)
    rig.ticks(3)
    assert rig.attempts(*jobs) == [2, 2]
    alive = rig.alive()
    rig.store, rig.unknown = MemoryStore(), "adopt"
    rig.restart()
    assert (rig.alive(), rig.told()) == (alive, {})
    rig.ticks(1)
    spec = rig.service.store.book.jobs[jobs[0]].spec
    assert (rig.state(jobs[0]), spec.run, spec.env) == ("running", "sleep 1000", {"SEED": "7"})
    rig.unknown = ""
    rig.restart()
    later = rig.submit("sleep 1")
    assert later == "3"
    rig.finish(step_s=60.0)
    assert rig.attempts(*jobs) == [2, 2]
    assert {rig.state(job) for job in jobs} == {"succeeded"}


def test_unknown_jobs_of_another_journal_are_not_mistaken_for_its_own(rig: Faulty) -> None:
    _run_two(rig)
    rig.store = MemoryStore()
    _fill_another(rig.store, rig.home / "another")
    rig.unknown = "adopt"
    with pytest.raises(UnknownJobs, match="cannot be adopted: the journal has another job 1"):
        rig.restart()
    assert len(rig.alive()) == 2


def test_unknown_jobs_can_be_ended(rig: Faulty) -> None:
    _run_two(rig)
    rig.store, rig.unknown = MemoryStore(), "end"
    rig.restart()
    assert rig.alive() == []
    rig.unknown = ""
    rig.restart()
    job = rig.submit("sleep 1")
    rig.finish(step_s=60.0)
    assert rig.state(job) == "succeeded"


def test_what_ended_after_the_backup_does_not_run_again(rig: Faulty) -> None:
    """An older journal still calls it running; how it ended stands beside its log."""
    ends, fails = rig.submit("sleep 20"), rig.submit("sleep 20; exit 3")
    rig.ticks(2)
    rows, seq = list(rig.store.rows), rig.store.last_seq
    rig.ticks(30)
    assert (rig.state(ends), rig.state(fails)) == ("succeeded", "failed")
    rig.store = MemoryStore()
    rig.store.rows, rig.store.last_seq = rows, seq
    rig.restart()
    rig.finish(step_s=60.0)
    assert (rig.state(ends), rig.state(fails), rig.attempts(ends, fails)) == ("succeeded", "failed", [1, 1])


# -- a journal that goes away ----------------------------------------------------------------------------------------


def test_ten_minutes_without_a_journal(rig: Faulty) -> None:
    """Jobs that end meanwhile are noted once with their real times, those that wait start when it is back."""
    short, long_, waits = rig.submit("sleep 60"), rig.submit("sleep 5000"), rig.submit("sleep 30", gpus=3)
    rig.ticks(2)
    began_s = rig.service.desk.job(ADMIN, short).started_s
    assert (rig.state(waits), began_s is not None) == ("pending", True)
    rig.store.away = True
    for _ in range(600):
        rig.backend.advance(1.0)
        assert "does not answer" in rig.look()
    assert "does not answer" in rig.service.admin.trouble()
    with pytest.raises(Unavailable, match="nothing was accepted"):
        rig.submit("sleep 1")
    for refused in (rig.service.desk.cancel, rig.service.desk.hold):
        with pytest.raises(Unavailable):
            refused(ADMIN, long_)
    assert (rig.state(short), rig.told()) == ("running", {})
    rig.store.away = False
    assert rig.look() == ""
    assert rig.service.admin.trouble() == ""
    assert (rig.state(short), rig.service.desk.job(ADMIN, short).ended_s) != ("running", None)
    (attempt,) = rig.service.desk.job(ADMIN, short).attempts
    assert attempt.ended_s == began_s + 60.0
    rig.finish(6000.0, step_s=60.0)
    assert [rig.state(job) for job in (short, long_, waits)] == ["succeeded"] * 3
    assert rig.attempts(short, long_, waits) == [1, 1, 1]
    assert len(rig.service.desk.jobs(ADMIN)) == 3


def test_a_decision_that_could_not_be_journaled_is_taken_again(rig: Faulty) -> None:
    jobs = [rig.submit("sleep 10") for _ in range(6)]
    rig.store.room = 3  # less than the launches need
    assert "no space" in rig.look()
    assert rig.alive() == []
    rig.store.room = None
    rig.finish()
    assert rig.attempts(*jobs) == [1] * 6


# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_on_a_full_disk_cancel_works(rig: Faulty, crash: bool) -> None:
    fills, waits = rig.submit("trap '' TERM; sleep 5000", gpus=4, retries=3), rig.submit("sleep 5000")
    rig.ticks(2)
    rig.store.room = 0
    assert "no space left" in rig.service.admin.trouble()
    with pytest.raises(Unavailable):
        rig.submit("sleep 1")
    rig.service.desk.cancel(ADMIN, fills)
    rig.service.desk.cancel(ADMIN, fills)
    rig.service.desk.cancel(ADMIN, waits)
    rig.look()
    assert rig.backend.world.jobs[f"{fills}-1"].told == ["terminate"]
    rig.looks(8)
    assert (rig.alive(), rig.state(fills)) == ([], "running")  # gone, though it is not written yet
    rig.store.room = None
    if crash:
        rig.restart()
    rig.ticks(2)
    assert [rig.state(fills), rig.state(waits)] == ["cancelled", "cancelled"]
    assert rig.attempts(fills, waits) == [1, 0]
    assert rig.service.admin.trouble() == ""


def test_a_cancel_that_cannot_even_be_kept_is_refused(rig: Faulty) -> None:
    job = rig.submit("sleep 100")
    rig.ticks(2)
    (rig.home / "owed").unlink()
    rig.store.room = 0
    with pytest.raises(Unavailable) as refused:
        rig.service.desk.cancel(ADMIN, job)
    assert isinstance(refused.value.__cause__, JournalFull)
    assert rig.look() == "" or rig.alive() == [f"{job}-1"]


# -- a clock that is set ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_s", [DAY_S, -DAY_S])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_by_a_day_harms_nobody(tmp_path: Path, by_s: float, restarts: bool) -> None:
    rig = Faulty(tmp_path, "fifo")
    limited = rig.submit("sleep 100", max_runtime=300)
    overdue = rig.submit("sleep 5000", max_runtime=200)
    deaf = rig.submit("trap '' TERM; sleep 5000", gpus=2)
    first = rig.submit("sleep 10", gpus=4)
    ids = rig.service.desk.submit(ADMIN, [parse_job({"run": "sleep 1", "gpus": 4})], "key", "asked")
    rig.ticks(50)
    rig.set_s = by_s
    if restarts:
        rig.restart()
    second = rig.submit("sleep 10", gpus=4)
    rig.service.desk.cancel(ADMIN, deaf)
    rig.ticks(2)
    assert rig.told() == {f"{deaf}-1": ["terminate"]}
    rig.ticks(2)
    assert rig.told() == {f"{deaf}-1": ["terminate"]}  # the grace period lasts as long as ever
    rig.ticks(5)
    assert rig.state(deaf) == "cancelled"
    assert rig.service.desk.submit(ADMIN, [parse_job({"run": "sleep 1", "gpus": 4})], "key", "asked") == ids
    rig.ticks(60)
    assert (rig.state(limited), rig.state(overdue)) == ("succeeded", "running")
    rig.ticks(100)
    assert rig.state(overdue) == "failed"
    rig.finish()
    starts = [rig.service.desk.job(ADMIN, job).started_s or 0.0 for job in (first, ids[0][0], second)]
    assert starts == sorted(starts)
    (attempt,) = rig.service.desk.job(ADMIN, overdue).attempts
    assert 199.0 <= (attempt.ended_s or 0.0) - (attempt.started_s or 0.0) <= 210.0
    assert [record.kind for record in rig.service.store.journal.read()].count("clock") == 2


def test_a_job_that_starts_while_the_clock_is_set(rig: Faulty) -> None:
    """The world still says the old time of its start; by that it would have been overdue for a day."""
    job = rig.submit("sleep 50", max_runtime=100)
    rig.service.tick()
    rig.set_s = DAY_S
    rig.finish()
    assert rig.state(job) == "succeeded"


# -- a service that is not there -------------------------------------------------------------------------------------


def test_a_service_that_was_stopped_for_ten_minutes(rig: Faulty) -> None:
    short, long_, waits = rig.submit("sleep 60"), rig.submit("sleep 5000"), rig.submit("sleep 30", gpus=3)
    rig.ticks(2)
    started_s = rig.service.desk.job(ADMIN, short).started_s
    assert started_s is not None
    rig.backend.advance(600)
    rig.restart()
    rig.ticks(1)
    (attempt,) = rig.service.desk.job(ADMIN, short).attempts
    assert (rig.state(short), attempt.ended_s) == ("succeeded", started_s + 60.0)
    rig.finish(6000.0, step_s=60.0)
    assert [rig.state(job) for job in (long_, waits)] == ["succeeded", "succeeded"]
    assert rig.attempts(short, long_, waits) == [1, 1, 1]


@pytest.mark.parametrize("jobs", ["keep", "stop"])
def test_shutting_down_with_and_without_the_jobs(tmp_path: Path, jobs: str) -> None:
    rig = Faulty(tmp_path, "srtf")
    runs, waits = rig.submit("sleep 1000", gpus=4), rig.submit("sleep 2000", gpus=4)
    still = rig.submit("sleep 3000", gpus=4)
    rig.ticks(2)
    over: list[bool] = []
    rig.service.on_over(lambda: over.append(True))
    rig.service.admin.shut_down(ADMIN, jobs)
    rig.ticks(8)
    assert over
    alive = rig.alive()
    rig.restart()
    assert rig.alive() == alive == ([f"{runs}-1"] if jobs == "keep" else [])
    assert rig.service.desk.job(ADMIN, runs).reason.startswith("stopped with the service") == (jobs == "stop")
    rig.finish(7000.0, step_s=60.0)
    assert [rig.state(job) for job in (runs, waits, still)] == ["succeeded"] * 3
    assert rig.attempts(runs, waits) == ([1, 1] if jobs == "keep" else [2, 1])


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_checkpoints_outlive_the_record_unless_told_otherwise(tmp_path: Path) -> None:
    rig = Faulty(tmp_path, keep=Keep(jobs_s=7200.0, logs_s=3600.0))
    job = rig.submit("echo text; sleep 1")
    rig.finish()
    rig.backend.advance(3700)
    rig.ticks(1)
    assert (rig.state(job), rig.backend.world.kept) == ("succeeded", {})
    rig.backend.advance(3700)
    rig.ticks(1)
    assert rig.service.store.book.jobs == {}
    assert rig.backend.world.checkpoints == {job}


def test_a_record_of_another_version_of_the_service_is_kept(rig: Faulty) -> None:
    """Not every process that the book does not name is its to end: only attempts that it has launched are."""
    job = rig.submit("sleep 100")
    rig.ticks(2)
    spec = rig.backend.world.jobs[f"{job}-1"].spec
    rig.backend.launch(replace(spec, key="99-1", job="99", gpus=(("n0", (3,)),)))
    rig.ticks(3)
    assert (rig.alive(), rig.told()) == ([f"{job}-1", "99-1"], {})
