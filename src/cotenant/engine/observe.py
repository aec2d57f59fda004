"""Kernels that show the engine's tables to Python: the view's columns, and orders for explanations."""

from __future__ import annotations

from cotenant.core.columns import (
    ATTAINED,
    BELIEF,
    KEY1,
    KEY2,
    KEY3,
    KEY4,
    N_PROMISED,
    N_RUN,
    PROMISED,
    RUNNING,
    SINCE,
    SLICE,
    STATE,
    WAITED,
    WAITING,
)
from cotenant.core.jit import entry
from cotenant.core.plan import Places
from cotenant.core.state import Matrix, Rule, State
from cotenant.core.view import V_ATTAINED, V_PROGRESS, V_REMAINING, V_RUNNING, V_WAITED
from cotenant.core.workload import Ints
from cotenant.engine.keys import set_keys, work_done


@entry
def keep_active(s: State, rows: Ints, count: int, first_new: int, end_new: int) -> int:
    """Drop rows that are no longer active from a list, keeping its order, and append new arrivals."""
    i = s.i
    kept = 0
    for k in range(count):
        state = i[rows[k], STATE]
        if state in (WAITING, RUNNING):
            rows[kept] = rows[k]
            kept += 1
    for job in range(first_new, end_new):
        state = i[job, STATE]
        if state in (WAITING, RUNNING):
            rows[kept] = job
            kept += 1
    return kept


def places_of(s: State, row: int) -> Places:
    """(node, GPUs, mask of the node's GPUs) of a job that has GPUs, in order of nodes."""
    found, at = [], int(s.i[row, SLICE])
    while at >= 0:
        node, gpus, at, mask = s.slices[at].tolist()
        found.append((node, gpus, mask))
    return tuple(sorted(found))


def running_rows(s: State) -> Ints:
    """Rows of the jobs that run, without those that wait for others to leave their GPUs."""
    listed = s.run[: s.x[N_RUN]]
    listed = listed[listed >= 0]
    return listed if s.x[N_PROMISED] == 0 else listed[s.i[listed, PROMISED] == 0]


@entry
def look(s: State, rows: Ints, now: float, out: Matrix) -> None:
    """Compute the moving columns of the view for some jobs."""
    f, i = s.f, s.i
    for k in range(len(rows)):
        job = rows[k]
        running = i[job, STATE] == RUNNING
        done = work_done(f, i, job, now)
        since = now - f[job, SINCE]
        out[V_REMAINING, k] = max(f[job, BELIEF] - done, 0.0)
        out[V_ATTAINED, k] = f[job, ATTAINED] + (since if running else 0.0)
        out[V_WAITED, k] = f[job, WAITED] + (0.0 if running else since)
        out[V_RUNNING, k] = 1.0 if running else 0.0
        out[V_PROGRESS, k] = done


@entry
def order_keys(s: State, rule: Rule, rows: Ints, now: float, out: Matrix) -> None:
    """Write the keys of some jobs to `out` and nowhere else; waiting jobs carry theirs already."""
    f = s.f
    for k in range(len(rows)):
        job = rows[k]
        key1, key2, key3, key4 = f[job, KEY1], f[job, KEY2], f[job, KEY3], f[job, KEY4]
        if s.i[job, STATE] == RUNNING:
            set_keys(f, s.i, rule, job, now)
        out[0, k], out[1, k], out[2, k], out[3, k] = f[job, KEY1], f[job, KEY2], f[job, KEY3], f[job, KEY4]
        f[job, KEY1], f[job, KEY2], f[job, KEY3], f[job, KEY4] = key1, key2, key3, key4
