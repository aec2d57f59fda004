"""The time limit of a job while no service is there to keep it. Part of the keeper: imports only what starts fast."""

# ruff: noqa: SIM105 (contextlib is one more import at every launch)
from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_MS = 500.0  # between two looks at a job that has run too long


class Overtime:
    """Ends a job that has run too long; what it was suspended does not count.

    The file `paused` has a line for every suspension and every end of one: seconds of the monotonic clock.
    `sweep` kills all that is left of it, after its grace period.
    """

    def __init__(self, most_s: float, grace_s: float, leader: int, fifo: str, sweep: Callable[[], None]) -> None:
        self.most_s, self.grace_s, self.leader, self.fifo, self.sweep = most_s, grace_s, leader, fifo, sweep
        self.began, self.told = time.monotonic(), 0.0

    def press(self) -> float | None:
        """Tell it to end where it is time, and make it; milliseconds after which to look again, None for never."""
        if not self.most_s:
            return None
        now = time.monotonic()
        paused = _paused()
        ran_s = now - self.began - sum(paused[1::2]) + sum(paused[: len(paused) // 2 * 2 : 2])
        left_s = self.most_s - ran_s
        if len(paused) % 2 or left_s > 0:
            return max(left_s * 1000, LOOK_MS)
        if not self.told and not _listens(self.fifo):
            self.told = now
            os.close(os.open("term", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            try:
                os.killpg(self.leader, signal.SIGTERM)
            except OSError:
                pass
        elif self.told and now - self.told > self.grace_s:
            self.sweep()
        return LOOK_MS


def _paused() -> list[float]:
    try:
        with open("paused", encoding="ascii") as file:
            return [float(line) for line in file]
    except (OSError, ValueError):
        return []


def _listens(fifo: str) -> bool:
    """Whether a service is there that would hear of this job."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
