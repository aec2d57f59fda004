"""What steps take and how long a process has lived, as its reports say it."""

from __future__ import annotations

import os
import time
from collections import deque
from statistics import median_low

_LAST = 15  # steps of which the median is taken
_WAITS = 200  # steps over which waiting is counted
_IMPORTED = time.monotonic()


def process_began() -> float:
    """When this process began, on the monotonic clock; when it came to import this, where nobody can tell."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return min(time.monotonic() - max(age_s, 0.0), _IMPORTED)


class StepTiming:
    """The times of the steps of one process. The first step is cold: it counts only until there are others."""

    def __init__(self) -> None:
        self._began = process_began()
        self._last_s: deque[float] = deque(maxlen=_LAST)
        self._waits: deque[tuple[float, float]] = deque(maxlen=_WAITS)  # of the last steps: seconds, and of waiting
        self._waiting_s: float | None = None  # in the present step; None: it has never said so
        self.ready_s = 0.0
        self.ready_step = 0
        self.saving_s = 0.0

    @property
    def age_s(self) -> float:
        """Seconds since the process began."""
        return time.monotonic() - self._began

    @property
    def step_time_s(self) -> float:
        """What a step takes of late; 0 before the first."""
        return median_low(self._last_s) if self._last_s else 0.0

    @property
    def busy(self) -> float:
        """Part of the time of the last steps in which it did not wait for its input; 0 where it never said."""
        total_s = sum(seconds for seconds, _ in self._waits)
        return max(1.0 - sum(waited for _, waited in self._waits) / total_s, 0.001) if total_s > 0 else 0.0

    def waited(self, seconds: float) -> None:
        """So long of the present step was waiting."""
        self._waiting_s = (self._waiting_s or 0.0) + seconds

    def finished(self, step: int, count: int, seconds: float) -> None:
        """The `count` steps up to number `step` took so long together."""
        if self._waiting_s is not None:
            if self.ready_s:
                self._waits.append((seconds, min(self._waiting_s, seconds)))
            self._waiting_s = 0.0
        if not self.ready_s:
            self.ready_s, self.ready_step = self.age_s, step
        elif self.ready_step + count == step:
            self._last_s.clear()  # these are the first that are not cold
        self._last_s.append(seconds / count)

    def saved(self, seconds: float) -> None:
        """A checkpoint took so long."""
        self.saving_s += seconds if self.ready_s else 0.0
