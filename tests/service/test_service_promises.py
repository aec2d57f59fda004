"""GPUs that a job was promised: no crash forgets them, and what is decided anew is decided once."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_memory import Crash
from service_kit import ADMIN, Rig

DEAF = "trap '' TERM; sleep 100"


def _promised(tmp_path: Path) -> tuple[Rig, str, str]:
    """A job that does not leave for a while, and the one that gets its GPUs then."""
    rig = Rig(tmp_path, "srtf:weigh=false", max_suspended=0)
    deaf = rig.submit(DEAF, gpus=4, expected=500)
    rig.ticks(2)
    next_one = rig.submit("sleep 9", gpus=2, expected=50)
    rig.ticks(1)
    assert rig.state(deaf) == "stopping"
    assert rig.service.store.book.promises == {next_one: (("n0", (0, 1)),)}
    return rig, deaf, next_one


def test_a_promise_outlives_the_service(tmp_path: Path) -> None:
    rig, deaf, next_one = _promised(tmp_path)
    rig.restart()
    rig.service.tick()
    assert rig.service.store.book.promises == {next_one: (("n0", (0, 1)),)}
    rig.finish()
    assert [event.kind for event in rig.service.desk.events(ADMIN, next_one)].count("promise") == 1
    assert len(rig.service.desk.job(ADMIN, deaf).attempts) == 2


def test_a_promise_that_could_be_kept_at_once_is_kept_or_taken_back(tmp_path: Path) -> None:
    rig, deaf, next_one = _promised(tmp_path)
    shorter = rig.submit("sleep 5", gpus=4, expected=5)
    rig.backend.kill(rig.service.store.book.jobs[deaf].key)  # while nobody looks
    rig.restart()
    rig.service.tick()
    assert [rig.state(job) for job in (deaf, next_one, shorter)] == ["pending", "pending", "starting"]
    assert not rig.service.store.book.promises
    rig.finish()
    (attempt,) = rig.service.desk.job(ADMIN, next_one).attempts
    assert sum(len(indexes) for _, indexes in attempt.nodes) == 2


def test_two_that_stand_still_on_the_same_gpus_do_not_go_on_together(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf:weigh=false")
    beside = rig.submit("sleep 20", gpus=2, expected=20, preemptible=False)
    jobs = []
    for expected in (500, 300, 13):  # each makes room for the next
        jobs.append(rig.submit(f"sleep {min(expected, 50)}", gpus=2, expected=expected))
        rig.ticks(3)
    assert [rig.state(job) for job in (beside, *jobs)] == ["running", "suspended", "suspended", "running"]
    assert len({str(rig.service.store.book.jobs[job].last.gpus) for job in jobs}) == 1
    for job in (beside, jobs[-1]):  # both leave at once: there is room for two
        rig.backend.kill(rig.service.store.book.jobs[job].key)
    rig.finish()


def test_a_promise_to_one_who_is_ended_where_it_stands_outlives_the_service(tmp_path: Path) -> None:
    fuse = ""

    def hook(point: str) -> None:
        if point == fuse:
            raise Crash(point)

    rig = Rig(tmp_path, "srtf:weigh=false", hook=hook)
    long = rig.submit("sleep 30", gpus=2, expected=500)
    other = rig.submit("sleep 40", gpus=2, expected=400, preemptible=False)
    rig.ticks(10)
    rig.submit("sleep 200", gpus=2, expected=1, preemptible=False)
    while rig.state(other) != "succeeded":
        rig.ticks(1)
    fuse = "before:kill"
    with pytest.raises(Crash):
        rig.ticks(10)
    fuse = ""
    job = rig.service.store.book.jobs[long]
    assert (job.state, job.stop_why) == ("suspended", "move")
    promises = dict(rig.service.store.book.promises)
    assert list(promises) == [long]
    rig.restart()
    rig.service.tick()
    assert rig.service.store.book.promises == promises
    rig.finish()
    assert rig.service.desk.job(ADMIN, long).attempts[1].nodes == promises[long]
    assert [event.kind for event in rig.service.desk.events(ADMIN, long)].count("promise") == 1
