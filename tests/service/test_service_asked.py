"""What people ask of several jobs at once: arrays, ranges, filters; dependencies; waiting again."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from service_kit import ADMIN, Rig

from cotenant.beliefs.training import Trainings
from cotenant.core.errors import InputError
from cotenant.core.jobspec import parse_job
from cotenant.runtime.protocol import Progress
from cotenant.service.facade import Caller, Conflict, NotFound, Role, Which
from cotenant.service.observer.report import Report

ANN, BOB = Caller("ann", Role.USER, "red"), Caller("bob", Role.USER, "blue")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def meant(rig: Rig, *jobs: str, caller: Caller = ADMIN) -> list[str]:
    return [info.id for info in rig.service.desk.jobs(caller, Which(jobs))]


def test_arrays_elements_ranges_and_names(rig: Rig) -> None:
    single, array = rig.submit(name="one"), rig.submit(name="many", array="0-5")
    assert meant(rig, array) == meant(rig, "many") == [f"{array}.{k}" for k in range(6)]
    assert meant(rig, f"{array}_3", f"{array}.3", single) == [single, f"{array}.3"]
    assert meant(rig, f"{array}_[1-3,5,9]") == [f"{array}.{k}" for k in (1, 2, 3, 5)]
    for wrong in (f"{array}_7", f"{array}_[", "9", "nobody", f"{array}_[8-9]"):
        with pytest.raises(NotFound):
            meant(rig, wrong)
    with pytest.raises(NotFound):
        meant(rig, array, caller=ANN)
    with pytest.raises(NotFound, match=f"array of 6 jobs: name one of them, e.g. {array}.0"):
        rig.service.desk.job(ADMIN, array)
    assert rig.service.desk.job(ADMIN, f"{array}_2").id == f"{array}.2"


def test_filters(rig: Rig) -> None:
    anns, bobs = rig.submit(caller=ANN, name="a"), rig.submit(caller=BOB, name="b")
    rig.ticks(1)
    waits = rig.submit(caller=BOB, gpus=4, name="b")
    for which, found in (
        (Which(users=("bob",)), [bobs, waits]), (Which(tenants=("red",)), [anns]), (Which(names=("b",)), [bobs, waits]),
        (Which(names=("b",), states=("pending",)), [waits]), (Which((anns, waits), states=("pending",)), [waits]),
    ):  # fmt: skip
        assert [info.id for info in rig.service.desk.jobs(ADMIN, which)] == found
        assert rig.service.desk.jobs(Caller("eve", Role.VIEWER, "green"), Which(which.jobs and (), which.states)) == []


def test_one_that_refuses_does_not_keep_the_others_from_it(rig: Rig) -> None:
    done = rig.submit("true")
    rig.finish()
    array = rig.submit("sleep 100", array="0-3")
    outcomes = rig.service.desk.change(ADMIN, "cancel", Which(("29", done, f"{array}_[1-2]")))
    assert [(item.id, bool(item.error)) for item in outcomes] == [
        ("29", True), (done, True), (f"{array}.1", False), (f"{array}.2", False),
    ]  # fmt: skip
    assert {info.id: str(info.state) for info in rig.service.desk.jobs(ADMIN)}[f"{array}.2"] == "cancelled"
    assert [item.id for item in rig.service.desk.change(ADMIN, "hold", Which((array,)))] == [f"{array}.0", f"{array}.3"]
    assert rig.service.desk.change(BOB, "cancel", Which(states=("pending",))) == []
    assert len(rig.service.desk.change(ADMIN, "cancel", Which(names=("job",)))) == 2
    assert rig.service.desk.change(ADMIN, "cancel", Which((array,)))[0].error == f"all jobs of '{array}' have ended"
    with pytest.raises(InputError, match="verb"):
        rig.service.desk.change(ADMIN, "explode", Which((array,)))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "gavel"])
def test_of_an_array_only_so_many_run_at_a_time(tmp_path: Path, policy: str) -> None:
    """Held ones give their turn to others; a restart changes nothing."""
    rig = Rig(tmp_path, policy, round_s=5.0)
    array = rig.submit("sleep 5", array="0-5%2")
    rig.service.desk.hold(ADMIN, f"{array}.0")
    for step in range(60):
        rig.ticks(1)
        on = [job for job in rig.service.store.book.on_gpus if job.startswith(f"{array}.")]
        assert len(on) <= 2
        if step == 2:
            assert sorted(on) == [f"{array}.1", f"{array}.2"]
            said = rig.service.desk.why(ADMIN, f"{array}.4")
            assert (said["cause"], said["text"]) == ("waiting for its array", "its array runs 2 at a time")
            rig.restart()
        if step == 8:
            rig.service.desk.resume(ADMIN, f"{array}.0")
    rig.finish()
    assert [str(info.state) for info in rig.service.desk.jobs(ADMIN)] == ["succeeded"] * 6


def test_a_suspended_element_waits_for_its_turn(rig: Rig) -> None:
    array = rig.submit("sleep 10", array="0-3%1")
    rig.ticks(2)
    rig.service.desk.hold(ADMIN, f"{array}.0")
    rig.ticks(3)
    assert [rig.state(f"{array}.{k}") for k in range(2)] == ["suspended", "running"]
    rig.service.desk.resume(ADMIN, f"{array}.0")
    rig.ticks(2)
    assert [rig.state(f"{array}.{k}") for k in range(2)] == ["suspended", "running"]
    rig.finish()
    assert [rig.attempts(f"{array}.{k}") for k in range(4)] == [[1]] * 4


def test_after_any_and_after_failed(rig: Rig) -> None:
    good, bad = rig.submit("sleep 2"), rig.submit("sleep 2; exit 1")
    jobs = {how: rig.submit("sleep 1", after=[how]) for how in (f"ok:{good}", f"any:{bad}", f"failed:{bad}")}
    never = {how: rig.submit("sleep 1", after=[how]) for how in (f"ok:{bad}", f"failed:{good}")}
    waits = rig.service.desk.why(ADMIN, jobs[f"any:{bad}"])
    assert (waits["cause"], waits["text"]) == ("waiting for another job", f"after job {bad}")
    rig.finish()
    assert [rig.state(job) for job in jobs.values()] == ["succeeded"] * 3
    assert [rig.state(job) for job in never.values()] == ["cancelled"] * 2
    reasons = [rig.service.desk.job(ADMIN, job).reason for job in never.values()]
    assert reasons == [
        f"job {bad}, which it comes after, has failed", f"job {good}, after whose failure it was to run, has succeeded",
    ]  # fmt: skip
    for wrong in ("maybe:1", "ok:"):
        with pytest.raises(InputError, match="ok:ID, any:ID or failed:ID"):
            parse_job({"run": "true", "after": wrong})


def test_requeue_stops_and_waits_again(rig: Rig) -> None:
    runs, stands = rig.submit("sleep 10", gpus=2), rig.submit("sleep 10", gpus=2)
    rig.ticks(2)
    rig.service.desk.hold(ADMIN, stands)
    rig.ticks(2)
    for job in (runs, stands):
        rig.service.desk.requeue(ADMIN, job)
    rig.service.desk.resume(ADMIN, stands)
    rig.finish()
    assert [rig.state(job) for job in (runs, stands)] == ["succeeded"] * 2
    assert rig.attempts(runs, stands) == [2, 2]
    assert rig.service.desk.job(ADMIN, runs).attempts[0].why == "requeued, signal 15"
    waits = rig.submit(gpus=4)
    with pytest.raises(Conflict, match="waits already"):
        rig.service.desk.requeue(ADMIN, waits)
    with pytest.raises(Conflict, match="has succeeded"):
        rig.service.desk.requeue(ADMIN, runs)


def test_resubmit_gives_new_jobs_like_the_old_ones(rig: Rig) -> None:
    old = rig.submit("sleep 1", caller=ANN, env={"SECRET": "x"}, name="a")
    array = rig.submit("sleep 1", caller=ANN, array="0-3%2", after=[old])
    rig.finish()
    ((new,),) = rig.service.desk.resubmit(ANN, Which((old,)), {"gpus": 2, "name": "b"})
    spec = rig.service.store.book.jobs[new].spec
    assert (spec.run, spec.env, spec.gpus, spec.name, spec.tenant) == ("sleep 1", {"SECRET": "x"}, 2, "b", "red")
    (ids,) = rig.service.desk.resubmit(ADMIN, Which((f"{array}_[1-2]",)), {})
    first = rig.service.store.book.jobs[ids[0]].spec
    assert [id_.partition(".")[2] for id_ in ids] == ["1", "2"]
    assert (first.env, first.array_most, first.after) == ({"COTENANT_ARRAY_INDEX": "1"}, 2, ())
    rig.finish()
    with pytest.raises(NotFound):
        rig.service.desk.resubmit(BOB, Which((old,)), {})
    with pytest.raises(Conflict, match="has an environment: only ann or an admin"):
        rig.service.desk.resubmit(Caller("amy", Role.USER, "red"), Which((old,)), {"run": "env"})


def test_only_admins_raise_priorities(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_priority=2)
    for priority, caller in ((2, ANN), (-5, ANN), (100, ADMIN)):
        job = rig.submit(caller=caller, priority=priority)
        assert rig.service.desk.job(ADMIN, job).priority == priority
    with pytest.raises(InputError, match="field 'priority' is 3: your token may ask for at most 2, an admin for more"):
        rig.submit(caller=ANN, priority=3)
    mine = rig.submit(caller=ANN)
    with pytest.raises(InputError, match="at most 2"):
        rig.service.desk.set(ANN, mine, {"priority": 3})
    rig.service.desk.set(ADMIN, mine, {"priority": 3})
    rig.service.desk.set(ANN, mine, {"name": "still-mine"})
    assert rig.service.desk.job(ADMIN, mine).priority == 3


def test_steps_and_metrics_stay_after_the_end(rig: Rig) -> None:
    job = rig.submit("sleep 5")
    rig.ticks(2)
    rig.says(job, Progress(7, 10, step_time_s=0.5, metrics={"loss": 0.25, "bad": math.nan}))
    rig.finish()
    for service in (rig.service, rig.restart()):
        info = service.desk.job(ADMIN, job)
        assert (info.step, info.total_steps, info.step_time_s, info.metrics["loss"]) == (7, 10, 0.5, 0.25)
        assert math.isnan(info.metrics["bad"])
        assert service.desk.jobs(ADMIN)[0].step == 7


def test_metrics_that_are_no_numbers_do_not_reach_policies(rig: Rig) -> None:
    """A batch, an accuracy or a noise that is not a number is as good as none."""
    job = rig.submit("sleep 50", elastic={"min_gpus": 1, "max_gpus": 4}, batch={"size": 8, "max": 64})
    rig.ticks(2)
    live = rig.service.store.book.jobs[job]
    wrong = dict.fromkeys(("batch", "accuracy", "gradient_noise", "epoch_samples", "loss"), math.nan)
    tables = []
    for metrics in (wrong, {}):
        trainings, report = Trainings(), Report(step=3, total=10, step_time_s=1.0, metrics=metrics)
        trainings.look(live, report)
        tables.append(trainings.table([job], {job: live}, {job: report}, 4, 10.0))
    for name in ("batch", "samples", "epoch_size", "loss", "first_loss", "accuracy", "noise"):
        told, silent = getattr(tables[0], name), getattr(tables[1], name)
        assert (told == silent).all(), name


def test_a_requeued_or_resumed_job_does_not_show_why_it_stopped(rig: Rig) -> None:
    job = rig.submit("sleep 50", preemptible=False)
    rig.ticks(2)
    rig.service.desk.hold(ADMIN, job)
    rig.ticks(3)
    rig.service.desk.resume(ADMIN, job)
    assert rig.service.desk.job(ADMIN, job).reason == "waiting for GPUs"
    rig.ticks(2)
    assert (rig.state(job), rig.service.desk.job(ADMIN, job).reason) == ("running", "")


def test_a_time_limit_that_was_over_while_the_service_was_stopped(rig: Rig) -> None:
    """Its keeper has ended it: that is a time-out, and no reason to try again."""
    job = rig.submit("sleep 30; kill -15 $$", max_runtime=20, retries=3)
    rig.ticks(2)
    rig.backend.advance(40)
    rig.restart()
    rig.ticks(1)
    info = rig.service.desk.job(ADMIN, job)
    assert (str(info.state), info.reason) == ("failed", "ran longer than max_runtime 20 s")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a\n"}, r"field 'name' is 'a\\n': use letters"), ({"tenant": "t\n"}, "field 'tenant'"),
        ({"env": {"BIG": "x" * 200_000}}, r"field 'env\.BIG' has 200005 bytes; at most 131072: put it into a file"),
        ({"run": "x" * 200_000}, "field 'run' has"), ({"array": "0-9%0"}, "how many may run at a time"),
        ({"array": "0-9%x"}, "how many may run at a time"),
    ],
)  # fmt: skip
def test_what_could_not_be_run_is_refused_when_it_is_read(fields: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_job({"run": "true", **fields})


def test_a_relative_folder_for_checkpoints_is_the_submitters(rig: Rig) -> None:
    job = rig.submit(checkpoint={"dir": "ck"}, workdir="/data/ann")
    assert rig.service.store.book.jobs[job].spec.checkpoint_dir == "/data/ann/ck"
    with pytest.raises(InputError, match=r"field 'checkpoint\.dir' is 'ck': write an absolute path"):
        rig.submit(checkpoint={"dir": "ck"})


def test_the_newest_events(rig: Rig) -> None:
    jobs = [rig.submit() for _ in range(5)]
    assert [event.job for event in rig.service.desk.events(ADMIN, limit=2, newest=True)] == jobs[-2:]
    assert len(rig.service.desk.events(ADMIN, jobs[0], limit=5, newest=True)) == 1
