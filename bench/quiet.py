"""Whether anything else was running, and how fast the machine was: wall times on a shared one mean little without.

A host gives a virtual machine more or less of a core without a word. A fixed loop shows it: times of two runs compare
only as far as the loop took equally long in both.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _busy_s() -> float:
    """CPU seconds that all processes of this machine have used, and that its host has kept from it."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) * _TICK_S


def _own_s() -> float:
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


def loop_ms() -> float:
    """Milliseconds of a core for a million additions in Python, the best of three."""
    best_s = math.inf
    for _ in range(3):
        began_s, total = time.thread_time(), 0
        for number in range(1_000_000):
            total += number
        best_s = min(best_s, time.thread_time() - began_s)
    return 1000 * best_s


@dataclass(slots=True)
class Others:
    """How many cores others have kept busy since this was made, and how fast a core was then."""

    began_s: float = field(default_factory=time.perf_counter)
    busy_s: float = field(default_factory=_busy_s)
    own_s: float = field(default_factory=_own_s)
    loop_ms: float = field(default_factory=loop_ms)

    def cores(self) -> float:
        """Cores, on average."""
        others = (_busy_s() - self.busy_s) - (_own_s() - self.own_s)
        return max(others, 0.0) / max(time.perf_counter() - self.began_s, 1e-9)

    def text(self) -> str:
        """One line for people."""
        cores = self.cores()
        verdict = "quiet" if cores < 0.2 else "other load was present"
        said = f"{cores:.2f} of {os.cpu_count()} cores were busy with other things: {verdict}"
        return f"{said}; a million additions in Python took {self.loop_ms:.0f} ms before, {loop_ms():.0f} ms after"
