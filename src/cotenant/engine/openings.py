"""Up to which key a waiting gang could open a place on a node by displacing those who run there behind it.

`State.top[g, n]` is the key of the last one who would have to leave node n so that g of its GPUs are free: a gang of g
that comes after it finds no place there. Keys of running jobs only fall, so what was found out once is an upper limit
until somebody changes his order otherwise. Whoever comes to the node only lowers it. When an end leaves g GPUs idle,
the limit of g fewer is one. So a decision asks the few nodes whose limit is not below the gang's key, and those that
changed; the others it need not look at. The row of 0 GPUs says when a node was looked at last, the last column which
limit no node exceeds; further parts hold second and third keys, where an order has any.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats
from cotenant.engine.keys import SLACK, hot_key, key_of, quantum_of, round_start, weighed_hot_key, with_slack
from cotenant.engine.weighing import shielded_until, stop_cost

RING = 64  # nodes that may have changed, before all are looked through again
STALE, DATED = -1e300, -1e299  # instead of when a node was looked at: its limits no longer hold; they may be too high


@kernel
def sit_down(s: State, job: int, at: int) -> None:
    """A job begins to use the GPUs of a slice, which were idle."""
    if s.x[SEATED] == 1:
        n = s.slices[at, SLICE_NODE]
        s.seat[n, 0] += 1
        s.seat[n, s.seat[n, 0]] = job
        if s.x[ONE_KEY] == 1 and s.top[0, n] > STALE:
            s.limit[at] = with_slack(s.f[job, KEY1])
            _take_idle(s, n, s.slices[at, SLICE_GPUS], s.limit[at])
        s.top[0, n] = min(s.top[0, n], DATED)


@kernel
def _take_idle(s: State, n: int, gpus: int, key: float) -> None:
    """So many idle GPUs of a node are taken by somebody whose key is at most this.

    Whoever comes after him leaves as before, but leaves so many fewer idle; whoever comes before him leaves after him,
    when as many are idle as before.
    """
    part = s.top.shape[0] // 3
    for g in range(s.node[n, NODE_FREE] + 1, part):
        later = s.top[g + gpus, n] if g + gpus < part else -math.inf
        s.top[g, n] = max(later, min(s.top[g, n], key))


@kernel
def _note_changed(s: State, n: int) -> None:
    """Limits of a node may have risen."""
    s.changed[s.x[N_CHANGED] & (RING - 1)] = n
    s.x[N_CHANGED] += 1


@kernel
def get_up(s: State, job: int, at: int) -> None:
    """It no longer does; they are idle now."""
    if s.x[SEATED] == 1:
        n, gpus, seat = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS], 1
        while s.seat[n, seat] != job:
            seat += 1
        s.seat[n, seat] = s.seat[n, s.seat[n, 0]]
        s.seat[n, 0] -= 1
        if s.x[ONE_KEY] == 1 and s.top[0, n] > STALE:
            _leave_idle(s, n, gpus, s.limit[at])
        elif s.f[job, DONE] < s.f[job, WORK]:  # one of the last in line, so that limits of those who stay are lower
            forget_node(s, n)
        elif s.top[0, n] > STALE:
            _leave_idle(s, n, gpus, -math.inf)


@kernel
def _leave_idle(s: State, n: int, gpus: int, key: float) -> None:
    """So many GPUs more of a node are idle; their job counted with this key, or with none.

    Who comes after it leaves when so many more are idle; who comes before it, when as many are.
    """
    top, part, every, idle = s.top, s.top.shape[0] // 3, s.top.shape[1] - 1, s.node[n, NODE_FREE]
    for g in range(part - 1, idle, -1):
        if top[g - gpus, n] > key:
            top[g, n], top[g, every] = top[g - gpus, n], max(top[g, every], top[g - gpus, n])
            top[part + g, n], top[2 * part + g, n] = top[part + g - gpus, n], top[2 * part + g - gpus, n]
    for g in range(1, min(idle + 1, part)):
        top[g, n] = top[g, every] = math.inf
    top[0, n] = DATED
    _note_changed(s, n)


@kernel
def forget_node(s: State, n: int) -> None:
    """What is noted of a node no longer holds."""
    if s.x[SEATED] == 1 and s.top[0, n] > STALE:
        s.top[0, n] = STALE
        s.stale[s.x[N_STALE]] = n
        s.x[N_STALE] += 1
        _note_changed(s, n)


@kernel
def forget_nodes_of(s: State, job: int) -> None:
    """The same for all nodes of a running job."""
    at = s.i[job, SLICE] if s.x[SEATED] == 1 else -1
    while at >= 0:
        forget_node(s, s.slices[at, SLICE_NODE])
        at = s.slices[at, SLICE_NEXT]


@kernel
def forget_all(s: State) -> None:
    """Note of all nodes what is idle, and that nobody leaves; the row of 0 GPUs says how many are idle."""
    top, part = s.top, s.top.shape[0] // 3
    for n in range(s.node.shape[0]):
        top[0, n] = float(s.node[n, NODE_FREE])
    for g in range(1, part):
        for n in range(s.node.shape[0]):
            top[g, n] = math.inf if g <= s.node[n, NODE_FREE] else -math.inf
        top[g, s.node.shape[0]] = s.rest[0, g] = math.inf
    s.x[N_STALE] = 0


@kernel
def note_next(s: State, at: int, first: float, second: float, third: float) -> None:
    """The next one on a node to leave, the last ones first, has these keys and this slice of it."""
    top, part, n, gpus = s.top, s.top.shape[0] // 3, s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
    idle = int(top[0, n])
    s.limit[at] = first + SLACK * abs(first)
    for g in range(idle + 1, min(idle + gpus + 1, part)):
        top[g, n], top[part + g, n], top[2 * part + g, n] = s.limit[at], second, third
    top[0, n] = float(idle + gpus)


@kernel
def is_shielded(s: State, rule: Rule, job: int, now: float) -> bool:
    """Whether a running job is in its minimum run; whoever is stands in `State.shield`."""
    return s.i[job, SHIELDED] > 0 and shielded_till(s, rule, job) > now


@kernel
def shielded_till(s: State, rule: Rule, job: int) -> float:
    """Until when a running job is in its minimum run."""
    cost = stop_cost(s.f, s.i, job, False)
    return shielded_until(s.f[job, SINCE], s.f[job, WARM], cost, rule.numbers[MIN_RUN_S])


@kernel
def _limit(s: State, rule: Rule, column: int, job: int, now: float) -> float:
    """A key of a running job, or a little more."""
    if column == BY_NOTHING:
        return 0.0
    if column == BY_GITTINS:
        return math.inf if quantum_of(rule, s.i[job, QUEUE]) > 0.0 else 0.0
    if column >= FIRST_FIXED_COLUMN or column == BY_LISTED:
        return key_of(s.f, s.i, rule, column, job, now)
    k, boundary = s.i[job, RUN_AT], round_start(rule, now)
    weighs = rule.flags[WEIGHS] == 1
    key = weighed_hot_key(s.hot, column, k, boundary, now) if weighs else hot_key(s.hot, column, k, boundary, now)
    return with_slack(key) if column in (BY_REMAINING, BY_REMAINING_GPU, BY_ATTAINED_GPU) else key


@kernel
def end_shield(s: State, rule: Rule, job: int, now: float) -> None:
    """The minimum run of a running job is over: it may have to leave its nodes for whoever comes before it."""
    if not has_one_key(rule):
        forget_nodes_of(s, job)
        return
    top, part, every = s.top, s.top.shape[0] // 3, s.top.shape[1] - 1
    key, at = _limit(s, rule, rule.columns[0], job, now), s.i[job, SLICE] if s.x[SEATED] == 1 else -1
    while at >= 0:
        n, gpus = s.slices[at, SLICE_NODE], s.slices[at, SLICE_GPUS]
        if top[0, n] > STALE and s.limit[at] == -math.inf:
            s.limit[at] = key
            for g in range(part - 1, s.node[n, NODE_FREE], -1):
                top[g, n] = max(top[g, n], min(top[g - gpus, n] if g > gpus else math.inf, key))
                top[g, every] = max(top[g, every], top[g, n])
            _note_changed(s, n)
        top[0, n] = min(top[0, n], DATED)
        at = s.slices[at, SLICE_NEXT]


@kernel
def is_later(first: float, second: float, third: float, other1: float, other2: float, other3: float) -> bool:
    """Whether these keys come after the others."""
    if first != other1:
        return first > other1
    return second > other2 or (second == other2 and third > other3)


@kernel
def has_one_key(rule: Rule) -> bool:
    """Whether an order goes by one key alone: then nothing is noted of second and third ones."""
    return bool(rule.columns[1] == BY_NOTHING and rule.columns[2] == BY_NOTHING)


@kernel
def _rank_seated(s: State, rule: Rule, n: int, now: float) -> int:
    """Write the keys of those on a node who could have to leave, and their GPUs there, last ones first; how many."""
    held, count, one_key = s.held, 0, has_one_key(rule)
    second = third = 0.0
    for at in range(1, s.seat[n, 0] + 1):
        job = s.seat[n, at]
        piece = s.i[job, SLICE]
        while s.slices[piece, SLICE_NODE] != n:
            piece = s.slices[piece, SLICE_NEXT]
        s.limit[piece] = -math.inf
        if is_shielded(s, rule, job, now):
            continue
        first = _limit(s, rule, rule.columns[0], job, now)
        if not one_key:
            second, third = _limit(s, rule, rule.columns[1], job, now), _limit(s, rule, rule.columns[2], job, now)
        s.limit[piece], to = first, count
        while to > 0 and is_later(first, second, third, held[0, to - 1], held[1, to - 1], held[2, to - 1]):
            for row in range(4):
                held[row, to] = held[row, to - 1]
            to -= 1
        held[0, to], held[1, to], held[2, to], held[3, to] = first, second, third, s.slices[piece, SLICE_GPUS]
        count += 1
    return count


@kernel
def look_at_node(s: State, rule: Rule, n: int, now: float) -> None:
    """Note the limits of a node as of now."""
    top, held, part, every = s.top, s.held, s.top.shape[0] // 3, s.top.shape[1] - 1
    count, one_key = _rank_seated(s, rule, n, now), has_one_key(rule)
    total, risen = s.node[n, NODE_FREE], False
    for g in range(1, min(total + 1, part)):
        risen = risen or top[g, n] < math.inf
        top[g, n] = top[g, every] = math.inf
    for k in range(count):
        first, freed = held[0, k], total + int(held[3, k])
        for g in range(total + 1, min(freed + 1, part)):
            risen = risen or top[g, n] < first
            top[g, n], top[g, every] = first, max(top[g, every], first)
            if not one_key:
                top[part + g, n], top[2 * part + g, n] = held[1, k], held[2, k]
        total = freed
    for g in range(total + 1, part):
        top[g, n] = -math.inf
    top[0, n] = now
    if risen:
        _note_changed(s, n)


@kernel
def _opens_on(s: State, rule: Rule, g: int, n: int, job: int, now: float) -> bool:
    """Whether a waiting job could have g GPUs of a node, as far as keys tell."""
    top, second, third = s.top, s.top.shape[0] // 3 + g, 2 * (s.top.shape[0] // 3) + g
    first_key, second_key, third_key = s.f[job, KEY1], s.f[job, KEY2], s.f[job, KEY3]
    if is_later(first_key, second_key, third_key, top[g, n], top[second, n], top[third, n]):
        return False
    if top[0, n] == now or g <= s.node[n, NODE_FREE]:
        return True
    look_at_node(s, rule, n, now)
    return not is_later(first_key, second_key, third_key, top[g, n], top[second, n], top[third, n])


@kernel
def goes_by_node(s: State, c: int) -> bool:
    """Whether limits by node tell all about a class: its gangs take one node, or whole ones that are all alike."""
    if s.x[SEATED] == 0 or s.cls[c, C_MODE] != CONSOLIDATED or s.cls[c, C_NODES] > 0:
        return False
    for p in range(s.pool.shape[0]):
        alike = s.pool[p, POOL_LARGEST_COUNT] == s.pool[p, POOL_HI] - s.pool[p, POOL_LO]
        if s.cls[c, C_GPUS] > s.pool[p, POOL_LARGEST] and not alike:
            return False
    return True


@kernel
def may_be_idle(s: State, c: int) -> bool:
    """Whether limits let a gang of class c hope for idle GPUs of one node: those have none."""
    every, gpus, found = s.top.shape[1] - 1, s.cls[c, C_GPUS], False
    for p in range(s.pool.shape[0]):
        found = found or (gpus <= s.pool[p, POOL_LARGEST] and s.top[gpus, every] == math.inf)
    return found


@kernel
def _count_open(limits: Floats, lo: int, hi: int, first: float) -> int:
    """Nodes whose limit is not below a key."""
    count = 0
    for n in range(lo, hi):
        count += 1 if limits[n] >= first else 0
    return count


@kernel
def may_open(s: State, rule: Rule, c: int, job: int, now: float) -> bool:
    """Whether displacing those behind it might make a place for a waiting job of class c, if all ahead of it stay.

    Never false where it could. Gangs of several nodes count whole ones.
    """
    for k in range(s.x[N_STALE]):
        look_at_node(s, rule, s.stale[k], now)
    s.x[N_STALE] = 0
    every, gpus = s.top.shape[1] - 1, s.cls[c, C_GPUS]
    for p in range(s.pool.shape[0]):
        if not (s.cls[c, C_POOLS] >> p) & 1:
            continue
        lo, hi, largest = s.pool[p, POOL_LO], s.pool[p, POOL_HI], s.pool[p, POOL_LARGEST]
        g = min(gpus, largest)
        if s.top[g, every] < s.f[job, KEY1]:
            continue
        needed = gpus // largest if gpus > largest else 1
        changed, most, first, limits = s.x[N_CHANGED], -math.inf, s.f[job, KEY1], s.top[g]
        in_ring = needed == 1 and s.rest[0, g] < first and changed - s.rest[1, g] <= RING
        if in_ring:  # of the only pool: none but those that changed have a limit that high
            lo, hi, most = int(s.rest[1, g]), changed, s.rest[0, g]
        elif needed > 1 and _count_open(limits, lo, hi, first) < needed:
            continue
        for k in range(lo, hi):
            n = s.changed[k & (RING - 1)] if in_ring else k
            if limits[n] >= first and _opens_on(s, rule, g, n, job, now):
                needed -= 1
                if needed == 0:
                    return True
            most = max(most, limits[n])
        if s.pool.shape[0] == 1:
            s.top[g, every] = s.rest[0, g] = most
            s.rest[1, g] = float(changed)
    return False
