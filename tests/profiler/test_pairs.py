"""How pairs are measured, on processes and a clock of our own: what they are against alone, and what is begun late."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cotenant.profiler import Company, ProfiledCommand, measure_pairs, pairs
from cotenant.workload.profiles.profile_file import MeasuredPair

COLD_S, FAST, STEADY = 2.0, 20.0, 14.0  # a process is faster in its first seconds, as seen on a GPU
BESIDE = 0.5
TICK_S = 0.05


class World:
    """A station whose processes run, pause and tell their steps every tick."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.runs: list[Any] = []
        self.backend = SimpleNamespace(drop_checkpoints=lambda folder: None)

    def start(self, command: ProfiledCommand) -> Any:
        run = SimpleNamespace(command=command, key=command.name, folder="", end=None, points=[], going=True)
        run.ran_s, run.steps = 0.0, 0.0
        self.runs.append(run)
        return run

    def first_step(self, run: Any, limit_s: float) -> None:
        assert self.wait(run, lambda: run.steps >= 1, limit_s)

    def wait(self, run: Any, until: Callable[[], bool], limit_s: float) -> bool:
        give_up = self.now_s + limit_s
        while not until() and self.now_s < give_up:
            self._tick()
        return until()

    def _tick(self) -> None:
        self.now_s += TICK_S
        going = [run for run in self.runs if run.going]
        for run in going:
            run.ran_s += TICK_S
            speed = FAST if run.ran_s < COLD_S else STEADY
            run.steps += TICK_S * speed * (BESIDE if len(going) > 1 else 1.0)
            run.points.append((self.now_s, run.steps))

    def pause(self, run: Any, patience_s: float = 0.0) -> None:
        run.going = False

    def go_on(self, run: Any) -> None:
        run.going = True

    def end(self, run: Any) -> None:
        self.runs.remove(run)


def measured(monkeypatch: pytest.MonkeyPatch, todo: list[tuple[str, str]], late: int = 100) -> list[MeasuredPair]:
    """The pairs of three commands; it is late when so many have been begun."""
    world: Any = World()
    asked = iter(range(100))
    monkeypatch.setattr(pairs, "time", SimpleNamespace(time=lambda: world.now_s))
    commands = {name: ProfiledCommand(name, ("true",)) for name in "abc"}
    company, is_late = Company(0.7), lambda: next(asked) >= late
    found = list(measure_pairs(world, commands, todo, company, "gpu", "time", lambda text: None, is_late))
    assert not world.runs, "all processes have ended"
    return found  # type: ignore[return-value]


def test_first_seconds_that_are_faster_do_not_make_company_look_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in measured(monkeypatch, [("a", "b"), ("a", "c"), ("a", "a")]):
        assert (pair.a_speed, pair.b_speed) == pytest.approx((BESIDE, BESIDE), rel=0.02)
        assert (pair.a_alone, pair.b_alone) == pytest.approx((STEADY, STEADY), rel=0.02)


def test_what_was_measured_before_it_was_late_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(pair.a, pair.b) for pair in measured(monkeypatch, [("a", "b"), ("a", "c")], late=1)] == [("a", "b")]
