"""How fast running jobs really go, where that changes while they run: co-runners, cores, whole steps.

`start` gives a job the speed of its kind on its GPU type. A rate model then says otherwise after every decision;
`rerate` settles what was done at the old speed and goes on at the new one, without a restart.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cotenant.core.columns import (
    ALONE,
    DONE,
    EVENT,
    N_RUN,
    NODE_POOL,
    POOL_TYPE,
    RATED,
    SLICE,
    SLICE_MASK,
    SLICE_NEXT,
    SLICE_NODE,
    SLOTS,
    SPEED,
    SPEED_ROW,
    STEPS,
    WORK,
)
from cotenant.core.jit import entry
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import position_of, work_done
from cotenant.engine.ledger import heat, schedule_run


class RateModel(Protocol):
    """Truth about speeds in a situation; called after every decision."""

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate whoever's situation has changed."""


@entry
def rerate(s: State, rule: Rule, jobs: Ints, speeds: Floats, now: float) -> None:
    """From now on these running jobs do this many seconds of work per second."""
    for k in range(len(jobs)):
        job = jobs[k]
        if s.f[job, SPEED] == speeds[k]:
            continue
        s.f[job, DONE] = min(work_done(s.f, s.i, job, now), s.f[job, WORK])
        s.f[job, RATED] = now
        s.f[job, SPEED] = speeds[k]
        heat(s.f, s.i, s.slices, s.hot, s.x, job, position_of(s.run, s.x[N_RUN], job))
        schedule_run(s.f, s.i, s.events, s.x, rule.thresholds, job)


@entry
def pace_whole_steps(s: State, rule: Rule, jobs: Ints, speeds: Floats, round_s: float, now: float) -> float:
    """Give each running job floor(rate x round) steps, or what is left; when the last of these pieces ends.

    A job that does not end in the round is paced so that it has made exactly its steps by then (released Gavel
    simulator). `speeds` are seconds of work per second; they are changed to the paces.
    """
    length = 0.0
    for k in range(len(jobs)):
        job = jobs[k]
        rate = speeds[k] * s.f[job, STEPS]
        left = round((s.f[job, WORK] - work_done(s.f, s.i, job, now)) * s.f[job, STEPS])
        length = max(length, min(math.floor(rate * round_s + 1e-9), left) / rate)
    end = now + length
    for k in range(len(jobs)):
        job = jobs[k]
        steps = s.f[job, STEPS]
        done = work_done(s.f, s.i, job, now)
        left = round((s.f[job, WORK] - done) * steps)
        piece = math.floor(speeds[k] * steps * round_s + 1e-9)
        if piece < left and length > 0:
            speeds[k] = piece / steps / length
        s.f[job, DONE] = min(done, s.f[job, WORK])
        s.f[job, RATED] = now
        s.f[job, SPEED] = speeds[k]
        heat(s.f, s.i, s.slices, s.hot, s.x, job, position_of(s.run, s.x[N_RUN], job))
        schedule_run(s.f, s.i, s.events, s.x, rule.thresholds, job)
        if piece >= left:
            end = max(end, s.f[job, EVENT])
    return float(end)


@entry
def paired_speeds(s: State, pair: NDArray[np.float64], jobs: Ints, out: Floats) -> None:
    """Speed of each running job beside whoever shares its GPUs: a gang moves at its slowest GPU.

    `pair[a, b, type]` is the speed of kind a beside kind b. With several others on a GPU the slowdowns multiply.
    """
    for k in range(len(jobs)):
        job = jobs[k]
        kind, alone = s.i[job, SPEED_ROW], s.f[job, ALONE]
        slowest = 1.0
        at = s.i[job, SLICE]
        while at >= 0:
            n = s.slices[at, SLICE_NODE]
            gpu_type = s.pool[s.node[n, NODE_POOL], POOL_TYPE]
            base = s.speed[kind, gpu_type, 0]
            first = s.gpu_first[n]
            for g in range(first, s.gpu_first[n + 1]):
                if not (s.slices[at, SLICE_MASK] >> (g - first)) & 1:
                    continue
                share = 1.0
                for place in range(SLOTS):
                    other = s.gpu[g, place]
                    if other >= 0 and other != job:
                        share *= pair[kind, s.i[other, SPEED_ROW], gpu_type] / base
                slowest = min(slowest, share)
            at = s.slices[at, SLICE_NEXT]
        out[k] = alone * slowest
