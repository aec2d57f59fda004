"""How jobs leave their GPUs: at once where that costs no time, else they hold them until they have left; by their rung
they save, are stopped, or stand still on their GPUs and go on there later."""

from __future__ import annotations

import math

from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.state import Rule, State
from cotenant.engine.heaps import drop_event, remove_waiting
from cotenant.engine.keys import set_keys
from cotenant.engine.ledger import (
    ask_anew,
    enqueue,
    let_go_of,
    note,
    release,
    resize,
    schedule_run,
    schedule_wait,
    set_leaf,
    stand_in_line,
)
from cotenant.engine.sharing import copy_slices, count_cells
from cotenant.engine.slices import bind_class, free_bound, free_slices, unbind


@entry
def preempt(s: State, rule: Rule, job: int, now: float, moved: int) -> None:
    """Stop a running job and let it wait again; it will have to restore what it has done.

    Where that takes time it keeps its GPUs until it has left, though they may be given to others already. One that is
    suspended instead goes on later, on the same GPUs and nowhere else. One that only had a promise loses that.
    """
    if s.i[job, PROMISED] == 1:
        release(s, job, now)
        enqueue(s, rule, job, now)
        return
    if s.x[LAGS] == 0:
        release(s, job, now)
        note(s, T_STOP, job, moved)
    else:
        begin_leaving(s, job, now, moved)
    s.i[job, PREEMPTS] += 1
    if s.f[job, DONE] > 0 and s.i[job, HOME] < 0:
        s.i[job, OWES] = 1
    enqueue(s, rule, job, now)


@kernel
def begin_leaving(s: State, job: int, now: float, moved: int) -> None:
    """A running job begins to leave its GPUs, by its rung; it does not wait yet. Whose turn is over (3) comes back."""
    owed = s.i[job, OWES]
    head = let_go_of(s, job, now)
    s.i[job, OLD], s.i[job, LEAVING] = head, 1
    s.f[job, LEAVES] = now + s.f[job, SAVE]
    count_cells(s.slices, s.gpu_first, s.gpu_leaving, head, 1)
    still = (moved == 0 and s.i[job, RUNG] == 1) or (moved == 3 and s.i[job, YIELDS] & 1 == 1)
    if still and free_bound(s) >= 0:
        s.i[job, OWES] = owed
        s.i[job, HOME] = copy_slices(s.slices, s.x, FREE_SLICE, head)
        count_cells(s.slices, s.gpu_first, s.gpu_bound, head, 1)
        note(s, T_SUSPEND, job, moved)
    else:
        note(s, T_STOP, job, moved)


@entry
def gone(s: State, rule: Rule, job: int, now: float) -> None:
    """A job has left the GPUs that it still held, or its suspended process has ended."""
    if s.i[job, LEAVING] == 0:
        return
    if s.i[job, OLD] >= 0:
        count_cells(s.slices, s.gpu_first, s.gpu_leaving, s.i[job, OLD], -1)
        free_slices(s, s.i[job, OLD])
        s.i[job, OLD] = -1
    s.i[job, LEAVING] = 0
    s.f[job, LEAVES] = math.inf
    s.x[DIRTY] = 1
    if s.i[job, STATE] == WAITING:
        schedule_wait(s, rule, job)
    else:
        drop_event(s, job)
        if s.i[job, STATE] == RUNNING:
            schedule_run(s, rule, job)


@entry
def end_suspended(s: State, rule: Rule, job: int, now: float) -> None:
    """A suspended job is ended, to start again anywhere from its last checkpoint; its process goes a little later."""
    remove_waiting(s, job)
    s.f[job, LOST] += (s.f[job, DONE] - s.f[job, SAVED]) * s.i[job, GPUS]
    s.f[job, DONE] = s.f[job, SAVED]
    unbind(s, job)
    ask_anew(s, job)
    s.i[job, OWES] = 1 if s.f[job, DONE] > 0 else 0
    s.i[job, LEAVING], s.f[job, LEAVES] = 1, now + s.f[job, SAVE]
    note(s, T_END, job, 0)
    set_keys(s.f, s.i, rule, job, now)
    stand_in_line(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, s.f[job, BELIEF])
    schedule_wait(s, rule, job)
    s.x[DIRTY] = 1


@kernel
def bind_late(s: State, rule: Rule, job: int, now: float) -> None:
    """A job that leaves was suspended, though it was to be stopped: bound like others, if there is room for it.

    It waits for what it stands on, also where that is more or less than it asked for.
    """
    if free_bound(s) < 0:
        return
    remove_waiting(s, job)
    if rule.flags[EASY] == 1:
        set_leaf(s, job, math.inf)
    s.i[job, HOME] = copy_slices(s.slices, s.x, FREE_SLICE, s.i[job, OLD])
    count_cells(s.slices, s.gpu_first, s.gpu_bound, s.i[job, HOME], 1)
    gpus, at = 0, s.i[job, HOME]
    while at >= 0:
        gpus += s.slices[at, SLICE_GPUS]
        at = s.slices[at, SLICE_NEXT]
    if gpus != s.i[job, GPUS]:
        resize(s, job, gpus)
        set_keys(s.f, s.i, rule, job, now)
    bind_class(s, job)
    stand_in_line(s, job)


@kernel
def forget_home(s: State, rule: Rule, job: int, now: float) -> None:
    """The suspended process of a job is gone: the job is bound to nothing and waits, if it does, among its like.

    Its keys are of before. One that was promised to go on with another size than it asked for loses that.
    """
    waits = s.i[job, HEAP_AT] >= 0
    if waits:
        remove_waiting(s, job)
    unbind(s, job)
    if waits:
        ask_anew(s, job)
        stand_in_line(s, job)
        schedule_wait(s, rule, job)
    elif s.i[job, STATE] == RUNNING and s.i[job, GPUS] != s.cls[s.i[job, CLASS], C_GPUS]:
        release(s, job, now)
        enqueue(s, rule, job, now)
