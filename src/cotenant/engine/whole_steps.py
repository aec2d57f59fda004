"""Rounds in which jobs make whole steps only: a piece of work each, and the round ends with the latest of them.

A job makes floor(rate x round) steps, or what is left, and is paced so that it has made exactly these by the end.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.keys import work_done
from cotenant.engine.ledger import rerun
from cotenant.engine.rates import settle


@kernel
def piece_of(s: State, job: int, speed: float, round_s: float, now: float) -> float:
    """Seconds in which a running job makes floor(rate x round) steps, or what is left."""
    rate = speed * s.f[job, STEPS]
    left = round((s.f[job, WORK] - work_done(s.f, s.i, job, now)) * s.f[job, STEPS])
    return float(min(math.floor(rate * round_s + 1e-9), left) / rate)


@kernel
def pace(
    s: State, rule: Rule, job: int, speed: float, slower: float, round_s: float, length: float, now: float, at: int
) -> float:  # fmt: skip
    """Let the running job at place `at` make exactly its steps in a round of this length; when it ends, if in that.

    `slower` is by how much its mate slows one down that ends.
    """
    steps = s.f[job, STEPS]
    left = round((s.f[job, WORK] - work_done(s.f, s.i, job, now)) * steps)
    piece = math.floor(speed * steps * round_s + 1e-9)
    if piece < left and length > 0:
        speed = piece / steps / length
    else:
        speed *= slower
    settle(s, job, now)
    s.f[job, SPEED] = speed
    rerun(s, rule, job, at)
    return float(s.f[job, EVENT]) if piece >= left else now


@entry
def pace_alone(s: State, rule: Rule, round_s: float, now: float) -> float:
    """Pace all that run, where nobody shares; when the last of their pieces ends."""
    length = 0.0
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0:
            length = max(length, piece_of(s, job, s.f[job, ALONE], round_s, now))
    end = now + length
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0:
            end = max(end, pace(s, rule, job, s.f[job, ALONE], 1.0, round_s, length, now, k))
    return float(end)
