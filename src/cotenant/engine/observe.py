"""Shows the engine's tables to Python: views for policies, as copies, and orders for explanations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cotenant.core import columns as col
from cotenant.core import jit
from cotenant.core.columns import *
from cotenant.core.jit import entry, kernel
from cotenant.core.plan import Places
from cotenant.core.state import IntMatrix, Matrix, Rule, State
from cotenant.core.view import (
    SHOWN_FLOATS,
    SHOWN_INTS,
    SHOWN_SHAPES,
    V_ATTAINED,
    V_PROGRESS,
    V_REMAINING,
    V_RUNNING,
    V_STARTING,
    V_WAITED,
    VIEW_COLUMNS,
    ClusterSite,
    Facts,
    View,
    blank,
    seal,
    sealed,
)
from cotenant.core.workload import Ints
from cotenant.engine.keys import set_keys, work_done
from cotenant.engine.weighing import start_s

_RESTORES = VIEW_COLUMNS + int(np.flatnonzero(SHOWN_FLOATS == col.RESTORE)[0])


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
    return pieces_of(s, int(s.i[row, col.SLICE]))


def pieces_of(s: State, head: int) -> Places:
    """The same of any list of slices."""
    return tuple(sorted(walk_slices(s, head)))


def walk_slices(s: State, head: int) -> Iterator[tuple[int, int, int]]:
    """(node, GPUs, mask) of a list of slices, in its own order."""
    at = head
    while at >= 0:
        node, gpus, at, mask = s.slices[at].tolist()
        yield node, gpus, mask


def running_rows(s: State) -> Ints:
    """Rows of the jobs that run, without those that wait for others to leave their GPUs."""
    listed = s.run[: s.x[N_RUN]]
    listed = listed[listed >= 0]
    return listed if s.x[N_PROMISED] == 0 else listed[s.i[listed, PROMISED] == 0]


def done_by(s: State, job: int, now: float) -> float:
    """`work_done` in Python: of a single job that takes a tenth of the time of a call of machine code."""
    number = s.f.item
    done, since = number(job, DONE), max(number(job, WARM), number(job, RATED))
    if s.i.item(job, STATE) == RUNNING and now > since:
        done += (now - since) * number(job, SPEED)
    return float(done)


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
        out[V_STARTING, k] = starting_s(f, i, job, now)


@kernel
def starting_s(f: Matrix, i: IntMatrix, job: int, now: float) -> float:
    """What is left of a start-up, in which a job does not use its GPUs, or what the next one will take.

    Where jobs have none, loading a checkpoint is none either: it keeps a GPU busy.
    """
    if f[job, START_UP] <= 0:
        return 0.0
    if i[job, STATE] == RUNNING and i[job, PROMISED] == 0:
        return float(max(f[job, WARM] - now, 0.0))
    return start_s(f, i, job)


@entry
def list_held(slices: IntMatrix, heads: Ints, out: IntMatrix) -> int:
    """Write (place of the job, node, GPUs, mask) of every slice of some jobs, a job's own in order; how many."""
    count = 0
    for k in range(len(heads)):
        at = heads[k]
        while at >= 0:
            out[count, 0], out[count, 1] = k, slices[at, SLICE_NODE]
            out[count, 2], out[count, 3] = slices[at, SLICE_GPUS], slices[at, SLICE_MASK]
            count += 1
            at = slices[at, SLICE_NEXT]
    return count


@entry
def show(
    s: State, rows: Ints, now: float, shown: Ints, shown_ints: Ints, shapes: Ints, restores: int, floats: Matrix,
    ints: IntMatrix, held: IntMatrix,
) -> int:  # fmt: skip
    """Write all columns of a view, one line per column, and what jobs hold, as `list_held` does; how many pieces.

    `shown` and so on say which columns of the tables, `restores` which line is what a stop costs: whoever is stopped
    starts again.
    """
    look(s, rows, now, floats)
    moving, count = len(floats) - len(shown), 0
    for k in range(len(rows)):
        job = rows[k]
        for c in range(len(shown)):
            floats[moving + c, k] = s.f[job, shown[c]]
        floats[restores, k] += s.f[job, START_UP]
        for c in range(len(shown_ints)):
            ints[c, k] = s.i[job, shown_ints[c]]
        for c in range(len(shapes)):
            ints[len(shown_ints) + c, k] = s.cls[s.i[job, CLASS], shapes[c]]
        at = s.i[job, SLICE]
        while at >= 0:
            held[count, 0], held[count, 1] = k, s.slices[at, SLICE_NODE]
            held[count, 2], held[count, 3] = s.slices[at, SLICE_GPUS], s.slices[at, SLICE_MASK]
            count += 1
            at = s.slices[at, SLICE_NEXT]
    return count


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


class Window:
    """The one place where tables become views. Whatever does not change is copied at the first look only.

    Pools, GPU memory and speeds by kind do not: whoever lays them out anew opens a new window.
    """

    def __init__(self) -> None:
        self._fixed: tuple[IntMatrix, Matrix, Ints, Matrix, Matrix] | None = None
        self._speed: object = None  # whose copy is the last of them: kinds may become more
        self._held: IntMatrix = np.empty((0, 4), np.int64)
        self._facts, self._known = Facts(), Facts()
        self._caps: bytes = b""  # capacities of nodes for which `_opened` are the GPUs that may be given away
        self._opened: NDArray[np.bool_] = np.zeros(0, bool)

    def view(self, state: State, facts: Facts, rows: Ints, now_s: float) -> View:
        """What a policy may see of these jobs and of the cluster now."""
        wide = VIEW_COLUMNS + len(SHOWN_FLOATS), len(rows)
        wide_ints = len(SHOWN_INTS) + len(SHOWN_SHAPES), len(rows)
        if len(self._held) < len(state.slices):
            self._held = np.empty((len(state.slices), 4), np.int64)
        if jit.enabled():
            floats, ints = blank(wide, np.float64), blank(wide_ints, np.int64)
            columns = SHOWN_FLOATS, SHOWN_INTS, SHOWN_SHAPES, _RESTORES
            pieces = show(state, rows, now_s, *columns, floats, ints, self._held)
        else:
            floats, ints = np.empty(wide), np.empty(wide_ints, np.int64)
            pieces = self._gather(state, rows, now_s, floats, ints)
            floats, ints = sealed(floats), sealed(ints)
        tables = sealed(rows), floats, ints, sealed(self._held[:pieces])
        given = sealed(state.given[: state.x[col.N_GIVEN]])
        return View(now_s, *tables, self._site(state), self._seal(facts), given)

    def _gather(self, state: State, rows: Ints, now_s: float, floats: Matrix, ints: IntMatrix) -> int:
        """`show` by NumPy, which is sooner done where kernels are not compiled."""
        look(state, rows, now_s, floats[:VIEW_COLUMNS])
        floats[VIEW_COLUMNS:] = state.f.take(rows, 0).T[SHOWN_FLOATS]
        floats[_RESTORES] += state.f[rows, col.START_UP]  # whoever is stopped starts again
        i = state.i.take(rows, 0)
        ints[: len(SHOWN_INTS)] = i.T[SHOWN_INTS]
        ints[len(SHOWN_INTS) :] = state.cls.take(i[:, col.CLASS], 0).T[SHOWN_SHAPES]
        return int(list_held(state.slices, i[:, col.SLICE].copy(), self._held))

    def _site(self, s: State) -> ClusterSite:
        if self._fixed is None or self._speed is not s.speed:
            self._speed = s.speed
            fixed = sealed(s.gpu_first), sealed(s.gpu_gib), sealed(s.speed)
            self._fixed = sealed(s.pool), sealed(s.host), *fixed
        pool, host, first, gib, speed = self._fixed
        binds = bool(s.x[col.USE_HOST])
        users, opened = self._users(s)
        quota = s.quota[:, : col.Q_CLAIMED]
        if s.x[col.LAGS] or s.x[col.PINS]:
            quota = quota - pinned_gpus(s)[:, None]
        return ClusterSite(
            node=sealed(s.node), host=sealed(s.host) if binds else host, hosts_bind=binds, pool=pool,
            quota=sealed(quota), users=sealed(users), open=opened, gpu_first=first,
            gpu_gib=gib, speed=speed, failures=int(s.x[col.NODE_FAILURES]), rotates=bool(s.x[col.ROTATES]),
        )  # fmt: skip

    def _users(self, s: State) -> tuple[IntMatrix, NDArray[np.bool_]]:
        """Who is on each GPU, and which ones policies may plan with: the same array while these are the same."""
        if not len(s.gpu) or ((s.x[col.LAGS] or s.x[col.PINS]) and (s.i[:, col.STATE] == col.PINNED).any()):
            users, opened = _users_but_pinned(s)
            return users, sealed(opened)
        caps = s.node[:, col.NODE_CAP].tobytes()
        if caps != self._caps:
            self._caps, self._opened = caps, sealed(_open_gpus(s))
        return s.gpu, self._opened

    def _seal(self, facts: Facts) -> Facts:
        """Copies of what is known; only what elastic jobs tell changes from look to look."""
        if facts is not self._facts:
            self._facts, self._known = facts, seal(replace(facts, training=None))
        return self._known if facts.training is None else replace(self._known, training=seal(facts.training))


def pinned_gpus(s: State) -> Ints:
    """GPUs that each tenant has for jobs that nobody may stop, with which policies do not plan."""
    if not (s.x[col.LAGS] or s.x[col.PINS]):
        return np.zeros(len(s.quota), np.int64)
    rows = np.flatnonzero(s.i[:, col.STATE] == col.PINNED)
    return np.bincount(s.i[rows, col.TENANT], s.i[rows, col.GPUS], len(s.quota)).astype(np.int64)


def _open_gpus(s: State) -> NDArray[np.bool_]:
    """GPUs of nodes that are up."""
    return np.repeat(s.node[:, col.NODE_CAP] > 0, np.diff(s.gpu_first))[: len(s.gpu)]


def _users_but_pinned(s: State) -> tuple[IntMatrix, NDArray[np.bool_]]:
    """Who is on each GPU, and which ones policies may plan with. Jobs that nobody may stop are not shown."""
    if not len(s.gpu):  # nobody shares, nobody asks
        return s.gpu, np.zeros(0, bool)
    pinned = (s.gpu >= 0) & (s.i[s.gpu, col.STATE] == col.PINNED)
    users, opened = np.where(pinned, -1, s.gpu), _open_gpus(s) & ~pinned.any(axis=1)
    return np.take_along_axis(users, np.argsort(users < 0, axis=1, kind="stable"), 1), opened
