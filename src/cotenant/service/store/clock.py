"""Set clocks do no harm: limits, grace periods and forecasts count seconds that have really passed.

Times in the journal are wall time, for people. Beside it the machine counts the seconds since it was started, which
nobody can set. When the two drift apart by more than clocks do, the wall clock was set: that is journaled, and the book
moves the times of everything under way by as much. This also works across a restart of the service, but not of the
machine, whose count then begins anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from cotenant.journal import Entry

STEP_S = 5.0  # a smaller difference is what daemons correct bit by bit
_log = logging.getLogger(__name__)


def since_boot_s() -> float:
    """Seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    """The name of this run of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class ClockWatch:
    """Compares the service's clock with one that only goes on. `known`: boot and wall time at its beginning."""

    def __init__(self, clock: Callable[[], float], steady: Callable[[], float]) -> None:
        self._clock, self._steady, self._boot = clock, steady, _boot_id()
        self.known: tuple[str, float] | None = None

    def step(self) -> Entry | None:
        """What to journal before anything else is, if the clock was set since the last look."""
        offset_s, known = self._clock() - self._steady(), self.known
        by_s = offset_s - known[1] if known is not None and known[0] == self._boot else None
        if by_s is not None and abs(by_s) < STEP_S:
            return None
        self.known = self._boot, offset_s
        if by_s:
            _log.warning("the clock was set by %+.0f s: times of what is under way are moved by as much", by_s)
        return Entry("clock", data={"by_s": by_s or 0.0, "boot": self._boot, "offset_s": offset_s})
