"""The stages of a job's steps: what each takes, and whose turn it is where a group shares GPUs."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low

from ._turns import RESOURCES, StageTokens, TurnOrder

OTHER = "other"  # what a step takes outside of its stages
_LAST = 15  # steps of which the median is taken
_EVERY = 8  # of the steps of a job that is alone one in so many is timed: finishing a stage may cost something
_PATIENCE_S, _STEPS = 2.0, 10.0  # how long a token is waited for: at least so long, and as long as so many own steps


class StageClock:
    """Times stages and takes turns at them. Stages of different names may run in different threads."""

    def __init__(self) -> None:
        self.finish: dict[str, Callable[[], object]] = {}
        """By stage: what waits until its work is really done, e.g. on the GPU."""
        self._pid = os.getpid()
        self._own = threading.local()
        self._lock = threading.Lock()
        self._now_s: dict[str, float] = {}
        self._now_waited_s = 0.0
        self._last: deque[tuple[dict[str, float], float]] = deque(maxlen=_LAST)
        self._step_s = 0.0
        self._timed = True
        self.line = TurnOrder()  # which is followed
        self._tokens: StageTokens | None = None

    @property
    def times_s(self) -> dict[str, float]:
        """Seconds per step in each stage and outside of any, of late, less waiting; empty where no stage is marked."""
        with self._lock:
            steps = list(self._last)
        names = dict.fromkeys(name for times, _ in steps for name in times)
        return {name: median_low([times.get(name, 0.0) for times, _ in steps]) for name in names}

    @property
    def waited_s(self) -> float:
        """Seconds per step that it waited for its turns, of late."""
        with self._lock:
            return median_low([waited for _, waited in self._last]) if self._last else 0.0

    @property
    def in_line(self) -> bool:
        """Whether others are waited for."""
        return self._tokens is not None

    def follow(self, folder: Path | None, line: TurnOrder) -> None:
        """From the next stage on: these take turns. A group of one, or without a folder, takes none."""
        if self.line == line:
            return
        self.line = line
        self._tokens = StageTokens(folder, line) if folder is not None and len(line.members) > 1 else None
        self._last.clear()  # what stages took in other company is another matter

    def stepped(self, number: int, seconds: float) -> None:
        """A step is over: what its stages took counts, if it was timed."""
        with self._lock:
            if self._timed and self._now_s:
                rest_s = seconds - self._now_waited_s - sum(self._now_s.values())
                self._last.append(({**self._now_s, OTHER: max(rest_s, 0.0)}, self._now_waited_s))
            self._now_s, self._now_waited_s, self._step_s = {}, 0.0, seconds
        self._timed = self.in_line or number % _EVERY == 0 or len(self._last) < _LAST

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One stage: wait for the turn where there is one, work, let the next one go."""
        if name not in RESOURCES:
            raise ValueError(f"stage '{name}' is not known: it is one of {', '.join(RESOURCES)}")
        if getattr(self._own, "stage", ""):
            raise RuntimeError(f"stage '{name}' begins inside stage '{self._own.stage}': stages follow each other")
        if os.getpid() != self._pid:  # a forked child, e.g. a data loader's worker, takes no turns
            yield
            return
        self._own.stage, tokens = name, self._tokens
        began = time.monotonic()
        held = tokens is not None and tokens.take(name, max(_PATIENCE_S, _STEPS * self._step_s))
        worked_from = time.monotonic()
        try:
            yield
            if (held or self._timed) and name in self.finish:
                self.finish[name]()
        finally:
            if held and tokens is not None:
                tokens.give(name)
            self._own.stage = ""
            with self._lock:
                self._now_s[name] = self._now_s.get(name, 0.0) + time.monotonic() - worked_from
                self._now_waited_s += worked_from - began if held else 0.0
