"""The order columns: what a job's priority is at a moment, in closed form. Smaller comes first."""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, Rule, State
from cotenant.core.workload import Floats, Ints


@entry
def work_done(f: Matrix, i: IntMatrix, job: int, now: float) -> float:
    """Seconds of work finished by `now`, at speed 1."""
    done = f[job, DONE]
    since = max(f[job, WARM], f[job, RATED])
    if i[job, STATE] == RUNNING and now > since:
        done += (now - since) * f[job, SPEED]
    return float(done)


@kernel
def gittins_index(
    samples: Floats, prefix: Floats, counts: Floats, supremum: bool, attained: float, quantum: float
) -> float:
    """Gittins index of a job that has attained this much service, over distinct past services.

    P(S - a <= D | S > a) / E[min(S - a, D) | S > a]; for the supremum over D it is enough to look at
    D = s - a for the samples s above a (Tiresias, section 3.2). Above the largest sample it is 0.
    `prefix` and `counts` hold sums and numbers of all services up to each sample. All in GPU-seconds.
    """
    size = len(samples)
    below = int(np.searchsorted(samples, attained, "right"))
    if below >= size:
        return 0.0
    if not supremum:
        within = int(np.searchsorted(samples, attained + quantum, "right"))
        return _gittins_value(prefix, counts, below, within, attained, quantum)
    best = 0.0
    for last in range(below, size):
        best = max(best, _gittins_value(prefix, counts, below, last + 1, attained, samples[last] - attained))
    return best


@kernel
def _gittins_further(
    samples: Floats, prefix: Floats, counts: Floats, hot: Matrix, k: int, attained: float, quantum: float
) -> float:
    """The same for one quantum and a running job: its place among the samples only moves up, so it is kept."""
    size = len(samples)
    below, within = int(hot[H_BELOW, k]), int(hot[H_WITHIN, k])
    if below < 0:
        below = int(np.searchsorted(samples, attained, "right"))
        within = int(np.searchsorted(samples, attained + quantum, "right"))
    while below < size and samples[below] <= attained:
        below += 1
    while within < size and samples[within] <= attained + quantum:
        within += 1
    hot[H_BELOW, k], hot[H_WITHIN, k] = below, within
    return _gittins_value(prefix, counts, below, within, attained, quantum)


@kernel
def _gittins_value(prefix: Floats, counts: Floats, below: int, within: int, attained: float, quantum: float) -> float:
    """Services in (a, a + D] over what all services above a cost up to D each."""
    ending = counts[within] - counts[below]
    cost = prefix[within] - prefix[below] - ending * attained
    beyond = counts[len(counts) - 1] - counts[within]
    if beyond > 0:
        cost += beyond * quantum
    return float(ending / cost) if cost > 0 else 0.0


@kernel
def _moving(column: int, left_s: float, attained_s: float, gpus: float, queue: float, first: float) -> float:
    """Order columns that change while a job runs, from their ingredients at a moment."""
    if column == BY_REMAINING:
        return max(left_s, 0.0)
    if column == BY_REMAINING_GPU:
        return max(left_s, 0.0) * gpus
    if column == BY_QUEUE:
        return queue
    if column == BY_FIRST_START:
        return math.inf if math.isnan(first) else first
    if column == BY_ATTAINED_GPU:
        return attained_s * gpus
    return 0.0


@kernel
def _fixed(f: Matrix, i: IntMatrix, column: int, job: int) -> float:
    """Order columns that never change."""
    if column == BY_BELIEF:
        return float(f[job, BELIEF])
    if column == BY_DRAW:
        return float(f[job, DRAW])
    if column == BY_GPUS:
        return float(i[job, GPUS])
    if column == BY_DEADLINE:
        deadline = float(f[job, DEADLINE])
        return math.inf if math.isnan(deadline) else deadline
    if column == BY_BELIEF_GPU:
        return float(f[job, BELIEF] * i[job, GPUS])
    if column == BY_TIER:
        return float(f[job, TIER])
    return 0.0


@kernel
def _quantum(rule: Rule, queue: int) -> float:
    """Service quantum of the Gittins index in a queue; 0 in the last of several, which is in FIFO order."""
    queues = rule.flags[QUEUES]
    if queues > 1 and queue >= queues - 1:
        return 0.0
    if rule.flags[QUANTUM] == QUANTUM_FIXED:
        return float(rule.thresholds[0])
    return float(rule.thresholds[queue]) if queues > 1 else math.inf


@kernel
def _key(f: Matrix, i: IntMatrix, rule: Rule, column: int, job: int, now: float) -> float:
    if column >= FIRST_FIXED_COLUMN:
        return _fixed(f, i, column, job)
    running = i[job, STATE] == RUNNING
    attained = float(f[job, ATTAINED])
    if column == BY_GITTINS:
        quantum = _quantum(rule, i[job, QUEUE])
        if quantum == 0.0:
            return 0.0
        if running:
            attained += now - float(f[job, SINCE])
        supremum = rule.flags[QUANTUM] == QUANTUM_SUP
        return -gittins_index(rule.samples, rule.prefix, rule.counts, supremum, attained * i[job, GPUS], quantum)
    if running and column == BY_ATTAINED_GPU:
        attained += max(round_start(rule, now) - float(f[job, SINCE]), 0.0)
    left = float(f[job, BELIEF]) - work_done(f, i, job, now)
    return _moving(column, left, attained, float(i[job, GPUS]), float(i[job, QUEUE]), float(f[job, FIRST]))


@kernel
def round_start(rule: Rule, now: float) -> float:
    """The last round boundary. Attained service counts up to it: between rounds keys stand still."""
    round_s = float(rule.numbers[ROUND_S])
    return round_number(round_s, now) * round_s if round_s < math.inf else 0.0


@kernel
def round_number(round_s: float, now: float) -> int:
    """How many rounds have begun by `now`; a moment computed as k * round_s belongs to round k."""
    number = math.floor(now / round_s)
    return int(number + 1 if (number + 1) * round_s <= now else number)


@kernel
def set_keys(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> None:
    """Write the keys of a job as of `now`."""
    f[job, KEY1] = _key(f, i, rule, rule.columns[0], job, now)
    if rule.columns[1] != BY_NOTHING:
        f[job, KEY2] = _key(f, i, rule, rule.columns[1], job, now)
        f[job, KEY3] = _key(f, i, rule, rule.columns[2], job, now)
        if rule.columns[3] != BY_NOTHING:
            f[job, KEY4] = _key(f, i, rule, rule.columns[3], job, now)


@kernel
def _hot_column(hot: Matrix, out: Floats, count: int, column: int, boundary: float, now: float) -> None:
    """The same as `_key` for all running jobs at once, one tight loop per column."""
    left, warm, speed, gpus = hot[H_LEFT], hot[H_WARM], hot[H_SPEED], hot[H_GPUS]
    if column == BY_REMAINING:
        for k in range(count):
            out[k] = max(left[k] - max(now - warm[k], 0.0) * speed[k], 0.0)
    elif column == BY_REMAINING_GPU:
        for k in range(count):
            out[k] = max(left[k] - max(now - warm[k], 0.0) * speed[k], 0.0) * gpus[k]
    elif column == BY_ATTAINED_GPU:
        for k in range(count):
            out[k] = (hot[H_ATTAINED, k] + max(boundary - hot[H_SINCE, k], 0.0)) * gpus[k]
    else:
        source = hot[H_QUEUE] if column == BY_QUEUE else hot[H_FIRST]
        for k in range(count):
            out[k] = source[k]


@kernel
def refresh_keys(s: State, rule: Rule, now: float) -> None:
    """Write the keys of all running jobs, in step with `s.run`; arrays are taken out before the loops."""
    f, i, hot, run, keys, count = s.f, s.i, s.hot, s.run, s.keys, s.x[N_RUN]
    samples, prefix, counts = rule.samples, rule.prefix, rule.counts
    supremum = rule.flags[QUANTUM] == QUANTUM_SUP
    for c in range(keys.shape[0]):
        column = rule.columns[c]
        if column == BY_NOTHING:
            continue
        if column == BY_GITTINS:
            for k in range(count):
                quantum = _quantum(rule, int(hot[H_QUEUE, k]))
                attained = (hot[H_ATTAINED, k] + now - hot[H_SINCE, k]) * hot[H_GPUS, k]
                keys[c, k] = 0.0
                if quantum > 0.0 and supremum:
                    keys[c, k] = -gittins_index(samples, prefix, counts, True, attained, quantum)
                elif quantum > 0.0:
                    keys[c, k] = -_gittins_further(samples, prefix, counts, hot, k, attained, quantum)
        elif column >= FIRST_FIXED_COLUMN:
            for k in range(count):
                keys[c, k] = _fixed(f, i, column, run[k])
        else:
            _hot_column(hot, keys[c], count, column, round_start(rule, now), now)


@kernel
def gpus_not_ahead(keys: Matrix, hot: Matrix, count: int, key1: float, key2: float) -> float:
    """GPUs of the running jobs whose first two keys are not below these: at least those behind such a job."""
    first, second, gpus = keys[0], keys[1], hot[H_GPUS]
    total = 0.0
    for k in range(count):
        not_ahead = (first[k] > key1) | ((first[k] == key1) & (second[k] >= key2))
        total += gpus[k] if not_ahead else 0.0
    return total


@kernel
def before_running(f: Matrix, job: int, keys: Matrix, k: int, other: int) -> bool:
    """Whether a waiting job comes before the running job `other` whose keys stand in row k."""
    if f[job, KEY1] != keys[0, k]:
        return bool(f[job, KEY1] < keys[0, k])
    if f[job, KEY2] != keys[1, k]:
        return bool(f[job, KEY2] < keys[1, k])
    if f[job, KEY3] != keys[2, k]:
        return bool(f[job, KEY3] < keys[2, k])
    if keys.shape[0] > 3 and f[job, KEY4] != keys[3, k]:
        return bool(f[job, KEY4] < keys[3, k])
    return job < other


@kernel
def compact_running(s: State) -> None:
    """Drop the places of jobs that no longer run from the list of running jobs, keeping its order."""
    run, hot, count = s.run, s.hot, s.x[N_RUN]
    first = 0
    while first < count and run[first] >= 0:
        first += 1
    if first == count:
        return
    for c in range(hot.shape[0]):
        column = hot[c]
        kept = first
        for k in range(first + 1, count):
            if run[k] >= 0:
                column[kept] = column[k]
                kept += 1
    kept = first
    for k in range(first + 1, count):
        if run[k] >= 0:
            run[kept] = run[k]
            kept += 1
    s.x[N_RUN] = kept


@entry
def position_of(run: Ints, count: int, job: int) -> int:
    """Where a running job stands in the list of running jobs."""
    for k in range(count):
        if run[k] == job:
            return k
    return -1
