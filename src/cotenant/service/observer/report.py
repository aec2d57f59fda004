"""The newest word of one job, and what it says of the job's speed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from cotenant.beliefs.speed import SpeedBelief
from cotenant.runtime.protocol import Progress

_MARKS = 64  # of a job's progress that are kept; it speaks about five times a second


@dataclass(slots=True)
class Report:
    """What a job has said last; times are Unix seconds.

    `ready_s`: when the first step of its process was finished, None where that is not known. `stepped_s`: when it last
    had made one. `first`: steps that were done before its process began, as far as that is known. `stages`: seconds per
    step in each, `waited_s` for its turns.
    """

    step: int | None = None
    total: int | None = None
    step_time_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    saves: bool = False
    busy: float = 0.0  # part of its steps in which it did not wait for input; 0 where it does not say
    checkpoint_s: float | None = None
    restore_s: float | None = None
    left_saved: bool = False  # its last word: all work saved, leaving
    ready_s: float | None = None
    stepped_s: float | None = None
    first: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    waited_s: float = 0.0
    speed: SpeedBelief = field(default_factory=SpeedBelief)
    marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MARKS))  # when, and how many steps

    @property
    def has_begun(self) -> bool:
        """Whether its process has made a step."""
        return self.ready_s is not None or (self.step or 0) > self.first

    def take(self, said: Progress, now_s: float) -> bool:
        """Its progress; whether it has just become warm, so that its start is over."""
        was_warm = self.speed.warm
        if said.step != self.step and said.step > self.first:
            self.stepped_s = now_s
        self.step, self.total = said.step, said.total
        self.marks.append((now_s, said.step))
        self.step_time_s, self.saves, self.busy = said.step_time_s, said.saves, said.busy
        self.stages, self.waited_s = said.stages, said.waited_s
        self.metrics = {key: float(value) for key, value in said.metrics.items()}
        if said.ready_s:
            if self.ready_s is None:
                self.ready_s = now_s - max(said.age_s - said.ready_s, 0.0)
                self.speed.add(said.ready_s, said.ready_step)
            self.speed.add(said.age_s, said.step, said.saving_s)
        elif not said.age_s and said.step_time_s and said.step > self.first:  # an older runtime, which says less
            if said.step == self.first + 1 and self.ready_s is None:
                self.ready_s = now_s
            self.speed.told(said.step_time_s, said.step - self.first)
        return self.speed.warm and not was_warm

    def shift(self, by_s: float) -> None:
        """The clock was set: whatever happened, happened so much later."""
        self.marks.clear()
        for name in ("checkpoint_s", "ready_s", "stepped_s"):
            if (at_s := getattr(self, name)) is not None:
                setattr(self, name, at_s + by_s)
