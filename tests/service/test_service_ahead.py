"""Jobs that are started ahead of their GPUs: ready when these are free, and never at work before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ahead_kit import START_S, AheadRig
from crash_memory import Crash
from service_kit import ADMIN, EPOCH_S

import effort
from cotenant.backends.base import NodeInfo
from cotenant.service.facade import Caller, Role

TRAIN = "sleep 30"
ANN, BOB = Caller("ann", Role.USER, "a"), Caller("bob", Role.USER, "b")
DEAF = "trap '' TERM; sleep 100"


def _chain(rig: AheadRig, jobs: int = 4) -> list[str]:
    """One after the other on one GPU; the first tells what its kind can do."""
    names = [rig.submit(TRAIN, expected=30, gpu_mem=10) for _ in range(jobs)]
    rig.ticks(2)
    rig.knows(names[0])
    return names


def _at_the_barrier(tmp_path: Path) -> tuple[AheadRig, list[str]]:
    rig = AheadRig(tmp_path)
    names = _chain(rig)
    rig.ticks(34)
    assert list(rig.service.store.book.ahead) == [names[1]]
    return rig, names


@pytest.mark.parametrize("prefetch", [False, True])
def test_starts_are_hidden_behind_the_job_before(tmp_path: Path, prefetch: bool) -> None:
    rig = AheadRig(tmp_path, prefetch_starts=prefetch)
    names = _chain(rig)
    rig.finish()
    took_s = rig.backend.now_s - EPOCH_S
    assert took_s == pytest.approx(4 * 30 + START_S * (1 if prefetch else 4), abs=4)
    for name in names:
        (attempt,) = rig.service.desk.job(ADMIN, name).attempts
        assert (attempt.exit_code, attempt.lost_s) == (0, 0.0)
    last = rig.service.store.book.jobs[names[-1]]
    assert last.attained_s(rig.backend.now_s) == pytest.approx(30 if prefetch else 40, abs=1)
    assert ("ahead" in rig.kinds(names[-1])) == prefetch


def test_who_waits_at_the_barrier_is_pending_and_says_so(tmp_path: Path) -> None:
    rig, (first, second, third, _) = _at_the_barrier(tmp_path)
    assert (rig.state(second), rig.reason(second)) == ("pending", "starting ahead, waits for its GPUs")
    assert rig.state(third) == "pending"
    assert rig.service.admin.nodes(ADMIN)[0].jobs == (first,)
    (attempt,) = rig.service.desk.job(ADMIN, second).attempts
    assert attempt.started_s is None
    spec = rig.backend.world.jobs[f"{second}-1"].spec
    assert (spec.env["COTENANT_HOLD"], spec.gpus) == ("steps", (("n0", (0,)),))
    rig.finish()


def test_without_known_memory_it_waits_before_it_uses_a_gpu(tmp_path: Path) -> None:
    rig = AheadRig(tmp_path)
    names = [rig.submit(TRAIN, expected=40, gpu_mem=50) for _ in range(2)]  # 80 GiB do not hold two
    rig.ticks(2)
    rig.knows(names[0])
    rig.ticks(34)
    assert rig.backend.world.jobs[f"{names[1]}-1"].spec.env["COTENANT_HOLD"] == "job"
    rig.finish()


def test_nobody_is_started_ahead_who_may_not_know_the_barrier(tmp_path: Path) -> None:
    rig = AheadRig(tmp_path)
    names = _chain(rig, 1)
    names += [rig.submit("sleep 31", expected=40, env={"PYTHONPATH": "/other"})]  # perhaps another runtime
    names += [rig.submit("sleep 30 | cat", expected=40), rig.submit("bash sleep.sh", expected=40)]
    rig.finish()
    assert not any("ahead" in rig.kinds(name) for name in names)


@pytest.mark.parametrize("isolation", ["none", "user"])
def test_tenants_that_are_kept_apart_are_not_let_near_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    monkeypatch.setattr(AheadRig, "isolation", isolation)
    rig = AheadRig(tmp_path)
    alone = rig.submit(TRAIN, caller=BOB, expected=40)
    rig.ticks(2)
    rig.knows(alone)
    rig.ticks(40)
    names = [rig.submit(TRAIN, caller=caller, expected=40) for caller in (ANN, BOB, BOB)]
    rig.finish()
    assert ["ahead" in rig.kinds(name) for name in names] == [False, isolation == "none", True]


def test_a_promise_is_prepared_while_others_leave(tmp_path: Path) -> None:
    rig = AheadRig(tmp_path, "srtf:weigh=false")
    teacher = rig.submit("sleep 5", expected=5)
    rig.ticks(1)
    rig.knows(teacher)
    rig.ticks(20)
    deaf = rig.submit(DEAF, expected=500)
    rig.ticks(2)
    short = rig.submit("sleep 9", expected=10)
    rig.ticks(2)
    assert (rig.state(deaf), rig.state(short)) == ("stopping", "pending")
    assert list(rig.service.store.book.ahead) == [short]
    rig.finish()
    assert rig.kinds(short).count("ahead") == 1
    assert rig.attempts(short) == [1]


def test_somebody_who_comes_first_ends_the_process_of_who_waits(tmp_path: Path) -> None:
    rig, (_, second, _, _) = _at_the_barrier(tmp_path)
    urgent = rig.submit("sleep 3", expected=3, priority=5)
    rig.ticks(1)
    assert list(rig.service.store.book.ahead) == [urgent]
    assert (rig.state(second), rig.service.store.book.jobs[second].failures) == ("pending", 0)
    rig.finish()
    jobs = rig.service.store.book.jobs
    assert (jobs[urgent].started_s or 0) < (jobs[second].started_s or 0)
    assert str(jobs[second].state) == "succeeded"
    assert jobs[second].attempts[0].why == "started ahead, not needed yet"


def test_one_of_several_gpus_comes_free_and_not_the_one_it_waits_for(tmp_path: Path) -> None:
    rig = AheadRig(tmp_path, nodes=(NodeInfo("n0", "gpu", 2, 8, 64.0, gpu_mem_gib=80.0),))
    names = [rig.submit(f"sleep {n}", expected=10 + n, gpu_mem=10) for n in (30, 60, 30)]
    rig.ticks(2)
    rig.knows(names[0])
    rig.ticks(30)
    assert rig.service.store.book.jobs[names[2]].last.gpus == (("n0", (0,)),)
    rig.backend.kill(f"{names[1]}-1")  # the other one
    rig.finish()
    last = rig.service.store.book.jobs[names[2]]
    assert [one.gpus for one in last.attempts] == [(("n0", (0,)),), (("n0", (1,)),)]
    assert (str(last.state), last.failures) == ("succeeded", 0)


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("hold", "pending")])
def test_people_can_stop_it_there(tmp_path: Path, verb: str, state: str) -> None:
    rig, (_, second, third, _) = _at_the_barrier(tmp_path)
    getattr(rig.service.desk, verb)(ADMIN, second)
    rig.ticks(1)
    assert rig.state(second) == state
    assert rig.service.store.book.ahead.keys() <= {third}
    assert f"{second}-1" not in rig.backend.world.jobs
    rig.service.desk.resume(ADMIN, second) if verb == "hold" else None
    rig.finish()


def test_another_setting_starts_it_anew(tmp_path: Path) -> None:
    rig, (_, second, _, _) = _at_the_barrier(tmp_path)
    rig.service.desk.set(ADMIN, second, {"max_runtime": 500})
    rig.ticks(1)
    assert rig.attempts(second) == [2]
    rig.finish()


def test_a_process_that_fails_ahead_of_its_gpus_costs_nothing(tmp_path: Path) -> None:
    rig = AheadRig(tmp_path)
    names = [rig.submit(run, expected=40, gpu_mem=10) for run in ("sleep 30", "exit 3")]
    rig.ticks(2)
    rig.knows(names[0])
    rig.tell_barrier(names[1])
    rig.ticks(42)
    story = rig.kinds(names[1])
    assert story[:3] == ["submit", "ahead", "exit"]
    assert story.count("ahead") == 1  # once is enough
    rig.finish()
    job = rig.service.store.book.jobs[names[1]]
    assert [one.exit_code for one in job.attempts] == [3, 3]
    assert (str(job.state), job.failures) == ("failed", 1)


def test_a_restart_adopts_who_waits_and_a_service_without_the_option_ends_it(tmp_path: Path) -> None:
    rig, (_, second, _, _) = _at_the_barrier(tmp_path)
    rig.restart()
    rig.ticks(1)
    assert rig.kinds(second).count("ahead") == 1
    assert list(rig.waiting) == [f"{second}-1"]
    rig.more["prefetch_starts"] = False
    rig.restart()
    rig.ticks(1)
    assert not rig.service.store.book.ahead
    assert f"{second}-1" not in rig.backend.world.jobs
    rig.finish()


POINTS = [
    f"{when}:{what}"
    for what in ("ahead", "prefetched", "launch", "go", "started", "exit", "stop", "kill", "barrier")
    for when in ("before", "after")
]


@pytest.mark.parametrize("point", effort.first(5, POINTS))
def test_no_crash_loses_or_doubles_who_was_started_ahead(tmp_path: Path, point: str) -> None:
    """Wherever the service dies: all jobs end once, and nobody works on GPUs that are not its own (see the kit)."""
    fuse = point

    def hook(here: str) -> None:
        nonlocal fuse
        if (here == fuse and rig.service.store.book.barriers.rows()) or here == fuse == "before:barrier":
            fuse = ""
            raise Crash(here)

    rig = AheadRig(tmp_path, hook=hook)
    names = [rig.submit(TRAIN, expected=40, gpu_mem=10) for _ in range(3)]
    steps: list[Callable[[], object]] = [
        lambda: rig.ticks(1),
        lambda: rig.knows(names[0]),
        lambda: rig.ticks(1),
        lambda: rig.knows(names[0]),  # once more, as after a reconnection
        lambda: rig.ticks(35),
        lambda: rig.submit("sleep 3", expected=3, priority=5),  # before the one that waits already
        rig.finish,
        rig.finish,
    ]
    for step in steps:
        try:
            step()
        except Crash:
            rig.restart()
    assert fuse == ""
    jobs = [rig.service.store.book.jobs[name] for name in names]
    assert [str(job.state) for job in jobs] == ["succeeded"] * len(jobs)
    assert [sum(one.exit_code == 0 for one in job.attempts) for job in jobs] == [1] * len(jobs)
    assert not rig.backend.world.jobs
    assert any(one.ahead_s for job in jobs for one in job.attempts)
