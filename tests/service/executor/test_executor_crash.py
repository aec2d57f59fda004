"""A service that dies at any of its steps carries out the same in the end: nothing twice, nothing forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from parts_kit import NODE, Greedy, PartsRig

import effort
from cotenant.backends.base import LaunchSpec
from cotenant.backends.fake import Script, read_script
from cotenant.service.core import CoreService
from cotenant.service.planner.decision import Act, LiveDecision
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob


class Crash(BaseException):
    """Not an `Exception`: nothing in the service may catch it, as nothing survives SIGKILL."""


@dataclass
class World:
    """What outlives the service, and a person who submits, cancels and holds."""

    home: Path
    crash_at: tuple[int, ...] = ()
    points: list[str] = field(default_factory=list)
    left: list[Hashable] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    restarts: int = 0

    def __post_init__(self) -> None:
        self.rig = PartsRig(self.home, planner=self._planner, hook=self._hook, max_suspended=2, grace_s=2.0)
        self.rig.backend.behave = self._behave
        self.rig.backend.hook = lambda point, key: self._hook(point)
        self.opened = len(self.points)

    def _planner(self, core: CoreService) -> Greedy:
        def how(job: LiveJob) -> str:
            return "stop" if job.spec.name == "stopped" else "suspend"

        return Greedy(core.store.book, NODE.gpus, how, patience_s=5.0)

    def _hook(self, point: str) -> None:
        self.points.append(point)
        rig = getattr(self, "rig", None)
        jobs = sorted((key, job.state) for key, job in rig.backend.world.jobs.items()) if rig is not None else []
        self.left.append((rig.disk.last_seq if rig is not None else 0, tuple(jobs)))
        if len(self.points) in self.crash_at:
            raise Crash(point)

    def _behave(self, spec: LaunchSpec) -> Script:
        assert spec.key not in self.starts, f"{spec.key} was started twice"
        self.starts.append(spec.key)
        return read_script(spec)

    def _check(self) -> None:
        """No GPU has two jobs that run."""
        taken: set[tuple[str, int]] = set()
        for job in self.rig.backend.world.jobs.values():
            for node, indexes in job.spec.gpus if job.state in ("starting", "running") else ():
                for index in indexes:
                    assert (node, index) not in taken, job.spec.key
                    taken.add((node, index))

    def _there(self, name: str) -> str:
        return next((job.id for job in self.rig.book.jobs.values() if job.spec.name == name), "")

    def _submit(self, name: str, run: str, **fields: object) -> Callable[[], object]:
        return lambda: self._there(name) or self.rig.submit(run, name=name, **fields)

    def _tell(self, name: str, kind: str, **data: object) -> Callable[[], object]:
        def act() -> None:
            if not self.rig.book.jobs[self._there(name)].finished:
                self.rig.tell(kind, self._there(name), **data)

        return act

    def play(self) -> Book:
        """Everything there is: preemption of both kinds, a move, a cancel of a suspended job, a hold, a deaf one."""
        rig, begin_s = self.rig, self.rig.backend.now_s
        steps: list[tuple[float, Callable[[], object]]] = [
            (0, self._submit("waits", "sleep 12", gpus=2)),
            (0, self._submit("stopped", "sleep 8", gpus=1)),
            (0, self._submit("deaf", "trap '' TERM; sleep 30", gpus=1, max_runtime=9)),
            (0, self._submit("after", "sleep 1", gpus=1, after=["waits"])),
            (3, self._submit("first", "sleep 4", gpus=4, priority=5)),
            (12, self._submit("fails", "exit 3", gpus=1, retries=1)),
            (13, self._submit("held", "sleep 5", gpus=1)),
            (15, self._tell("held", "hold")),
            (18, self._submit("second", "sleep 30", gpus=2, priority=7)),
            (22, self._tell("second", "stop", why="cancel")),
            (23, self._tell("held", "resume")),
        ]
        while rig.backend.now_s < begin_s + 300:
            try:
                while steps and begin_s + steps[0][0] <= rig.backend.now_s:
                    steps[0][1]()
                    steps.pop(0)
                wait_s = rig.core.tick()
                self._check()
                if not steps and not rig.book.active and not rig.backend.world.jobs:
                    return rig.book
                due_s = begin_s + steps[0][0] - rig.backend.now_s if steps else wait_s
                rig.backend.wait_change(min(wait_s, due_s))
            except Crash:
                self._restart()
        raise AssertionError({job.id: (job.spec.name, str(job.state)) for job in rig.book.active.values()})

    def _restart(self) -> None:
        self.restarts += 1
        try:
            self.rig.restart()
            self.rig.backend.hook = lambda point, key: self._hook(point)
        except Crash:
            self._restart()


def endings(book: Book) -> dict[str, tuple[str, int | None, int]]:
    """What must not depend on crashes: state, exit code and counted failures of every job."""
    return {
        job.spec.name: (str(job.state), job.last.exit_code if job.attempts else None, job.failures)
        for job in book.jobs.values()
    }


def test_a_crash_at_every_step(tmp_path: Path) -> None:
    quiet = World(tmp_path)
    expected = endings(quiet.play())
    assert {"suspend.after", "resume.after", "terminate.after", "kill.after", "after:promise"} <= set(quiet.points)
    assert {state for state, *_ in expected.values()} == {"succeeded", "failed", "cancelled"}
    for step in effort.some(range(quiet.opened + 1, len(quiet.points) + 1)):
        if quiet.left[step - 1] == quiet.left[step - 2]:
            continue  # it would leave the very same disk and world as the step before
        world = World(tmp_path, (step,))
        book = world.play()
        assert world.restarts == 1, step
        assert endings(book) == expected, (step, quiet.points[step - 1])
        assert book.promises == {}
        frozen = book.freeze()
        world.rig.restart()
        assert world.rig.book.freeze() == frozen, step


def test_crashes_during_recovery(tmp_path: Path) -> None:
    quiet = World(tmp_path)
    expected, steps = endings(quiet.play()), len(quiet.points)
    chance = random.Random(20261115)
    for _ in range(effort.examples(30)):
        first = chance.randrange(quiet.opened + 1, steps)
        second = first + chance.randrange(1, 8)
        crashes = (first, second, second + chance.randrange(1, 8))
        assert endings(World(tmp_path, crashes).play()) == expected, crashes


@pytest.mark.parametrize("kind", ["suspend", "stop"])
def test_an_intent_without_its_act_is_made_up_for(tmp_path: Path, kind: str) -> None:
    """Died right after the journal took it: the book says what to do."""
    rig = PartsRig(tmp_path)
    job = rig.start()
    rig.core.executor.carry_out(LiveDecision(0, "", (Act(kind, job, why="preempt"),)))
    assert rig.state(job) == "stopping"
    rig.restart()
    rig.ticks(2)
    assert rig.state(job) == ("suspended" if kind == "suspend" else "pending")
