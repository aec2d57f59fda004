"""The order columns: what a job's priority is at a moment, in closed form. Smaller comes first."""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.columns import (
    ATTAINED,
    BELIEF,
    BY_ATTAINED_GPU,
    BY_BELIEF,
    BY_BELIEF_GPU,
    BY_DEADLINE,
    BY_DRAW,
    BY_FIRST_START,
    BY_GITTINS,
    BY_GPUS,
    BY_NOTHING,
    BY_QUEUE,
    BY_REMAINING,
    BY_REMAINING_GPU,
    DEADLINE,
    DONE,
    DRAW,
    FIRST,
    GPUS,
    KEY1,
    KEY2,
    KEY3,
    QUANTUM,
    QUANTUM_FIXED,
    QUANTUM_SUP,
    QUEUE,
    QUEUES,
    ROUND_S,
    RUNNING,
    SINCE,
    SPEED,
    STATE,
    WARM,
)
from cotenant.core.jit import kernel
from cotenant.core.state import IntMatrix, Matrix, Rule


@kernel
def work_done(f: Matrix, i: IntMatrix, job: int, now: float) -> float:
    """Seconds of work finished by `now`, at speed 1."""
    done = f[job, DONE]
    if i[job, STATE] == RUNNING and now > f[job, WARM]:
        done += (now - f[job, WARM]) * f[job, SPEED]
    return float(done)


@kernel
def gittins_index(rule: Rule, attained_gpu_s: float, quantum: float) -> float:
    """Gittins index of a job that has attained this much service, over the samples of past services.

    P(S - a <= D | S > a) / E[min(S - a, D) | S > a]; for the supremum over D it is enough to look at
    D = s - a for the samples s above a (Tiresias, section 3.2). Above the largest sample it is 0.
    """
    samples, prefix = rule.samples, rule.prefix
    count = len(samples)
    below = np.searchsorted(samples, attained_gpu_s, "right")
    if below >= count:
        return 0.0
    if rule.flags[QUANTUM] != QUANTUM_SUP:
        within = np.searchsorted(samples, attained_gpu_s + quantum, "right")
        ending = float(within - below)
        cost = prefix[within] - prefix[below] - ending * attained_gpu_s
        if within < count:
            cost += (count - within) * quantum
        return float(ending / cost) if cost > 0 else 0.0
    best = 0.0
    for last in range(below, count):
        ending = float(last + 1 - below)
        cost = prefix[last + 1] - prefix[below] - ending * attained_gpu_s
        cost += (count - last - 1) * (samples[last] - attained_gpu_s)
        if cost > 0 and ending / cost > best:
            best = ending / cost
    return float(best)


@kernel
def order_value(f: Matrix, i: IntMatrix, rule: Rule, column: int, job: int, now: float) -> float:
    """One order column of one job at `now`."""
    if column == BY_NOTHING:
        return 0.0
    if column == BY_REMAINING:
        return max(float(f[job, BELIEF]) - work_done(f, i, job, now), 0.0)
    if column == BY_REMAINING_GPU:
        return max(float(f[job, BELIEF]) - work_done(f, i, job, now), 0.0) * i[job, GPUS]
    if column == BY_BELIEF:
        return float(f[job, BELIEF])
    if column == BY_QUEUE:
        return float(i[job, QUEUE])
    if column == BY_FIRST_START:
        first = f[job, FIRST]
        return math.inf if math.isnan(first) else float(first)
    if column == BY_ATTAINED_GPU:
        return attained_at_round(f, i, rule, job, now) * i[job, GPUS]
    if column == BY_GITTINS:
        return -gittins_of(f, i, rule, job, now)
    if column == BY_DRAW:
        return float(f[job, DRAW])
    if column == BY_GPUS:
        return float(i[job, GPUS])
    if column == BY_DEADLINE:
        deadline = f[job, DEADLINE]
        return math.inf if math.isnan(deadline) else float(deadline)
    if column == BY_BELIEF_GPU:
        return float(f[job, BELIEF]) * i[job, GPUS]
    return 0.0


@kernel
def attained_at_round(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> float:
    """Executed seconds as of the last round boundary: between rounds a running job's key stands still."""
    attained = float(f[job, ATTAINED])
    if i[job, STATE] == RUNNING:
        boundary = math.floor(now / rule.numbers[ROUND_S]) * rule.numbers[ROUND_S]
        if boundary > f[job, SINCE]:
            attained += boundary - float(f[job, SINCE])
    return attained


@kernel
def gittins_of(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> float:
    """Gittins index of a job now; the last of several queues is first-in-first-out, so 0 there."""
    queue = i[job, QUEUE]
    queues = rule.flags[QUEUES]
    if queues > 1 and queue >= queues - 1:
        return 0.0
    attained = float(f[job, ATTAINED])
    if i[job, STATE] == RUNNING:
        attained += now - float(f[job, SINCE])
    quantum = math.inf
    if rule.flags[QUANTUM] == QUANTUM_FIXED:
        quantum = float(rule.thresholds[0])
    elif queues > 1:
        quantum = float(rule.thresholds[queue])
    return gittins_index(rule, attained * i[job, GPUS], quantum)


@kernel
def set_keys(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> None:
    """Write the job's three keys as of `now`."""
    columns = rule.columns
    f[job, KEY1] = order_value(f, i, rule, columns[0], job, now)
    if columns[1] != BY_NOTHING:
        f[job, KEY2] = order_value(f, i, rule, columns[1], job, now)
        if columns[2] != BY_NOTHING:
            f[job, KEY3] = order_value(f, i, rule, columns[2], job, now)
