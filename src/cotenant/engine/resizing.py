"""A running job goes on with other GPUs, without being stopped: what it has done is settled, the old GPUs go back, the
new ones are taken. That is no preemption; it costs a pause, in which the job holds its GPUs and makes no progress.
"""

from __future__ import annotations

import numpy as np

from cotenant.core.columns import *
from cotenant.core.jit import entry
from cotenant.core.plan import Places, Slices
from cotenant.core.state import IntMatrix, Rule, State
from cotenant.engine.keys import position_of
from cotenant.engine.ledger import enqueue, release, rerun, resize, start
from cotenant.engine.slices import push_slice


@entry
def let_go(s: State, rule: Rule, job: int, gpus: int, now: float) -> None:
    """A running job gives its GPUs back for a moment, to go on with `gpus` others; it is not preempted."""
    release(s, job, now)
    resize(s, job, gpus)
    enqueue(s, rule, job, now)
    if s.i[job, GPUS] != gpus:  # who waits asks for its own size again, but this one does not wait
        resize(s, job, gpus)


@entry
def go_on(s: State, rule: Rule, job: int, head: int, pause_s: float, now: float) -> None:
    """Go on with the GPUs of `head` after a pause; if it still had to restore, that begins anew."""
    start(s, rule, job, head, now)
    s.i[job, STARTS] -= 1
    if s.x[LOGGING] == 1 and s.x[N_LOG] > 0:  # it is no start
        s.log[s.x[N_LOG] - 1, 0] = T_RESIZE
    if s.i[job, OWES] == 0 and pause_s > 0:
        s.f[job, WARM] = now + pause_s
        rerun(s, rule, job, position_of(s.run, s.x[N_RUN], job))


def lay_slices(state: State, wanted: Slices | Places) -> int:
    """A place as a linked list of slices; its head."""
    return int(_lay(state, np.array([(*piece, 0)[:3] for piece in wanted], np.int64)))


@entry
def _lay(s: State, places: IntMatrix) -> int:
    head = -1
    for k in range(len(places) - 1, -1, -1):
        head = push_slice(s, places[k, 0], places[k, 1], places[k, 2], head)
    return head
