"""How fast running jobs really go, where that changes while they run: co-runners, cores, whole steps.

`start` gives a job the speed of its kind on its GPU type. A rate model then says otherwise after every decision;
`rerate` settles what was done at the old speed and goes on at the new one, without a restart. Start-up and exit are
phases of their own: a job that imports and builds is no company yet, one that saves and leaves is none any more, and
company does not slow either. NEXT_WARM is when the first job that has company comes into another phase.
"""

from __future__ import annotations

import math
from typing import Protocol

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Cube, Matrix, Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import position_of, work_done
from cotenant.engine.ledger import rerun

_SOON_S = 1e-6  # moments are rounded


class RateModel(Protocol):
    """Truth about speeds in a situation; called after every decision."""

    def update(self, state: State, rule: Rule, now_s: float) -> None:
        """Rerate whoever's situation has changed."""


@entry
def rerate(s: State, rule: Rule, jobs: Ints, speeds: Floats, now: float) -> None:
    """From now on these running jobs do this many seconds of work per second."""
    for k in range(len(jobs)):
        job = jobs[k]
        if s.f[job, SPEED] == speeds[k] or s.i[job, PROMISED] == 1:
            continue
        settle(s, job, now)
        s.f[job, SPEED] = speeds[k]
        rerun(s, rule, job, position_of(s.run, s.x[N_RUN], job))
    s.t[NEXT_WARM] = math.inf
    for k in range(len(jobs)):
        change = next_phase(s, jobs[k], now)
        if change < s.t[NEXT_WARM] and has_company(s, jobs[k]):
            s.t[NEXT_WARM] = change


@kernel
def starts_up(s: State, job: int, now: float) -> bool:
    """Whether it imports and builds: it does not use its GPUs yet, and so slows nobody down."""
    return bool(s.f[job, START_UP] > 0 and now < s.f[job, WARM] and s.i[job, PROMISED] == 0)


@entry
def winds_up(s: State, job: int, now: float) -> bool:
    """Whether all its steps are done, and it saves and leaves: that takes as long as it takes, whoever is beside it."""
    return bool(s.f[job, EXIT] > 0 and work_done(s.f, s.i, job, now) >= s.f[job, WORK] - s.f[job, EXIT] - _SOON_S)


@kernel
def next_phase(s: State, job: int, now: float) -> float:
    """When a running job begins to use its GPUs, or is done with them; infinity where it is, or where nobody knows."""
    if starts_up(s, job, now):
        return float(s.f[job, WARM])
    if s.f[job, EXIT] == 0 or s.i[job, PROMISED] == 1 or winds_up(s, job, now):
        return math.inf
    steps = s.f[job, WORK] - s.f[job, EXIT] - s.f[job, DONE]
    return float(max(s.f[job, WARM], s.f[job, RATED]) + steps / s.f[job, SPEED])


@kernel
def has_company(s: State, job: int) -> bool:
    """Whether somebody else sits on any of its GPUs."""
    at = s.i[job, SLICE]
    while at >= 0 and s.x[SHARING] == 1:
        first = s.gpu_first[s.slices[at, SLICE_NODE]]
        for g in range(first, s.gpu_first[s.slices[at, SLICE_NODE] + 1]):
            if (s.slices[at, SLICE_MASK] >> (g - first)) & 1 and s.gpu[g, 1] >= 0:
                return True
        at = s.slices[at, SLICE_NEXT]
    return False


@kernel
def settle(s: State, job: int, now: float) -> None:
    """Book what a running job has done, and lost to restoring, up to now; it goes on from here."""
    restoring = min(now, s.f[job, WARM]) - s.f[job, RATED]
    if restoring > 0:
        s.f[job, LOST] += restoring * s.i[job, GPUS]
    s.f[job, DONE] = min(work_done(s.f, s.i, job, now), s.f[job, WORK])
    s.f[job, RATED] = now


@entry
def restart(s: State, rule: Rule, jobs: Ints, speeds: Floats, pause_s: Floats, now: float) -> None:
    """These running jobs start anew where they are: no progress for `pause_s`, then this speed.

    A job that began to run before now counts one more start; a pause of 0 is a change of speed only.
    """
    for k in range(len(jobs)):
        job = jobs[k]
        settle(s, job, now)
        s.f[job, SPEED] = speeds[k]
        if pause_s[k] > 0:
            s.f[job, WARM] = now + pause_s[k]
            if s.f[job, SINCE] < now:
                s.i[job, STARTS] += 1
        rerun(s, rule, job, position_of(s.run, s.x[N_RUN], job))


@kernel
def at_work(s: State, job: int) -> bool:
    """Whether it makes steps: it is not only promised its GPUs, does not start and does not leave."""
    return bool(s.i[job, PROMISED] == 0 and not starts_up(s, job, s.t[NOW]) and not winds_up(s, job, s.t[NOW]))


@kernel
def disturbs(s: State, other: int, job: int) -> bool:
    """Whether one that sits on a GPU of a job is at work there beside it, and not in another turn."""
    if other < 0 or other == job or not at_work(s, other):
        return False
    return bool(s.i[job, TURN] * s.i[other, TURN] <= 0 or s.i[job, TURN] == s.i[other, TURN])


@kernel
def loss_to(s: State, ratio: Cube, eased: Matrix, job: int, other: int, gpu_type: int) -> float:
    """What one that is at work on the same GPU costs a job: longer steps, as a part of a step alone."""
    beside = ratio[s.i[job, SPEED_ROW], s.i[other, SPEED_ROW], gpu_type]
    full = 1.0 / beside - 1.0 if beside > 0 else 1.0
    return float(full * eased[s.i[job, SPEED_ROW], s.i[job, LEVEL]] * eased[s.i[other, SPEED_ROW], s.i[other, LEVEL]])


@kernel
def speed_beside(s: State, ratio: Cube, eased: Matrix, job: int, g: int, gpu_type: int) -> float:
    """Speed of a job on one of its GPUs against alone: the slowdowns of all others add up.

    Who is held back pauses between its steps, and disturbs nobody meanwhile. So the speed is the mean over who is just
    at work, each for its share of the time and independent of the others.
    """
    slow, held_back = 1.0, 0
    for place in range(s.gpu.shape[1]):
        other = s.gpu[g, place]
        if disturbs(s, other, job):
            slow += loss_to(s, ratio, eased, job, other, gpu_type)
            if s.i[other, TURN] == 0 and s.f[other, SHARE] < 1.0:
                held_back |= 1 << place
    if held_back == 0:
        return 1.0 / slow
    speed, pausing = 0.0, held_back
    while True:  # all parts of those that are held back, as those that pause
        chance, less = 1.0, slow
        for place in range(s.gpu.shape[1]):
            if (held_back >> place) & 1:
                other = s.gpu[g, place]
                if (pausing >> place) & 1:
                    chance *= 1.0 - s.f[other, SHARE]
                    less -= loss_to(s, ratio, eased, job, other, gpu_type)
                else:
                    chance *= s.f[other, SHARE]
        speed += chance / less
        if pausing == 0:
            return speed
        pausing = (pausing - 1) & held_back


@entry
def shared_speeds(
    s: State, ratio: Cube, eased: Matrix, pace: Matrix, curve: Matrix, points: Floats, jobs: Ints,
    out: Floats,
) -> None:  # fmt: skip
    """Speed of each running job on its terms and in its company: a gang moves at its slowest GPU.

    Every other job on a GPU adds its slowdown; jobs that take turns do not disturb each other. `ratio[a, b, type]` is
    the speed of kind a beside kind b against alone, `eased` what sub-batches leave of that loss, `pace` their speed,
    `curve` (at `points`) that of memory limits. Who is held back to a share of the time makes its steps as fast as its
    company lets it, and then pauses.
    """
    for k in range(len(jobs)):
        job = jobs[k]
        kind = s.i[job, SPEED_ROW]
        if winds_up(s, job, s.t[NOW]):
            out[k] = s.f[job, ALONE]
            continue
        slowest = 1.0
        at = s.i[job, SLICE]
        while at >= 0:
            n = s.slices[at, SLICE_NODE]
            gpu_type = s.pool[s.node[n, NODE_POOL], POOL_TYPE]
            g, mask = s.gpu_first[n], s.slices[at, SLICE_MASK]
            while mask:
                if mask & 1 and not (s.gpu[g, 0] == job and s.gpu[g, 1] < 0):
                    slowest = min(slowest, speed_beside(s, ratio, eased, job, g, gpu_type))
                mask >>= 1
                g += 1
            at = s.slices[at, SLICE_NEXT]
        turn = 1.0 if s.i[job, TURN] > 0 and s.x[ROTATES] == 1 else s.f[job, SHARE]  # 1: its turn is now
        speed = s.f[job, ALONE] * turn * slowest * pace[kind, s.i[job, LEVEL]]
        cap = s.f[job, CAP]
        if cap < 1.0:
            p = 0
            while p < len(points) - 2 and points[p + 1] < cap:
                p += 1
            inside = (cap - points[p]) / (points[p + 1] - points[p])
            speed *= curve[kind, p] + inside * (curve[kind, p + 1] - curve[kind, p])
        out[k] = max(speed, 1e-9 * s.f[job, ALONE])


@entry
def rerate_shared(
    s: State, rule: Rule, ratio: Cube, eased: Matrix, pace: Matrix, curve: Matrix, points: Floats, jobs: Ints,
    speeds: Floats, now: float,
) -> None:  # fmt: skip
    """`rerate` everybody who runs by `shared_speeds`; `jobs` and `speeds` are scratch, as long as the list of these."""
    count = 0
    for k in range(s.x[N_RUN]):
        if s.run[k] >= 0 and s.i[s.run[k], PROMISED] == 0:
            jobs[count] = s.run[k]
            count += 1
    shared_speeds(s, ratio, eased, pace, curve, points, jobs[:count], speeds[:count])
    rerate(s, rule, jobs[:count], speeds[:count], now)


@entry
def paired_speeds(s: State, pair: Cube, jobs: Ints, out: Floats) -> None:
    """Speed of each running job beside whoever shares its GPUs: a gang moves at its slowest GPU.

    `pair[a, b, type]` is the speed of kind a beside kind b. With several others on a GPU the slowdowns multiply.
    """
    for k in range(len(jobs)):
        job = jobs[k]
        kind, alone = s.i[job, SPEED_ROW], s.f[job, ALONE]
        if winds_up(s, job, s.t[NOW]):
            out[k] = alone
            continue
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
                for place in range(s.gpu.shape[1]):
                    other = s.gpu[g, place]
                    if other >= 0 and other != job and at_work(s, other):
                        share *= pair[kind, s.i[other, SPEED_ROW], gpu_type] / base
                slowest = min(slowest, share)
            at = s.slices[at, SLICE_NEXT]
        out[k] = alone * slowest
