"""What a service is told at its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KEEP_S = 30 * 86400.0
DECISION_BUDGET_S = 2.0
MOST_SUSPENDED = 8
MOST_UNFINISHED = 250_000
ROUND_S = 360.0


@dataclass(frozen=True, slots=True)
class Options:
    """Settings, clock and the tests' way in.

    `grace_s`: seconds a job gets to save and leave, and as many again to end after SIGTERM.
    `most_unfinished`: jobs that one caller may have waiting and running.
    `keep_s`: how long finished jobs and their logs are kept. `budget_s`: what a slow policy may take to decide.
    `max_suspended`: how many suspended jobs may be kept, for each holds host memory; 0 suspends none.
    `round_s`: length of a round for policies that have rounds. `profile`: speeds by model and GPU type.
    `allocator` deals out cores and memory while jobs run (empty: each has what its file says), by the measured
    `curves` of a file. `policy`: the one to begin with, else that of the last time. `inline`: acts are done within a
    look instead of by threads, for virtual time. `check_invariants`: the engine's own rules are checked after every
    decision, for tests. `hook` is called with a name before and after every journal write
    and every act.
    """

    home: Path
    grace_s: float = 30.0
    clock: Callable[[], float] = time.time
    hook: Callable[[str], None] = lambda point: None
    keep_s: float = KEEP_S
    budget_s: float = DECISION_BUDGET_S
    max_suspended: int = MOST_SUSPENDED
    most_unfinished: int = MOST_UNFINISHED
    round_s: float = ROUND_S
    profile: str = "none"
    allocator: str = ""
    curves: str = ""
    policy: str = ""
    inline: bool = False
    check_invariants: bool = False
