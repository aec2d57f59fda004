"""Kernels that load what really runs and waits into fresh tables, so that a decision or a forecast can follow."""

from __future__ import annotations

from cotenant.core.columns import (
    ATTAINED,
    DONE,
    FIRST,
    GPUS,
    N_RUN,
    NEXT_ARRIVAL,
    OCCUPIED,
    OWES,
    QUEUE,
    SINCE,
    SLICE,
    STATE,
    SUBMIT,
    WAITED,
    WAITING,
    WARM,
)
from cotenant.core.jit import entry
from cotenant.core.state import Rule, State
from cotenant.core.workload import Floats, Ints
from cotenant.engine.keys import position_of
from cotenant.engine.ledger import enqueue, heat, new_slices, schedule_run, start


@entry
def enter_all(s: State, rule: Rule, attained_s: Floats, done_s: Floats, first_s: Floats, now: float) -> None:
    """Every row of the tables begins to wait now, with what it has attained and done before."""
    for job in range(s.f.shape[0]):
        s.f[job, ATTAINED] = attained_s[job]
        s.f[job, OCCUPIED] = attained_s[job]
        s.f[job, DONE] = done_s[job]
        s.f[job, FIRST] = first_s[job]
        s.f[job, WAITED] = now - s.f[job, SUBMIT] - attained_s[job]
        s.i[job, OWES] = 1 if done_s[job] > 0 else 0
        queue = 0
        while queue < len(rule.thresholds) and attained_s[job] * s.i[job, GPUS] >= rule.thresholds[queue]:
            queue += 1
        s.i[job, QUEUE] = queue
        enqueue(s, rule, job, now)
    s.x[NEXT_ARRIVAL] = s.f.shape[0]


@entry
def enter_running(s: State, rule: Rule, job: int, nodes: Ints, gpus: Ints, since_s: float, now: float) -> None:
    """A row that waits is in fact running, on these nodes, since a moment in the past."""
    if s.i[job, STATE] != WAITING:
        return
    for k in range(len(nodes)):
        s.pick[k, 0], s.pick[k, 1] = nodes[k], gpus[k]
    s.i[job, OWES] = 0
    start(s, rule, job, new_slices(s, len(nodes)), now)
    s.f[job, SINCE] = since_s
    s.f[job, WARM] = now
    s.f[job, ATTAINED] -= now - since_s
    s.f[job, OCCUPIED] -= now - since_s
    heat(s.f, s.i, s.slices, s.hot, s.x, job, position_of(s.run, s.x[N_RUN], job))
    schedule_run(s.f, s.i, s.events, s.x, rule.thresholds, job)


def placement_of(s: State, job: int) -> tuple[tuple[int, int], ...]:
    """(node, GPUs) pairs of a running row."""
    pairs, at = [], int(s.i[job, SLICE])
    while at >= 0:
        pairs.append((int(s.slices[at, 0]), int(s.slices[at, 1])))
        at = int(s.slices[at, 2])
    return tuple(pairs)
