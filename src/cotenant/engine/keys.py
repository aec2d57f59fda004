"""The order columns: what a job's priority is at a moment, in closed form. Smaller comes first."""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import IntMatrix, Matrix, Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.gittins import gittins_further, gittins_index
from cotenant.engine.listing import listed_key
from cotenant.engine.weighing import less_cost, loses_work, shielded_until, start_s, stop_cost

SLACK = 1e-9  # keys that were computed in another way differ by less
EMPTY = 8  # places of jobs that no longer run may stay in the list, however few run


@entry
def work_done(f: Matrix, i: IntMatrix, job: int, now: float) -> float:
    """Seconds of work finished by `now`, at speed 1."""
    done = f[job, DONE]
    since = max(f[job, WARM], f[job, RATED])
    if i[job, STATE] == RUNNING and now > since:
        done += (now - since) * f[job, SPEED]
    return float(done)


@kernel
def with_slack(key: float) -> float:
    """A key, or a little more: that of the same job at the same moment, however it is computed."""
    return key if math.isinf(key) else key + SLACK * (1.0 + abs(key))


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
def quantum_of(rule: Rule, queue: int) -> float:
    """Service quantum of the Gittins index in a queue; 0 in the last of several, which is in FIFO order."""
    queues = rule.flags[QUEUES]
    if queues > 1 and queue >= queues - 1:
        return 0.0
    if rule.flags[QUANTUM] == QUANTUM_FIXED:
        return float(rule.thresholds[0])
    return float(rule.thresholds[queue]) if queues > 1 else math.inf


@kernel
def gittins_key(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> float:
    """Minus the Gittins index of a job in its queue."""
    quantum = quantum_of(rule, i[job, QUEUE])
    if quantum == 0.0:
        return 0.0
    attained = float(f[job, ATTAINED])
    if i[job, STATE] == RUNNING:
        attained += now - float(f[job, SINCE])
    supremum = rule.flags[QUANTUM] == QUANTUM_SUP
    return -gittins_index(rule.samples, rule.prefix, rule.counts, supremum, attained * i[job, GPUS], quantum)


@kernel
def attained_s(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> float:
    """Attained service as it counts for the order: up to the last round."""
    attained = float(f[job, ATTAINED])
    if i[job, STATE] == RUNNING:
        attained += max(round_start(rule, now) - float(f[job, SINCE]), 0.0)
    return attained


@kernel
def needs_s(f: Matrix, i: IntMatrix, job: int, now: float) -> float:
    """Believed seconds to its end if it has GPUs from now on, what its start still takes included."""
    left = max(float(f[job, BELIEF]) - work_done(f, i, job, now), 0.0)
    if i[job, STATE] == RUNNING:
        return left + (max(float(f[job, WARM]) - now, 0.0) if i[job, PROMISED] == 0 else start_s(f, i, job))
    return left + start_s(f, i, job)


@kernel
def cost_now(f: Matrix, i: IntMatrix, job: int, now: float, moved: bool) -> float:
    """What stopping a running job costs at this moment."""
    cost = stop_cost(f, i, job, moved)
    return cost + (work_done(f, i, job, now) - float(f[job, DONE]) if loses_work(i, job, moved) else 0.0)


@kernel
def _weighed_key(f: Matrix, i: IntMatrix, rule: Rule, column: int, job: int, now: float) -> float:
    """The key of a job where a running one stands ahead by what stopping it costs; of equals it stays."""
    running = i[job, STATE] == RUNNING
    cost = cost_now(f, i, job, now, False) if running else 0.0
    gpus = float(i[job, GPUS])
    if column == BY_REMAINING:
        return needs_s(f, i, job, now) - cost
    if column == BY_REMAINING_GPU:
        return (needs_s(f, i, job, now) - cost) * gpus
    if column == BY_ATTAINED_GPU:
        return (attained_s(f, i, rule, job, now) - cost) * gpus
    if column == BY_GITTINS:
        return less_cost(gittins_key(f, i, rule, job, now), cost * gpus)
    if column == BY_NOTHING:
        return -1.0 if cost > 0 else 0.0
    return _moving(column, 0.0, 0.0, gpus, float(i[job, QUEUE]), float(f[job, FIRST]) - cost)


@kernel
def key_of(f: Matrix, i: IntMatrix, rule: Rule, column: int, job: int, now: float) -> float:
    """The key of a job in an order column; minimum runs left aside."""
    if column >= FIRST_FIXED_COLUMN:
        return _fixed(f, i, column, job)
    if column == BY_LISTED:
        return listed_key(f, i, job)
    if rule.flags[WEIGHS] == 1:
        return _weighed_key(f, i, rule, column, job, now)
    if column == BY_GITTINS:
        return gittins_key(f, i, rule, job, now)
    attained = attained_s(f, i, rule, job, now) if column == BY_ATTAINED_GPU else float(f[job, ATTAINED])
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
    f[job, KEY1] = key_of(f, i, rule, rule.columns[0], job, now)
    weighed = rule.flags[WEIGHS] == 1 and i[job, STATE] == RUNNING
    if rule.columns[1] != BY_NOTHING or weighed:
        f[job, KEY2] = key_of(f, i, rule, rule.columns[1], job, now)
        f[job, KEY3] = key_of(f, i, rule, rule.columns[2], job, now)
        if rule.columns[3] != BY_NOTHING:
            f[job, KEY4] = key_of(f, i, rule, rule.columns[3], job, now)
    if weighed:
        cost = stop_cost(f, i, job, False)
        if shielded_until(f[job, SINCE], f[job, WARM], cost, rule.numbers[MIN_RUN_S]) > now:
            f[job, KEY1 if rule.columns[0] != BY_TIER else KEY2] = -math.inf


@kernel
def set_keys_if_moved(f: Matrix, i: IntMatrix, rule: Rule, job: int, now: float) -> None:
    """Write the keys that a job with GPUs would have if it lost them now, to begin elsewhere."""
    owes, done, attained = i[job, OWES], f[job, DONE], f[job, ATTAINED]
    if i[job, PROMISED] == 0:
        f[job, DONE] = f[job, SAVED] if loses_work(i, job, True) else work_done(f, i, job, now)
        f[job, ATTAINED] += now - f[job, SINCE]
        i[job, OWES] = 1 if f[job, DONE] > 0 else 0
    i[job, STATE] = WAITING
    set_keys(f, i, rule, job, now)
    i[job, STATE], i[job, OWES], f[job, DONE], f[job, ATTAINED] = RUNNING, owes, done, attained


@kernel
def hot_key(hot: Matrix, column: int, k: int, boundary: float, now: float) -> float:
    """The same as `key_of` for a running job, from its hot row; not for columns that never change."""
    if column in (BY_REMAINING, BY_REMAINING_GPU):
        left = max(hot[H_LEFT, k] - max(now - hot[H_WARM, k], 0.0) * hot[H_SPEED, k], 0.0)
        return float(left * hot[H_GPUS, k] if column == BY_REMAINING_GPU else left)
    if column == BY_ATTAINED_GPU:
        return float((hot[H_ATTAINED, k] + max(boundary - hot[H_SINCE, k], 0.0)) * hot[H_GPUS, k])
    if column == BY_QUEUE:
        return float(hot[H_QUEUE, k])
    return float(hot[H_LISTED, k] if column == BY_LISTED else hot[H_FIRST, k])


@kernel
def weighed_hot_key(hot: Matrix, column: int, k: int, boundary: float, now: float) -> float:
    """The same as `_weighed_key`."""
    if column == BY_NOTHING:
        return -1.0 if hot[H_COST, k] > 0 else 0.0
    if column == BY_QUEUE:
        return float(hot[H_QUEUE, k])
    worked = max(now - hot[H_WARM, k], 0.0) * hot[H_SPEED, k]
    lost = hot[H_COST, k] + hot[H_RISK, k] * worked
    if column in (BY_REMAINING, BY_REMAINING_GPU):
        needs = max(hot[H_LEFT, k] - worked, 0.0) + max(hot[H_WARM, k] - now, 0.0)
        return float((needs - lost) * hot[H_GPUS, k] if column == BY_REMAINING_GPU else needs - lost)
    if column == BY_ATTAINED_GPU:
        return float((hot[H_ATTAINED, k] + max(boundary - hot[H_SINCE, k], 0.0) - lost) * hot[H_GPUS, k])
    return float(hot[H_FIRST, k] - lost)


@kernel
def _hot_column(hot: Matrix, out: Floats, count: int, column: int, boundary: float, now: float) -> None:
    """The keys of many running jobs, one tight loop per column."""
    for one in (BY_REMAINING, BY_REMAINING_GPU, BY_ATTAINED_GPU, BY_QUEUE, BY_LISTED, BY_FIRST_START):
        if column == one:
            for k in range(count):
                out[k] = hot_key(hot, one, k, boundary, now)


@kernel
def _weighed_column(hot: Matrix, out: Floats, count: int, column: int, boundary: float, now: float) -> None:
    """The same where stops are weighed."""
    for one in (BY_REMAINING, BY_REMAINING_GPU, BY_ATTAINED_GPU, BY_NOTHING, BY_QUEUE, BY_FIRST_START):
        if column == one:
            for k in range(count):
                out[k] = weighed_hot_key(hot, one, k, boundary, now)


@kernel
def _shield(s: State, rule: Rule, now: float) -> None:
    """Whoever is in its minimum run, or was promised its GPUs, comes first of its tier. NEXT_LOOSE is when the first of
    them could be displaced."""
    hot, min_run = s.hot, rule.numbers[MIN_RUN_S]
    own = 1 if rule.columns[0] == BY_TIER else 0
    first = math.nan  # of those who wait; looked up once somebody is shielded
    s.t[NEXT_LOOSE] = math.inf
    for k in range(s.x[N_RUN]):
        until = shielded_until(hot[H_SINCE, k], hot[H_BEGAN, k], hot[H_COST, k], min_run)
        if until <= now:
            continue
        if until < s.t[NEXT_LOOSE]:
            if math.isnan(first):
                first = first_waiting(s, KEY2 if own == 1 else KEY1)
            if s.keys[own, k] > first:
                s.t[NEXT_LOOSE] = until
        s.keys[own, k] = -math.inf


@kernel
def _list_shielded(s: State, job: int, until: float) -> None:
    """Note until when a job is in its minimum run; when the list is full, whoever no longer runs is dropped."""
    if s.i[job, SHIELDED] > 0:
        s.bare[s.i[job, SHIELDED] - 1] = until
        return
    if s.x[N_SHIELDED] == s.shield.shape[0]:
        kept = 0
        for k in range(s.x[N_SHIELDED]):
            listed = s.shield[k]
            if s.i[listed, STATE] == RUNNING:
                s.shield[kept], s.bare[kept] = listed, s.bare[k]
                kept += 1
                s.i[listed, SHIELDED] = kept
            else:
                s.i[listed, SHIELDED] = 0
        s.x[N_SHIELDED] = kept
    s.shield[s.x[N_SHIELDED]], s.bare[s.x[N_SHIELDED]] = job, until
    s.x[N_SHIELDED] += 1
    s.i[job, SHIELDED] = s.x[N_SHIELDED]


@kernel
def note_shield(s: State, rule: Rule, job: int, now: float) -> None:
    """A run begins: NEXT_LOOSE is when its minimum run is over, if that comes first and holds somebody back."""
    if rule.flags[WEIGHS] == 0:
        return
    cost = stop_cost(s.f, s.i, job, False)
    until = shielded_until(s.f[job, SINCE], s.f[job, WARM], cost, rule.numbers[MIN_RUN_S])
    if until > now or s.i[job, SHIELDED] > 0:
        _list_shielded(s, job, until)
        s.t[NEXT_BARE] = min(s.t[NEXT_BARE], until)
    if s.x[N_WAITING] > 0 and now < until < s.t[NEXT_LOOSE]:
        own = 1 if rule.columns[0] == BY_TIER else 0
        first = first_waiting(s, KEY2 if own == 1 else KEY1)
        if key_of(s.f, s.i, rule, rule.columns[own], job, now) > first:
            s.t[NEXT_LOOSE] = until


@kernel
def first_waiting(s: State, key: int) -> float:
    """The smallest such key of the first waiting jobs of all classes."""
    first = math.inf
    for c in range(s.cls.shape[0]):
        if s.cls[c, C_LEN] > 0:
            first = min(first, s.f[s.heap[s.cls[c, C_OFFSET]], key])
    return first


@kernel
def _index_key(hot: Matrix, rule: Rule, k: int, now: float) -> float:
    """The same as `gittins_key` for a running job, what stopping it costs included."""
    quantum = quantum_of(rule, int(hot[H_QUEUE, k]))
    attained = (hot[H_ATTAINED, k] + now - hot[H_SINCE, k]) * hot[H_GPUS, k]
    key = 0.0
    if quantum > 0.0 and rule.flags[QUANTUM] == QUANTUM_SUP:
        key = -gittins_index(rule.samples, rule.prefix, rule.counts, True, attained, quantum)
    elif quantum > 0.0:
        key = -gittins_further(rule.samples, rule.prefix, rule.counts, hot, k, attained, quantum)
    if rule.flags[WEIGHS] == 0:
        return key
    lost = hot[H_COST, k] + hot[H_RISK, k] * (max(now - hot[H_WARM, k], 0.0) * hot[H_SPEED, k])
    return less_cost(key, lost * hot[H_GPUS, k])


@kernel
def write_keys_at(s: State, rule: Rule, k: int, now: float) -> None:
    """Write the keys of the running job at place k of `s.run` as of now, minimum runs left aside."""
    weighs, boundary = rule.flags[WEIGHS] == 1, round_start(rule, now)
    for c in range(s.keys.shape[0]):
        column = rule.columns[c]
        if column == BY_GITTINS:
            s.keys[c, k] = _index_key(s.hot, rule, k, now)
        elif column >= FIRST_FIXED_COLUMN:
            s.keys[c, k] = _fixed(s.f, s.i, column, max(s.run[k], 0))
        elif weighs:
            s.keys[c, k] = weighed_hot_key(s.hot, column, k, boundary, now)
        elif column != BY_NOTHING:
            s.keys[c, k] = hot_key(s.hot, column, k, boundary, now)


@kernel
def write_keys(s: State, rule: Rule, now: float) -> None:
    """The same for all running jobs. Arrays are taken out before the loops."""
    f, i, hot, run, keys, count = s.f, s.i, s.hot, s.run, s.keys, s.x[N_RUN]
    for c in range(keys.shape[0]):
        column = rule.columns[c]
        if column == BY_GITTINS:
            for k in range(count):
                keys[c, k] = _index_key(hot, rule, k, now)
        elif column >= FIRST_FIXED_COLUMN:
            for k in range(count):
                keys[c, k] = _fixed(f, i, column, max(run[k], 0))
        elif rule.flags[WEIGHS] == 1:
            _weighed_column(hot, keys[c], count, column, round_start(rule, now), now)
        elif column != BY_NOTHING:
            _hot_column(hot, keys[c], count, column, round_start(rule, now), now)


@kernel
def compact_if_sparse(s: State) -> None:
    """Compact the list of running jobs once some have left it: one for eight that run, and a few."""
    if s.x[N_RUN] > s.x[N_RUNNING] + (s.x[N_RUNNING] >> 3) + EMPTY:
        compact_running(s)


@kernel
def refresh_keys(s: State, rule: Rule, now: float) -> None:
    """Write the keys of all running jobs, in step with `s.run`; empty places come before everybody."""
    compact_if_sparse(s)
    run, keys, count = s.run, s.keys, s.x[N_RUN]
    s.x[LINED] = 0
    write_keys(s, rule, now)
    if rule.flags[WEIGHS] == 1:
        _shield(s, rule, now)
    if s.x[TENANTS] == 1:
        _keep_started(s, now)
    if count > s.x[N_RUNNING]:
        for k in range(count):
            keys[0, k] = -math.inf if run[k] < 0 else keys[0, k]


@kernel
def _keep_started(s: State, now: float) -> None:
    """Whoever was started in this very decision, for a guarantee, is not stopped in it: it comes before everybody."""
    for k in range(s.x[N_RUN]):
        if s.hot[H_SINCE, k] == now:
            s.keys[0, k] = -math.inf


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
def chain_by_tenant(s: State) -> None:
    """Chain the running jobs of each tenant: Q_FIRST is where the first of them stands, `order[1]` where the next."""
    for q in range(s.quota.shape[0]):
        s.quota[q, Q_FIRST] = -1
    for k in range(s.x[N_RUN] - 1, -1, -1):
        q = int(s.hot[H_TENANT, k])
        s.order[1, k] = s.quota[q, Q_FIRST]
        s.quota[q, Q_FIRST] = k


@kernel
def own_gpus_not_ahead(s: State, job: int, now: float) -> int:
    """The same of the jobs of its own tenant, as they are chained; those that are kept in this decision count too."""
    key1, key2, keys, total = s.f[job, KEY1], s.f[job, KEY2], s.keys, 0.0
    k = s.quota[s.i[job, TENANT], Q_FIRST]
    while k >= 0:
        not_ahead = keys[0, k] > key1 or (keys[0, k] == key1 and keys[1, k] >= key2)
        if not_ahead or s.hot[H_SINCE, k] == now:
            total += s.hot[H_GPUS, k]
        k = s.order[1, k]
    return int(total)


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
    run, hot, keys, source, count = s.run, s.hot, s.keys, s.order[0], s.x[N_RUN]
    first = 0
    while first < count and run[first] >= 0:
        first += 1
    if first == count:
        return
    _renumber_line(s)
    kept = first
    for k in range(first + 1, count):  # whoever stays is written down once, and nothing is asked per column
        source[kept] = k
        kept += 1 if run[k] >= 0 else 0
    for c in range(hot.shape[0]):
        column = hot[c]
        for k in range(first, kept):
            column[k] = column[source[k]]
    for c in range(keys.shape[0]):
        noted = keys[c]
        for k in range(first, kept):
            noted[k] = noted[source[k]]
    for k in range(first, kept):
        run[k] = run[source[k]]
        s.i[run[k], RUN_AT] = k
    s.x[N_RUN] = kept


@kernel
def _renumber_line(s: State) -> None:
    """Let the line of running jobs (`cotenant.engine.sorting`) name their places as they will be without empty ones."""
    drop_left(s)
    places = 0
    for k in range(s.x[N_KEPT]):
        s.scratch[k] = places
        places += 1 if s.run[k] >= 0 else 0
    for k in range(s.x[N_LINED]):
        s.order[2, k] = int(s.scratch[s.order[2, k]])
    s.x[N_KEPT] = places


@kernel
def drop_left(s: State) -> None:
    """Drop those who no longer run from the line of running jobs."""
    line, length = s.order[2], 0
    for k in range(s.x[N_LINED]):
        line[length] = line[k]
        length += 1 if s.run[line[k]] >= 0 else 0
    s.x[N_LINED] = length


@kernel
def empty_place(s: State, job: int) -> None:
    """A job no longer runs: its place in the list counts for nothing until the list is compacted."""
    k = s.i[job, RUN_AT]
    s.run[k] = -2 - job  # who it was still tells where he stands in line
    s.hot[H_GPUS, k], s.hot[H_BEGAN, k] = 0.0, -math.inf


@entry
def position_of(run: Ints, count: int, job: int) -> int:
    """Where a running job stands in the list of running jobs."""
    for k in range(count):
        if run[k] == job:
            return k
    return -1
