"""Jobs of different turns have a GPU one after the other, never together, though a plan has all of them there.

Whoever was planned is RUNNING in the tables: it has its turn, or it is promised its GPUs for the next one. A job whose
turn is over stands still on its GPUs, or saves and leaves, and is promised them again; that takes a quantum in which
somebody of another turn waits for one of its GPUs. Whoever has waited longest comes next, as soon as the others are
really off, and keeps others from GPUs that it waits for: so gangs get theirs. A job that would lose its work by making
room keeps its GPUs, and nothing is kept idle for whoever waits for them.
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import position_of
from cotenant.engine.ledger import begin_now, free_bound, may_begin, preempt, resize, start
from cotenant.engine.sharing import copy_slices

_ON, _STUCK, _COMES, _KEPT = 0, 1, 2, 3


@entry
def change_turns(s: State, rule: Rule, quantum_s: float, now: float) -> None:
    """Part those who take turns by now, let begin whose turn it is, and send off whose turn is over."""
    s.t[NEXT_TURN] = math.inf
    _part(s, rule, now)
    if s.x[N_PROMISED] == 0:
        return
    kept = np.zeros(s.i.shape[0], np.int64)
    waiting = _in_line(s)
    for k in range(len(waiting)):
        job = waiting[k]
        if may_begin(s, job) and not _meets(s, job, _ON, kept) and not _meets(s, job, _KEPT, kept):
            begin_now(s, rule, job, position_of(s.run, s.x[N_RUN], job), now)
        elif not _meets(s, job, _STUCK, kept):
            kept[job] = 1
    present = _present(s)
    for k in range(len(present)):
        job = present[k]
        if not _yields(s, job) or not _meets(s, job, _COMES, kept):
            continue
        over_s = max(s.f[job, SINCE], s.f[job, WARM]) + quantum_s
        if over_s <= now:
            _go_off(s, rule, job, now)
        else:
            s.t[NEXT_TURN] = min(s.t[NEXT_TURN], over_s)


@kernel
def _part(s: State, rule: Rule, now: float) -> None:
    """Jobs that run beside others with whom they take turns by now: who came last makes room.

    A pair that is undone becomes two jobs that take turns, and so do jobs that another policy had put together. Those
    who would lose their work leave last.
    """
    present, nobody = _present(s), np.zeros(0, np.int64)
    for turn in range(2):
        while True:
            last, since = -1, -math.inf
            for k in range(len(present)):
                job = present[k]
                on = s.i[job, PROMISED] == 0 and (turn == 1 or _yields(s, job))
                if not on or not _meets(s, job, _ON, nobody):
                    continue
                if s.f[job, SINCE] > since or (s.f[job, SINCE] == since and job > last):
                    last, since = job, s.f[job, SINCE]
            if last < 0:
                break
            _go_off(s, rule, last, now)


@kernel
def _go_off(s: State, rule: Rule, job: int, now: float) -> None:
    """A job gives its GPUs up and is promised them again at once. That is no preemption."""
    gpus = s.i[job, GPUS]
    preempt(s, rule, job, now, 3)
    resize(s, job, gpus)
    s.i[job, PREEMPTS] -= 1
    start(s, rule, job, copy_slices(s.slices, s.x, FREE_SLICE, s.i[job, OLD]), now)


@kernel
def _yields(s: State, job: int) -> bool:
    """Whether it can make room for a while without losing its work: who begins anew at each turn would never end."""
    ways = s.i[job, YIELDS] if s.i[job, STATE] == RUNNING else 0
    return bool(ways & 2 or (ways & 1 and free_bound(s) >= 0))


@kernel
def _present(s: State) -> Ints:
    """Jobs that take turns and have theirs now."""
    found = np.empty(s.x[N_RUN], np.int64)
    count = 0
    for k in range(s.x[N_RUN]):
        job = s.run[k]
        if job >= 0 and s.i[job, PROMISED] == 0 and s.i[job, TURN] > 0:
            found[count] = job
            count += 1
    return np.sort(found[:count])


@kernel
def _in_line(s: State) -> Ints:
    """Jobs that wait for their GPUs, who has waited longest first; who never had any comes first of equals."""
    found, keys = np.empty(s.x[N_RUN], np.int64), np.empty(s.x[N_RUN])
    count = 0
    for turn in range(2):
        for job in np.sort(s.run[: s.x[N_RUN]]):
            if job < 0 or s.i[job, PROMISED] == 0 or math.isnan(s.f[job, FIRST]) != (turn == 0):
                continue
            found[count] = job
            keys[count] = s.f[job, SUBMIT] if turn == 0 else s.f[job, SINCE]
            count += 1
    return _sorted(found[:count], keys[:count])


@kernel
def _sorted(jobs: Ints, keys: Floats) -> Ints:
    return jobs[np.argsort(keys, kind="mergesort")]


@kernel
def _meets(s: State, job: int, what: int, kept: Ints) -> bool:
    """Whether on any of its GPUs there is somebody of another turn who is so."""
    at = s.i[job, SLICE]
    while at >= 0:
        g, mask = s.gpu_first[s.slices[at, SLICE_NODE]], s.slices[at, SLICE_MASK]
        while mask:
            for place in range(SLOTS if mask & 1 else 0):
                other = s.gpu[g, place]
                apart = other >= 0 and s.i[other, TURN] * s.i[job, TURN] > 0 and s.i[other, TURN] != s.i[job, TURN]
                if apart and _is(s, other, what, kept):
                    return True
            mask >>= 1
            g += 1
        at = s.slices[at, SLICE_NEXT]
    return False


@kernel
def _is(s: State, other: int, what: int, kept: Ints) -> bool:
    waits = s.i[other, STATE] != PINNED and s.i[other, PROMISED] == 1
    if what == _KEPT:
        return bool(kept[other] == 1)
    if what == _COMES:
        return bool(waits)
    return bool(not waits and (what == _ON or not _yields(s, other)))
