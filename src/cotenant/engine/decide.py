"""One decision of a built-in policy on the engine's tables."""

from __future__ import annotations

from cotenant.core.columns import (
    ARRIVED,
    CLASS,
    DIRTY,
    EASY,
    GPUS,
    IDLE,
    N_WAITING,
    NEXT_ARRIVAL,
    PREEMPTIVE,
    STABLE,
    STATE,
    STRICT,
    WAITING,
)
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.easy import easy
from cotenant.engine.fill import fill, start_if_it_fits
from cotenant.engine.keys import gpus_behind
from cotenant.engine.walk import walk_preemptive


@entry
def decide(s: State, rule: Rule, now: float) -> None:
    """Bring what runs in line with the policy after everything that happened at `now`."""
    if s.x[N_WAITING] == 0:
        return
    if rule.flags[PREEMPTIVE] == 1:
        if not _arrival_is_settled(s, rule, now):
            walk_preemptive(s, rule, now)
    elif rule.flags[EASY] == 1:
        easy(s, rule, now)
    else:
        fill(s, rule, now, rule.flags[STRICT] == 1)


@kernel
def _arrival_is_settled(s: State, rule: Rule, now: float) -> bool:
    """Decide a single arrival without a walk, where that gives the same result.

    If nothing but one arrival happened, and keys move so that the last decision still stands (running jobs
    only gain on waiting ones), then jobs ahead of it are untouched. It either fits into idle GPUs, or those
    behind it do not hold enough for it and it waits; only otherwise somebody must be displaced.
    """
    if s.x[DIRTY] == 1 or s.x[ARRIVED] != 1:
        return False
    if rule.flags[STABLE] == 0 and s.x[N_WAITING] != 1:
        return False
    job = s.x[NEXT_ARRIVAL] - 1
    if s.i[job, STATE] != WAITING:
        return False
    if start_if_it_fits(s, rule, job, s.i[job, CLASS], now):
        return True
    if rule.flags[STABLE] == 0:
        return False
    behind = gpus_behind(s, rule, job, now)
    return behind == 0 or behind + s.x[IDLE] < s.i[job, GPUS]
