"""The service survives a crash at every one of its steps: in memory exhaustively, and by real `kill -9`."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crash_memory import EPOCH_S, ME, Crash, MemoryWorld, Step, endings

import effort
from cotenant.backends import BackendError, LaunchSpec
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.journal import recover
from cotenant.policies import registry
from cotenant.service.core import CoreService
from cotenant.service.observer import observer as watching
from cotenant.service.store.book import Book

ROOT = Path(__file__).resolve().parents[2]


def _script(world: MemoryWorld) -> list[Step]:
    """Suspension, retries, an array, a chain, an orphan, a stubborn job, cancels, hold, a time limit."""

    def submit(*specs: JobSpec) -> Any:
        return lambda service: world.submit(service, *specs)

    def cancel(name: str) -> Any:
        return lambda service: service.desk.cancel(ME, _id(service, name))

    return [
        Step(0, submit(JobSpec("sleep 6", name="long", gpus=2, expected_s=600),
                       JobSpec("trap '' TERM; sleep 7", name="deaf", gpus=2, expected_s=500))),
        Step(3, submit(JobSpec("sleep 2", name="short", gpus=3, expected_s=2))),
        Step(4, submit(JobSpec("exit 3", name="fails", retries=1, expected_s=1),
                       JobSpec("exit 0", name="orphan", after=("fails",)),
                       JobSpec("sleep 1", name="row", array=(0, 1), expected_s=1),
                       JobSpec("sleep 1", name="last", after=("row",), expected_s=1))),
        Step(6, submit(JobSpec("trap '' TERM; sleep infinity", name="ends-by-kill", expected_s=1),
                       JobSpec("sleep 60", name="never", gpus=4, expected_s=900),
                       JobSpec("sleep infinity", name="limit", max_runtime_s=2, expected_s=1))),
        Step(8, cancel("never")),
        Step(9, cancel("ends-by-kill")),
        Step(10, lambda service: service.desk.hold(ME, _id(service, "long"))),
        Step(18, lambda service: service.desk.resume(ME, _id(service, "long"))),
    ]  # fmt: skip


def _id(service: CoreService, name: str) -> str:
    return next(info.id for info in service.desk.jobs(ME) if info.name == name)


def _play(home: Path, *crash_at: int) -> tuple[MemoryWorld, CoreService]:
    world = MemoryWorld(home, crash_at=frozenset(crash_at))
    service = world.run(_script(world))
    assert service.backend.observe() == []
    assert [node.gpus_used for node in service.admin.nodes(ME)] == [0]
    assert world.acknowledged.keys() == service.store.book.jobs.keys()
    return world, service


def _rebuilt(service: CoreService) -> Book:
    state, records = recover(service.store.journal)
    book = Book.thaw(state) if state is not None else Book()
    for record in records:
        book.apply(record)
    return book


@pytest.fixture(autouse=True)
def _quick_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.service.store.store.SNAPSHOT_EVERY", 9)
    monkeypatch.setattr(registry, "known_policies", functools.cache(registry.known_policies))


def test_the_undisturbed_run(tmp_path: Path) -> None:
    world, service = _play(tmp_path)
    named = {service.store.book.jobs[job].spec.name: end for job, end in endings(service.store.book).items()}
    assert named == {
        "long": ("succeeded", 0, 0), "deaf": ("succeeded", 0, 0), "short": ("succeeded", 0, 0),
        "fails": ("failed", 3, 2), "orphan": ("cancelled", None, 0), "row": ("succeeded", 0, 0),
        "last": ("succeeded", 0, 0), "ends-by-kill": ("cancelled", None, 0), "never": ("cancelled", None, 0),
        "limit": ("failed", None, 0),
    }  # fmt: skip
    assert service.counters["preemptions"] >= 2
    assert service.counters["suspensions"] >= 2
    assert world.resumes >= 2
    seams = {
        *(f"{side}:{kind}" for side in ("before", "after") for kind in ("submit", "launch", "started", "stop", "exit")),
        *("before:launched", "after:launched", "before:terminate", "after:terminate", "before:kill", "after:kill"),
        *(f"{side}:{kind}" for side in ("before", "after") for kind in ("rung", "suspended", "continue", "continued")),
        *("before:suspend", "after:suspend", "before:wake", "after:wake", "suspend.before", "resume.before"),
        *("before:forget", "after:forget", "before:snapshot", "after:snapshot", "before:reject"),
    }  # fmt: skip
    assert seams <= set(world.fuse.points)


@pytest.mark.slow
def test_a_crash_at_every_step(tmp_path: Path) -> None:
    quiet, service = _play(tmp_path)
    expected = endings(service.store.book)
    for step in quiet.fuse.distinct():
        world, service = _play(tmp_path, step)
        assert world.restarts == 1, step
        assert endings(service.store.book) == expected, (step, quiet.fuse.points[step - 1])
        assert _rebuilt(service).freeze() == service.store.book.freeze(), step


def test_crashes_during_recovery(tmp_path: Path) -> None:
    """A second and third crash soon after the first: the recovery itself is interrupted."""
    quiet, service = _play(tmp_path)
    expected, steps = endings(service.store.book), len(quiet.fuse.points)
    chance = random.Random(20261115)
    for _ in range(effort.examples(40)):
        first = chance.randrange(1, steps)
        second = first + chance.randrange(1, 8)
        crashes = (first, second, second + chance.randrange(1, 8))
        _, service = _play(tmp_path, *crashes)
        assert endings(service.store.book) == expected, crashes


def test_crash_between_accept_and_dequeue(tmp_path: Path) -> None:
    """FfDL, golden example 3: started, then the service dies; exactly one process ever exists."""
    world = MemoryWorld(tmp_path)
    service = world.start()
    world.submit(service, JobSpec("sleep 10", name="seven"))
    world.fuse.at = frozenset({len(world.fuse.points) + world_steps_to("launch.after", tmp_path)})
    with pytest.raises(Crash, match=r"launch\.after"):
        service.tick()
    service = world.run([])
    assert world.starts == ["1-1"]
    assert service.desk.job(ME, "1").state == JobState.SUCCEEDED


def world_steps_to(point: str, home: Path) -> int:
    """Steps of the first tick with one waiting job, up to a point."""
    world = MemoryWorld(home / "other")
    service = world.start()
    world.submit(service, JobSpec("sleep 10", name="seven"))
    before = len(world.fuse.points)
    service.tick()
    return world.fuse.points[before:].index(point) + 1


def test_a_job_outlives_the_crash_of_its_monitor(tmp_path: Path) -> None:
    """FfDL, golden example 5: 120 minutes of work end after 120 minutes, though the service was away."""
    world = MemoryWorld(tmp_path)
    service = world.start()
    world.submit(service, JobSpec("sleep 7200", name="two-hours"))
    service.tick()
    world.first.advance(6000)
    service = world.start()
    service.tick()
    world.first.advance(1000)
    service = world.run([], until_s=8000)
    (attempt,) = service.desk.job(ME, "1").attempts
    assert attempt.ended_s == EPOCH_S + 7200
    assert attempt.lost_s == 0


def test_a_launch_that_fails_for_good_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FfDL, golden example 6: undone, GPUs free, and the job says why."""
    world = MemoryWorld(tmp_path)
    service = world.start()

    def refuse(spec: LaunchSpec) -> None:
        raise BackendError(f"job {spec.key}: nothing was started: no space")

    monkeypatch.setattr(service.backend, "launch", refuse)
    world.submit(service, JobSpec("sleep 10", name="unlucky"))
    service.tick()
    assert service.desk.job(ME, "1").state == JobState.FAILED
    assert "no space" in service.desk.job(ME, "1").reason
    assert [node.gpus_used for node in service.admin.nodes(ME)] == [0]
    assert world.first.world.jobs == {}


def test_a_checkpoint_folder_that_cannot_be_made_fails_the_job(tmp_path: Path) -> None:
    world = MemoryWorld(tmp_path)
    service = world.start()
    world.submit(service, JobSpec("sleep 10", name="nowhere", checkpoint_dir="/no/such/place"))
    service.tick()
    assert service.desk.job(ME, "1").state == JobState.FAILED
    assert [node.gpus_used for node in service.admin.nodes(ME)] == [0]


def test_launches_without_a_trace_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that dies before it can record anything: tried again, but not for ever."""
    world = MemoryWorld(tmp_path)
    service = world.start()
    monkeypatch.setattr(service.backend, "launch", lambda spec: None)
    world.submit(service, JobSpec("sleep 10", name="ghost"))
    for _ in range(watching.MOST_UNDONE + 1):
        service.tick()
    shown = service.desk.job(ME, "1")
    assert (shown.state, len(shown.attempts)) == (JobState.FAILED, watching.MOST_UNDONE)


def test_a_service_that_keeps_crashing_still_takes_snapshots(tmp_path: Path) -> None:
    """Replayed records count too, or replay would grow with every start."""
    world = MemoryWorld(tmp_path)
    for number in range(9):
        service = world.start()
        world.submit(service, JobSpec("sleep infinity", name=f"waits-{number}", gpus=4))
        service.tick()
    assert world.store.snapshot is not None


def _bench(points: int, seed: int, home: Path, *more: str) -> dict[str, Any]:
    """The same code as `python -m bench.crash`, in a process of its own: it forks."""
    command = [sys.executable, "-m", "bench.crash", "--points", str(points), "--seed", str(seed), "--json", *more]
    done = subprocess.run([*command, "--home", str(home)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["points"] == points
    return result


@pytest.mark.slow
def test_kill_9_sixty_times(tmp_path: Path) -> None:
    result = _bench(60, 0, tmp_path)
    assert len(result["kills"]) >= 8
    assert result["suspensions"] >= 5


@pytest.mark.slow
def test_kill_9_while_jobs_are_started_ahead_of_their_gpus(tmp_path: Path) -> None:
    result = _bench(30, 11, tmp_path, "--prefetch")
    assert result["ahead"] > result["in vain"] > 0
