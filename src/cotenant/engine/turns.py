"""Jobs of different turns have a GPU one after the other, never together, though a plan has all of them there.

Whoever was planned is RUNNING in the tables: it has its turn, or it is promised its GPUs for the next one. A job whose
turn is over stands still on its GPUs, or saves and leaves, and is promised them again; that takes a quantum in which
somebody of another turn waits for one of its GPUs, and a job that is not about to end. Whoever has waited longest comes
next, as soon as the others are really off, and keeps others from GPUs that it waits for: so gangs get theirs. A job
that would lose its work by making room keeps its GPUs, and nothing is kept idle for whoever waits for them.

A turn is as long as a job's weight says. Nobody makes room for others of lower priority, and of those who wait the
higher priority comes first. Whoever was off later than it was told to, because it ended a step or saved, has a next
turn that is so much shorter (`Overruns`).
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.core.workload import Ints
from cotenant.engine.events import unpromise
from cotenant.engine.keys import position_of, work_done
from cotenant.engine.leaving import preempt
from cotenant.engine.ledger import begin_now, may_begin, start
from cotenant.engine.observe import walk_slices
from cotenant.engine.sharing import copy_slices
from cotenant.engine.slices import free_bound

_ON, _STUCK, _COMES, _KEPT = 0, 1, 2, 3


def forgo_turns(s: State, rule: Rule, now: float) -> None:
    """Whoever has not begun and only waits for a turn is planned anew, where enough GPUs are idle by now."""
    nobody = np.zeros(0, np.int64)
    for job in _in_line(s).tolist():
        free = s.i[job, HOME] < 0 and s.i[job, LEAVING] == 0 and s.i[job, GPUS] <= s.x[IDLE]
        if free and meets(s, job, _ON, nobody):
            unpromise(s, rule, job, now)


class Overruns:
    """By how much jobs were off their GPUs later than told at the end of their last turn."""

    def __init__(self) -> None:
        self._told_s: dict[int, float] = {}
        self._late_s: dict[int, float] = {}

    def tell(self, job: int, now: float) -> None:
        """It is told to make room."""
        self._told_s[job] = now

    def look(self, s: State, now: float) -> None:
        """Who is off by now was late by what has passed since; who has no GPUs any more owes nothing."""
        self._late_s = {job: late_s for job, late_s in self._late_s.items() if s.i[job, SLICE] >= 0}
        for job in [job for job in self._told_s if s.i[job, LEAVING] == 0]:
            self._late_s[job] = now - self._told_s.pop(job)

    def turn_s(self, job: int, turn_s: float) -> float:
        """How long its present turn is, of a whole one: at least a tenth of it."""
        return max(turn_s - self._late_s.get(job, 0.0), turn_s / 10)


def change_turns(s: State, rule: Rule, quantum_s: float, now: float, overruns: Overruns) -> None:
    """Part those who take turns by now, let begin whose turn it is, and send off whose turn is over."""
    s.t[NEXT_TURN] = math.inf
    overruns.look(s, now)
    _part(s, rule, now)
    if s.x[N_PROMISED] == 0:
        return
    kept = np.zeros(s.i.shape[0], np.int64)
    for job in _in_line(s).tolist():
        if not seat(s, rule, job, kept, now) and not meets(s, job, _STUCK, kept):
            kept[job] = 1
    for job in _present(s).tolist():
        if not yields(s, job) or not meets(s, job, _COMES, kept) or not _is_wanted(s, job):
            continue
        turn_s = overruns.turn_s(job, quantum_s * float(s.f[job, WEIGHT]))
        over_s = _until(s, job, max(float(s.f[job, SINCE]), float(s.f[job, WARM])) + turn_s, now)
        if over_s <= now:
            overruns.tell(job, now)
            go_off(s, rule, job, now)
        else:
            s.t[NEXT_TURN] = min(float(s.t[NEXT_TURN]), over_s)


def _is_wanted(s: State, job: int) -> bool:
    """Whether anybody who waits for one of its GPUs has at least its priority."""
    waits = _in_line(s)
    if s.f[waits, TIER].max(initial=-math.inf) <= s.f[job, TIER]:
        return True
    mine = cells_of(s, job)
    near = (other for other in waits[s.f[waits, TIER] <= s.f[job, TIER]].tolist() if s.i[other, TURN] != s.i[job, TURN])
    return any(mine & cells_of(s, other) for other in near)


def cells_of(s: State, job: int) -> set[int]:
    """The GPUs of a job, by number."""
    places = (piece for piece in walk_slices(s, int(s.i[job, SLICE])))
    return {int(s.gpu_first[node]) + k for node, _, mask in places for k in range(mask.bit_length()) if (mask >> k) & 1}


def _until(s: State, job: int, over_s: float, now: float) -> float:
    """When a turn ends; one that is believed to be done before it could be off and back is let finish, for so long."""
    cost_s = float(s.f[job, SAVING] + s.f[job, RESUME])
    left_s = (float(s.f[job, BELIEF]) - work_done(s.f, s.i, job, now)) / max(float(s.f[job, SPEED]), 1e-9)
    return now + left_s if over_s <= now < over_s + cost_s and 0 < left_s <= cost_s else over_s


def _part(s: State, rule: Rule, now: float) -> None:
    """Jobs that run beside others with whom they take turns by now: who came last makes room.

    A pair that is undone becomes two jobs that take turns, and so do jobs that another policy had put together. Those
    who would lose their work leave last.
    """
    nobody = np.zeros(0, np.int64)
    for least in (True, False):
        while True:
            together = [job for job in _present(s).tolist() if meets(s, job, _ON, nobody)]
            together = [job for job in together if not least or yields(s, job)]
            if not together:
                break
            go_off(s, rule, max(together, key=lambda job: (float(s.f[job, SINCE]), job)), now)


def _present(s: State) -> Ints:
    """Jobs that take turns and have theirs now."""
    listed = _listed(s)
    return np.asarray(listed[(s.i[listed, PROMISED] == 0) & (s.i[listed, TURN] > 0)])


def _listed(s: State) -> Ints:
    """Running jobs, by row."""
    listed = s.run[: s.x[N_RUN]]
    return np.asarray(np.sort(listed[listed >= 0]), np.int64)


def _in_line(s: State) -> Ints:
    """Jobs that wait for their GPUs, by priority, then who has waited longest; of equals who never had any."""
    listed: Ints = _listed(s)
    listed = listed[s.i[listed, PROMISED] == 1]
    new = np.isnan(s.f[listed, FIRST])
    since_s = np.where(new, s.f[listed, SUBMIT], s.f[listed, SINCE])
    return np.asarray(listed[np.lexsort((listed, ~new, since_s, s.f[listed, TIER]))])


@entry
def seat(s: State, rule: Rule, job: int, kept: Ints, now: float) -> bool:
    """Let a job begin if its GPUs are clear and neither had by others nor kept for them."""
    if not may_begin(s, job) or meets(s, job, _ON, kept) or meets(s, job, _KEPT, kept):
        return False
    begin_now(s, rule, job, position_of(s.run, s.x[N_RUN], job), now)
    return True


@entry
def go_off(s: State, rule: Rule, job: int, now: float) -> None:
    """A job gives its GPUs up and is promised them again at once. That is no preemption.

    One that has to begin anew, and asked for another size, waits for that.
    """
    gpus = s.i[job, GPUS]
    preempt(s, rule, job, now, 3)
    if s.i[job, GPUS] != gpus:
        return
    s.i[job, PREEMPTS] -= 1
    start(s, rule, job, copy_slices(s.slices, s.x, FREE_SLICE, s.i[job, OLD]), now)


@entry
def yields(s: State, job: int) -> bool:
    """Whether it can make room for a while without losing its work: who begins anew at each turn would never end."""
    ways = s.i[job, YIELDS] if s.i[job, STATE] == RUNNING else 0
    return bool(ways & 2 or (ways & 1 and free_bound(s) >= 0))


@entry
def meets(s: State, job: int, what: int, kept: Ints) -> bool:
    """Whether on any of its GPUs there is somebody of another turn who is so."""
    at = s.i[job, SLICE]
    while at >= 0:
        g, mask = s.gpu_first[s.slices[at, SLICE_NODE]], s.slices[at, SLICE_MASK]
        while mask:
            for place in range(s.gpu.shape[1] if mask & 1 else 0):
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
    return bool(not waits and (what == _ON or not yields(s, other)))
