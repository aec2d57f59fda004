"""The rungs as functions of a job and the time, terms as told to the runtime, limits as set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parts_kit import NODE, PartsRig

from cotenant.backends.fake import FakeBackend
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import Terms
from cotenant.runtime.protocol import Settings
from cotenant.service.executor.ladder import Rung, may_suspend, next_rung
from cotenant.service.observer.report import Report
from cotenant.service.planner.decision import Act
from cotenant.service.store.book import Book
from cotenant.service.store.job import Attempt, LiveJob

GRACE_S = 10.0


def _job(rung: str = "", rung_s: float = 100.0, seen: bool = True, mem_gib: float = 0.0, job: str = "1") -> LiveJob:
    attempt = Attempt(1, (("n0", (0,)),), 50.0, started_s=60.0 if seen else None)
    return LiveJob(
        job, 1, JobSpec("x", mem_gib=mem_gib), "t", "u", 0.0, JobState.STOPPING, stop_why="preempt", stop_asked_s=100.0,
        rung=rung, rung_s=rung_s, attempts=[attempt],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "now_s", "listens", "suspendable", "verb"),
    [
        (_job(), 100.0, False, False, "stop"),
        (_job(), 105.0, True, False, ""),
        (_job(), 110.1, True, False, "stop"),
        (_job(), 119.9, True, False, "stop"),
        (_job(), 120.1, True, False, "kill"),
        (_job("ask"), 105.0, True, True, ""),
        (_job("ask"), 105.0, False, True, "suspend"),
        (_job("ask"), 110.1, True, True, "suspend"),
        (_job("ask"), 110.1, True, False, "stop"),
        (_job("ask", seen=False), 105.0, False, True, ""),
        (_job("ask", seen=False), 110.1, False, True, "stop"),
        (_job("suspend"), 500.0, False, True, ""),
        (_job("stop", 130.0), 139.9, False, True, "stop"),
        (_job("stop", 130.0), 140.1, False, True, "kill"),
        (_job("kill"), 101.0, False, True, "kill"),
    ],
)
def test_the_next_rung(job: LiveJob, now_s: float, listens: bool, suspendable: bool, verb: str) -> None:
    rung = next_rung(job, now_s, GRACE_S, listens, suspendable)
    assert rung.verb == verb
    if rung.due_s < 1e9:
        later = next_rung(job, rung.due_s, GRACE_S, listens, suspendable)
        assert later.verb not in ("", verb), "there is something to do when it is due"


def test_a_job_being_suspended_is_left_alone() -> None:
    assert next_rung(_job("suspend"), 1e6, GRACE_S, False, True) == Rung()


def test_room_for_suspended_jobs() -> None:
    book, able = Book(), FakeBackend().capabilities()
    small, large = _job(mem_gib=20.0, job="1"), _job(mem_gib=14.0, job="2")
    assert may_suspend(small, book, [NODE], able, 2)
    assert not may_suspend(small, book, [NODE], able, 0)
    assert not may_suspend(large, book, [NODE], able, 2, going=[small]), "together more than half of the memory"
    assert may_suspend(_job(job="3"), book, [NODE], able, 2, going=[small])
    small.stop_why = ""
    book.suspended["1"] = small
    assert not may_suspend(_job(job="3"), book, [NODE], able, 1)


# -- terms -----------------------------------------------------------------------------------------------------------


def _listen(rig: PartsRig, monkeypatch: pytest.MonkeyPatch) -> dict[str, Settings]:
    """What jobs are told, and a report of all of them."""
    told: dict[str, Settings] = {}
    monkeypatch.setattr(rig.core.reports, "set_for", lambda job, new: told.update({job: new}))
    monkeypatch.setattr(rig.core.reports, "of", lambda job: Report(step=1, step_time_s=0.5))
    return told


def test_terms_are_told_and_told_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PartsRig(tmp_path)
    told = _listen(rig, monkeypatch)
    job = rig.submit("sleep 100", batch={"size": 64}, gpu_mem="30G")
    rig.does(Act("start", job, (("n0", (0,)),), terms=Terms(level=2, share=0.25), need_gib=12.0))
    assert rig.spec(job).gpu_mem_gib == 12.0
    assert told.pop(job) == Settings(batch_size=16, accumulation=4)
    rig.ticks(1)
    assert told.pop(job) == Settings(throttle_s=1.5)
    rig.ticks(3)
    assert told == {}
    rig.does(Act("terms", job, terms=Terms(level=2)))
    assert told.pop(job) == Settings(throttle_s=0.0)
    assert rig.core.executor.terms.of(rig.book.jobs[job]) == Terms(level=2)


def test_whom_an_earlier_service_may_have_slowed_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PartsRig(tmp_path)
    job = rig.start()
    rig.restart()
    told = _listen(rig, monkeypatch)
    rig.ticks(1)
    assert told.pop(job) == Settings(throttle_s=0.0)
    rig.ticks(1)
    assert told == {}


# -- cores and memory ------------------------------------------------------------------------------------------------


@pytest.fixture
def curves(tmp_path: Path) -> str:
    hungry = {"cores": [1, 2, 4], "steps_per_s": [10, 20, 40], "mem_gib": 20}
    light = {"cores": [0.5, 4], "steps_per_s": [25, 25]}
    (tmp_path / "curves.json").write_text(json.dumps({"curves": {"hungry": hungry, "light": light}}))
    return str(tmp_path / "curves.json")


def _limits(rig: PartsRig, job: str) -> tuple[Any, Any]:
    found = rig.backend.world.jobs[f"{job}-1"]
    return found.cpu_share, found.mem_gib


def test_cores_and_memory_are_dealt_out_and_set_again_after_a_restart(tmp_path: Path, curves: str) -> None:
    rig = PartsRig(tmp_path, allocator="synergy-tune:saturate=1", curves=curves)
    hungry, light = rig.submit("sleep 100", name="hungry"), rig.submit("sleep 100", name="light")
    rig.does(Act("start", hungry, (("n0", (0,)),)), Act("start", light, (("n0", (1,)),)))
    assert [_limits(rig, hungry), _limits(rig, light)] == [(4.0, 20.0), (2.0, None)]
    rig.ticks(7)
    assert _limits(rig, light) == (0.5, None), "no longer its share, for it has started"
    rig.backend.world.jobs[f"{hungry}-1"].cpu_share = None
    rig.restart()
    rig.ticks(1)
    assert _limits(rig, hungry)[0] == 4.0
