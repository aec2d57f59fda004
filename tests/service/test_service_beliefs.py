"""What the service believes of jobs: first steps are cold, starts take a while, words and costs are learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from service_kit import ONE, Rig

from cotenant.beliefs.host_pace import HostPace
from cotenant.core import columns as col
from cotenant.runtime.protocol import Hello, Progress, Restored
from cotenant.service.planner.beliefs import LiveBeliefs
from cotenant.service.planner.forecast import Patience, forecast
from cotenant.service.planner.scene import work_doubt
from cotenant.workload.profiles.lifecycle import UNKNOWN
from cotenant.workload.profiles.profile_file import Measured, MeasuredModel, ProfileFile

TRAIN = "python train.py; sleep 1000"
BUSY = (("first", 0.5), ("waits", 0.5), ("busy", 0.95))


def speak(rig: Rig, job: str, step: int, total: int, ready_s: float, step_s: float = 0.0) -> None:
    """As the runtime does, from a process that was launched with its attempt."""
    age_s = rig.backend.now_s - rig.service.store.book.jobs[job].last.launched_s
    rig.says(job, Progress(step, total, step_s, {}, True, age_s, ready_s, 1 if ready_s else 0))


def left_s(rig: Rig, job: str) -> float:
    """What the policy at work believes is left of a job."""
    rig.service.tick()
    session = rig.service.planner.live  # type: ignore[attr-defined]
    view = session.engine.view_of(np.array([session.follower.row_of[job]]), rig.backend.now_s)
    return float(view.remaining_s[0])


def column(rig: Rig, job: str, number: int) -> float:
    session = rig.service.planner.live  # type: ignore[attr-defined]
    return float(session.tables.state.f[session.follower.row_of[job], number])


def beliefs(rig: Rig) -> LiveBeliefs:
    found: LiveBeliefs = rig.service.planner.live.follower.beliefs  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("old", [False, True], ids=["runtime", "older runtime"])
def test_cold_first_steps_put_nobody_behind(tmp_path: Path, old: bool) -> None:
    """A job of 140 steps of 0.1 s, whose first takes 10 s and whose second takes 5; another waits that lasts 30 s."""
    rig = Rig(tmp_path, "srtf", ONE)
    job, other = rig.submit(TRAIN, expected=25), rig.submit("sleep 30", expected=30)
    rig.ticks(2)
    assert rig.state(job) == "running"
    for passed_s, step, mean_s in ((10.0, 1, 10.0), (5.0, 2, 7.5), (0.1, 3, 5.0), (0.1, 4, 3.8)):
        rig.backend.advance(passed_s)
        if old:
            rig.says(job, Progress(step, 140, mean_s, saves=True))
        else:
            speak(rig, job, step, 140, 12.0, 0.1)
        assert left_s(rig, job) < 60
        if step == 1 or not old:
            assert (rig.state(job), rig.state(other)) == ("running", "pending")
    for step in range(5, 60, 2):
        rig.backend.advance(0.2)
        speak(rig, job, step, 140, 12.0, 0.1)
    assert left_s(rig, job) == pytest.approx(81 * 0.1 + 1.0, rel=0.15)


def test_a_start_is_learned_for_others_of_the_kind_and_survives_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", ONE)
    first, second = rig.submit(TRAIN, expected=100), rig.submit(TRAIN, expected=100)
    rig.ticks(1)
    assert [beliefs(rig).phases(rig.service.store.book.jobs[job]).start_s for job in (first, second)] == [10.0, 10.0]
    rig.ticks(22)
    for step in range(1, 6):
        speak(rig, first, step, 1000, 23.0)
        rig.ticks(1)
    for _ in range(2):
        book = rig.service.store.book
        assert book.jobs[first].last.start_s == pytest.approx(22.0, abs=1.1)
        assert beliefs(rig).phases(book.jobs[second]).start_s == pytest.approx(22.0, abs=1.1)
        rig.restart()
        rig.ticks(1)


def test_work_begins_when_the_start_is_over(tmp_path: Path) -> None:
    """One that has called but made no step has done nothing, however long it takes; one that never calls just runs."""
    rig = Rig(tmp_path, "srtf")
    calls, silent = rig.submit(TRAIN, expected=100), rig.submit("sleep 100", expected=100)
    rig.ticks(1)
    rig.says(calls, Hello("", calls, 1, 1))
    rig.ticks(29)
    assert left_s(rig, silent) == pytest.approx(70, abs=1.1)
    assert left_s(rig, calls) == pytest.approx(90)  # 10 s of the 100 are believed to be its start
    assert column(rig, calls, col.WARM) > rig.backend.now_s
    speak(rig, calls, 1, 1000, 30.0)
    rig.ticks(1)
    assert column(rig, calls, col.WARM) == pytest.approx(rig.backend.now_s - 1.0)
    again = rig.restart()
    again.tick()
    rig.says(calls, Hello("", calls, 1, 1))
    rig.ticks(1)
    assert column(rig, calls, col.DONE) <= 22  # of 32 s


def test_restoring_is_apart_from_starting(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", ONE)
    job = rig.submit(TRAIN)
    rig.ticks(20)
    rig.says(job, Restored(500, "", 4.0))
    for step in range(501, 506):
        age_s = rig.backend.now_s - rig.service.store.book.jobs[job].last.launched_s
        rig.says(job, Progress(step, 1000, 1.0, {}, True, age_s, 20.0, 501))
        rig.ticks(1)
    book = rig.service.store.book
    assert beliefs(rig).phases(book.jobs[job]).start_s == pytest.approx(15.0, abs=1.1)
    assert beliefs(rig).phases(book.jobs[job]).restore_s == pytest.approx(4.0)


def test_a_user_who_says_too_much_is_corrected(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "srtf", ONE)
    for _ in range(4):
        rig.submit("sleep 10", expected=100)
    rig.finish()
    job = rig.submit("sleep 10", expected=100)
    assert left_s(rig, job) < 25


@pytest.mark.parametrize(("start_s", "stands"), [(30.0, 1), (0.5, 0)])
def test_the_cheaper_way_out_is_taken(tmp_path: Path, start_s: float, stands: int) -> None:
    """A job that can save, and can be suspended: it saves where its start is short."""
    rig = Rig(tmp_path, "srtf", ONE)
    job = rig.submit(TRAIN, expected=1000)
    rig.ticks(1)
    book = rig.service.store.book
    ready_s = rig.backend.now_s + start_s - book.jobs[job].last.launched_s
    rig.backend.advance(start_s)
    for step in range(1, 40):
        speak(rig, job, step, 10_000, ready_s)
        rig.backend.advance(0.1)
    rig.ticks(1)
    assert beliefs(rig).ways(book.jobs[job], stands=True) == (stands, 3)
    assert beliefs(rig).ways(book.jobs[job], stands=False) == (0, 2)  # so many are suspended already


def test_a_finished_job_says_how_long_its_end_takes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "fifo", ONE)
    job, other = rig.submit("python train.py; sleep 20"), rig.submit("python train.py")
    rig.ticks(16)
    for step in range(1, 11):
        speak(rig, job, step, 10, 16.0)
        rig.backend.advance(0.1)
    rig.ticks(5)
    assert rig.state(job) == "succeeded"
    assert beliefs(rig).phases(rig.service.store.book.jobs[other]).exit_s == pytest.approx(3.0, abs=1.5)


def test_a_word_is_judged_by_jobs_that_still_run(tmp_path: Path) -> None:
    """Both are said to take 100 s. The first has made steps of 0.9 s since its start of 10 s, 100 of them in all."""
    rig = Rig(tmp_path, "fifo", ONE)
    first, second = rig.submit(TRAIN, expected=100), rig.submit(TRAIN, expected=100)
    rig.ticks(2)
    jobs = [rig.service.store.book.jobs[job] for job in (first, second)]
    assert beliefs(rig).words(jobs, {}) == {}
    rig.backend.advance(10.0)
    for step in range(1, 31):
        speak(rig, first, step, 100, 10.0, 0.9)
        rig.backend.advance(0.9)
    words = beliefs(rig).words(jobs, {})
    (((_, *who), off),) = words.items()
    assert (who, off) == (["default", jobs[0].user], [pytest.approx(0.01, abs=0.02)])  # 10 + 100 x 0.9 + 1 to leave
    beliefs(rig).pairing.company[first] = [jobs[1]]  # steps in company, or held back, say nothing
    assert beliefs(rig).words(jobs, {}) == {}
    before, after = beliefs(rig).duration(jobs[1], {}), beliefs(rig).duration(jobs[1], {}, words=words)
    assert (before.least_s, before.spread) == (after.least_s, pytest.approx(0.5))
    assert after.spread == pytest.approx(0.167, abs=0.01)


def profiled(home: Path) -> Rig:
    """A service that knows a profile, by which its models make a step a second and start in 20 s."""
    cycle = replace(UNKNOWN, start_s=20.0)
    models = {name: MeasuredModel(on={"gpu": Measured(1, 1.0, busy=busy, lifecycle=cycle)}) for name, busy in BUSY}
    ProfileFile("gpu", {"gpu": 80.0}, models).save(home / "profile.json")
    return Rig(home / "home", "fifo", ONE, profile=str(home / "profile.json"))


def test_starts_of_some_models_tell_of_the_host_and_so_of_others(tmp_path: Path) -> None:
    """By the profile all start in 20 s. The first needs 24 here: 1 / (1 + 0.1^2 / 0.07^2) of that is the host."""
    rig = profiled(tmp_path)
    jobs = [rig.submit(TRAIN, expected=100, model=name) for name in ("first", "waits", "busy", "first", "strange")]
    rig.ticks(1)
    before = rig.service.planner.scene("fifo")
    assert (before.pace, before.start_shift.tolist()) == (HostPace(), [0.0] * 5)
    assert before.bound.tolist() == pytest.approx([1.0, 1.0, 0.05, 1.0, 1.0])
    rig.backend.advance(24.0)
    for step in range(1, 31):
        speak(rig, jobs[0], step, 70, 26.0)
        rig.backend.advance(1.0)
        rig.service.tick()
    scene = rig.service.planner.scene("fifo")
    assert scene.jobs == jobs
    took_s = rig.service.store.book.jobs[jobs[0]].last.start_s
    assert took_s == pytest.approx(24.0, abs=1.1)
    shift = np.log(took_s / 20) / (1 + 0.1**2 / 0.07**2)
    assert scene.pace.shift == pytest.approx(shift)
    assert scene.pace.spread == pytest.approx((0.07**-2 + 0.1**-2) ** -0.5)
    # Of its own model it is known how long a start takes here, of one that nobody has measured nothing is.
    assert scene.start_shift.tolist() == pytest.approx([0.0, scene.pace.shift, scene.pace.shift, 0.0, 0.0])
    assert scene.start_spread.tolist() == [0.1, 0.1, 0.1, 0.1, 0.3]
    assert scene.bound.tolist() == pytest.approx([0.0, 1.0, 0.05, 1.0, 1.0])  # what it does is seen
    assert scene.work_shift.tolist() == [0.0] * 5  # words are their owner's, whatever the profile's host was
    told, _ = forecast(scene, Patience(rest_s=0.0))
    scene.start_shift = np.zeros(5)
    before_s, _ = forecast(scene, Patience(rest_s=0.0))
    later_s = [one.end_s - was.end_s for job in jobs[:3] if (one := told[job]) and (was := before_s[job])]
    assert later_s == pytest.approx([0.0, 20 * (np.exp(shift) - 1), 40 * (np.exp(shift) - 1)])


def test_steps_that_are_the_profiles_go_with_the_host_until_they_are_seen(tmp_path: Path) -> None:
    rig = profiled(tmp_path)
    rig.submit(TRAIN, expected=100, model="first")
    rig.ticks(1)
    job, pace = next(iter(rig.service.store.book.active.values())), HostPace(0.1, 0.05)
    assert work_doubt(beliefs(rig), job, pace) == (0.0, 1.0)
    rig.backend.advance(24.0)
    speak(rig, job.id, 1, 70, 26.0)
    assert work_doubt(beliefs(rig), job, pace) == pytest.approx((0.1, 1.0))
    for step in range(2, 31):
        rig.backend.advance(1.0)
        speak(rig, job.id, step, 70, 26.0)
    assert work_doubt(beliefs(rig), job, pace) == (0.0, 0.0)
