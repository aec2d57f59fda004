"""Who runs behind a waiting job, found from the end of the line without looking at everybody.

Running jobs stand in a line by the keys that are noted for them (`State.keys`), as of when they were looked at last.
Their keys only fall, so the notes are upper limits. Whoever stands last is brought up to date: if he still comes after
what is noted of the one before him, nobody can come after him; else he moves forward to where he belongs. So a decision
looks at the end of the line, as far as it has to, and at whoever is new in it. A round, or somebody whose key has
risen, makes it a new line.

Whoever is in his minimum run stands in it as if he were not, and is passed over; there are few, in a list of their own.
"""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import kernel
from cotenant.core.state import Rule, State
from cotenant.engine.keys import (
    EMPTY,
    compact_if_sparse,
    drop_left,
    first_waiting,
    key_of,
    round_number,
    write_keys,
    write_keys_at,
)
from cotenant.engine.openings import end_shield, forget_all, has_one_key, note_next
from cotenant.engine.slices import shift
from cotenant.engine.sorting import AT, EVERYBODY, KEPT, WHO, before, line_up_running
from cotenant.engine.weighing import shielded_until
from cotenant.placement.fit import UNCLAIMED

NOBODY = -1
_FEW = 1024  # twice the GPUs up to which looking at everybody costs less, where keys are made anew now and then


@kernel
def is_plain(s: State, rule: Rule) -> bool:
    """Whether the end of the line is all that a decision need look at: keys only fall, and GPUs alone bind."""
    anew = by_index(rule) or rule.numbers[ROUND_S] < math.inf
    return bool(
        (rule.flags[STABLE] == 1 or by_index(rule))
        and (s.run.shape[0] > _FEW or not anew)
        and s.x[SHARING] + s.x[USE_HOST] + s.x[TENANTS] + s.x[QUOTAS] + s.x[PINS] == 0
        and s.keys.shape[0] == 3
        and rule.columns[1] != BY_LISTED
        and (rule.columns[0] != BY_QUEUE or rule.flags[WEIGHS] == 0 or by_index(rule))
    )


@kernel
def by_index(rule: Rule) -> bool:
    """Whether an order goes by queues and, in all but the last, by an index that may move either way."""
    return bool(rule.columns[0] == BY_QUEUE and rule.columns[1] == BY_GITTINS and rule.columns[2] == BY_FIRST_START)


@kernel
def _sort_by_index(s: State, rule: Rule, now: float) -> None:
    """Bring those who go by an index up to now, and sort them: they stand before all of the last queue."""
    keys, run, line, last = s.keys, s.run, s.order[KEPT], rule.flags[QUEUES] - 1
    k = 0
    while k < s.x[N_LINED] and (keys[0, line[k]] < last or last == 0):
        place, to = line[k], k
        if run[place] >= 0:
            _note_keys(s, rule, place, now)
        while to > 0 and before(keys, run, place, line[to - 1]):
            line[to] = line[to - 1]
            to -= 1
        line[to] = place
        k += 1


@kernel
def begin_decision(s: State, rule: Rule, now: float) -> None:
    """A new round changes all keys; whoever has run long enough may be displaced on his node."""
    s.x[ONE_KEY] = 1 if has_one_key(rule) else 0
    round_s = float(rule.numbers[ROUND_S])
    number = round_number(round_s, now) if round_s < math.inf else 0
    if number != s.x[ROUND]:
        s.x[ROUND], s.x[LINED], s.t[LAST_KEY] = number, 0, math.inf
        if s.x[SEATED] == 1:
            _make_line(s, rule, now)
            _note_all_nodes(s, rule, now)
    kept, first = 0, math.inf
    for k in range(s.x[N_SHIELDED] if s.t[NEXT_BARE] <= now else 0):
        job, until = s.shield[k], s.bare[k]
        if until > now:
            if kept < k:
                s.shield[kept], s.bare[kept], s.i[job, SHIELDED] = job, until, kept + 1
            kept, first = kept + 1, min(first, until)
            continue
        s.i[job, SHIELDED] = 0
        if s.i[job, STATE] == RUNNING:
            end_shield(s, rule, job, now)
    if s.t[NEXT_BARE] <= now:
        s.x[N_SHIELDED], s.t[NEXT_BARE] = kept, first


@kernel
def note_loose(s: State, rule: Rule, now: float) -> None:
    """NEXT_LOOSE is when the first minimum run is over that holds a waiting job back."""
    if rule.flags[WEIGHS] == 0:
        return
    s.t[NEXT_LOOSE] = math.inf
    first = math.nan
    for k in range(s.x[N_SHIELDED]):
        job, until = s.shield[k], s.bare[k]
        if now < until < s.t[NEXT_LOOSE] and s.i[job, STATE] == RUNNING:
            if math.isnan(first):
                first = first_waiting(s, KEY1)
            if key_of(s.f, s.i, rule, rule.columns[0], job, now) > first:
                s.t[NEXT_LOOSE] = until


@kernel
def _is_shielded(s: State, rule: Rule, place: int, now: float) -> bool:
    """Whether the running job at a place of the list is in its minimum run."""
    if rule.flags[WEIGHS] == 0:
        return False
    hot = s.hot
    until = shielded_until(hot[H_SINCE, place], hot[H_BEGAN, place], hot[H_COST, place], rule.numbers[MIN_RUN_S])
    return until > now


@kernel
def _make_line(s: State, rule: Rule, now: float) -> None:
    """Make the line anew, with keys as of now."""
    compact_if_sparse(s)
    write_keys(s, rule, now)
    for place in range(s.x[N_RUN]):
        s.hot[H_NOTED, place] = now
    line_up_running(s, EVERYBODY)
    s.x[LINED] = 1


@kernel
def _note_all_nodes(s: State, rule: Rule, now: float) -> None:
    """Note the limits of all nodes, from a line that was just made."""
    forget_all(s)
    for k in range(s.x[N_LINED] - 1, -1, -1):
        place = s.order[KEPT, k]
        if s.run[place] < 0:
            continue
        at, shielded = s.i[s.run[place], SLICE], _is_shielded(s, rule, place, now)
        while at >= 0 and shielded:
            s.limit[at] = -math.inf
            at = s.slices[at, SLICE_NEXT]
        second, third = math.inf if by_index(rule) else s.keys[1, place], s.keys[2, place]
        if has_one_key(rule):
            second = third = 0.0
        while at >= 0:
            note_next(s, at, s.keys[0, place], second, third)
            at = s.slices[at, SLICE_NEXT]
    for n in range(s.node.shape[0]):
        s.top[0, n] = now


@kernel
def _note_keys(s: State, rule: Rule, place: int, now: float) -> None:
    """Bring the keys of the running job at a place of the list up to now."""
    if s.hot[H_NOTED, place] != now:
        s.hot[H_NOTED, place] = now
        write_keys_at(s, rule, place, now)


@kernel
def _insert(s: State, place: int, end: int) -> None:
    """Put a place of the list of running jobs into the line, before its position `end`, where its keys belong."""
    keys, run, line = s.keys, s.run, s.order[KEPT]
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        if before(keys, run, place, line[middle]):
            high = middle
        else:
            low = middle + 1
    for at in range(end, low, -1):
        line[at] = line[at - 1]
    line[low] = place


@kernel
def begin_tail(s: State, rule: Rule, now: float) -> None:
    """Nobody of the line has been looked at yet. Whoever is new stands in it."""
    if s.x[LINED] == 0:
        _make_line(s, rule, now)
    else:
        if s.x[N_LINED] > s.x[N_RUNNING] + (s.x[N_RUNNING] >> 2) + EMPTY:
            drop_left(s)
        if by_index(rule):
            _sort_by_index(s, rule, now)
        for place in range(s.x[N_KEPT], s.x[N_RUN]):
            if s.run[place] >= 0:
                _note_keys(s, rule, place, now)
                _insert(s, place, s.x[N_LINED])
                s.x[N_LINED] += 1
        s.x[N_KEPT] = s.x[N_RUN]
    s.x[LINE_END] = s.x[N_LINED]
    s.x[TAIL_FIRST] = s.order.shape[1]


@kernel
def next_behind(s: State, rule: Rule, now: float) -> int:
    """The place in the list of running jobs of the last one in line at whom nobody has looked; NOBODY if there is none.

    LINE_END stays at his, so that asking again gives the same.
    """
    keys, run, line = s.keys, s.run, s.order[KEPT]
    while s.x[LINE_END] > 0:
        last = s.x[LINE_END] - 1
        place = line[last]
        if run[place] < 0:
            s.x[LINE_END] = last
            continue
        _note_keys(s, rule, place, now)
        if last > 0 and before(keys, run, place, line[last - 1]):
            _insert(s, place, last)
        elif _is_shielded(s, rule, place, now):
            s.x[LINE_END] = last
        else:
            return int(place)
    return NOBODY


@kernel
def open_tail(s: State, place: int) -> None:
    """Count the GPUs of the one found by `next_behind` as unclaimed; he is now the first of the tail."""
    job, gpus = s.run[place], s.i[s.run[place], GPUS]
    s.x[LINE_END] -= 1
    s.x[TAIL_FIRST] -= 1
    s.order[AT, s.x[TAIL_FIRST]], s.order[WHO, s.x[TAIL_FIRST]] = place, job
    s.x[LEFT] += gpus
    s.quota[s.i[job, TENANT], Q_CLAIMED] -= gpus
    shift(s, job, s.i[job, SLICE], UNCLAIMED, 1)
