"""Whom to start ahead of its GPUs, so that it is ready when they are free. The engine says who is next, and where.

Either it has promised GPUs that others are leaving, or it is asked whom it would start when the running jobs end that
are believed to end within the start-up of the next one. A process is started only if jobs of its kind are known to wait
for `go`, and at the place where it does no harm: with its model in the memory of a GPU only where that holds both jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cotenant.backends.base import NodeInfo
from cotenant.core import columns as col
from cotenant.core.lifecycle import JobState
from cotenant.core.plan import Places
from cotenant.core.state import State
from cotenant.core.view import V_REMAINING, VIEW_COLUMNS
from cotenant.core.workload import Ints
from cotenant.engine.next_starts import next_starts
from cotenant.engine.observe import look
from cotenant.service.observer.start_barrier import JOB, STEPS
from cotenant.service.planner.decision import Ahead
from cotenant.service.planner.session import Session
from cotenant.service.store.barriers import kind_of
from cotenant.service.store.book import Book
from cotenant.service.store.job import Gpus, LiveJob, cells
from cotenant.service.store.store import Store

START_UP_S = 15.0  # believed, before any was measured
FURTHEST_S = 120.0  # that the next end may be away
MOST_ENDS = 8  # of running jobs that are looked ahead to
MOST_IN_VAIN = 3  # starts ahead of one job that came to nothing
LONGEST_S = 600.0  # that a process waits for its GPUs before it is ended
_EARLY, _SLACK_S = 1.3, 0.5  # times its start-up, and seconds: who is too early waits, who is late costs GPU time
_LEAST_S = 1e-3
_ENDED = (None, 9)  # signals: it never came to be, or was killed since it was not needed


class _Coming(NamedTuple):
    """A start that the engine foresees, and in how many seconds; 0: it is promised these GPUs, which others leave."""

    job: str
    gpus: Gpus
    left_s: float = 0.0


class AheadStarts:
    """Chooses anew at every look; who waits goes on waiting while the engine would start it soon.

    `apart`: tenants are kept apart, and nobody is let near the GPUs of another's job before they are its own.
    """

    def __init__(self, store: Store, nodes: Callable[[], Sequence[NodeInfo]], wanted: bool, apart: bool) -> None:
        self._store, self._nodes, self._wanted, self._apart = store, nodes, wanted, apart
        self._foreseen: tuple[object, list[list[tuple[int, Places]]]] = (None, [])

    def choose(self, session: Session, now_s: float) -> dict[str, Ahead]:
        """All jobs of which a process shall wait for its GPUs, the next one first."""
        traits, book, lock = session.traits, self._store.book, self._store.lock
        with lock:
            able = self._wanted and bool(book.barriers) and not (traits.shares or traits.takes_turns)
            if not able:
                return {}
            running = [job.id for job in book.on_gpus.values() if job.state != JobState.STOPPING]
            some_wait = bool(book.ahead)
        coming = list(self._next(session, running, some_wait, now_s))
        with lock:
            chosen, taken = dict[str, Ahead](), set[tuple[str, int]]()
            for one in coming:
                job = book.active.get(one.job)
                if job is None or job.id in chosen:
                    continue
                start_up_s = session.follower.beliefs.phases(job).start_s or START_UP_S
                soon = one.left_s <= _EARLY * start_up_s + _SLACK_S
                found = _kept(job, one, soon, now_s) if job.holds else self._new(job, one.gpus, book) if soon else None
                if found is not None and taken.isdisjoint(cells(found.gpus)):
                    chosen[job.id] = found
                    taken.update(cells(found.gpus))
            return chosen

    def _next(self, session: Session, running: Iterable[str], some_wait: bool, now_s: float) -> Iterator[_Coming]:
        """Who starts next and where, as the engine says."""
        for name, gpus in session.promised().items():
            yield _Coming(name, gpus)
        state, row_of = session.tables.state, session.follower.row_of
        if session.traits.plans or session.traits.computed or not state.x[col.N_WAITING]:
            return
        ends = _first_ends(state, np.array([row_of[name] for name in running if name in row_of], np.int64), now_s)
        if not ends or (ends[0][0] > FURTHEST_S and not some_wait):
            return
        for (left_s, _), starts in zip(ends, self._after(session, [row for _, row in ends], now_s), strict=True):
            for row, places in starts:
                found = session.name_of(row)
                if found is not None:
                    yield _Coming(found, session.gpus(places), max(left_s, _LEAST_S))

    def _after(self, session: Session, ends: list[int], now_s: float) -> list[list[tuple[int, Places]]]:
        """Whom each of these ends lets start: worked out on a copy of all tables, and kept while they stay the same."""
        x = session.tables.state.x
        seen = session, self._store.book.seq, int(x[col.EPOCH]), int(x[col.N_WAITING]), ends
        if self._foreseen[0] != seen:
            self._foreseen = seen, list(next_starts(session.engine, ends, now_s))
        return self._foreseen[1]

    def _new(self, job: LiveJob, gpus: Gpus, book: Book) -> Ahead | None:
        if job.state != JobState.PENDING or job.stop_why or not _worth_while(job):
            return None
        places = book.barriers.places(kind_of(job.spec, job.tenant, job.user))
        sizes, mine = {node.name: node for node in self._nodes()}, set(cells(gpus))
        there = [other for other in book.on_gpus.values() if not mine.isdisjoint(cells(other.last.gpus))]
        strangers = self._apart and any(other.tenant != job.tenant for other in there)
        if not places or strangers or not _host_holds(job, gpus, book, sizes):
            return None
        if STEPS in places and _gpus_hold(job, gpus, there, sizes):
            return Ahead(gpus, STEPS)
        return Ahead(gpus, JOB) if JOB in places else None


def _kept(job: LiveJob, coming: _Coming, soon: bool, now_s: float) -> Ahead | None:
    """It waits already; if it is to have other GPUs, it begins anew there, unless it is too late for that."""
    elsewhere = coming.gpus != job.last.gpus and (not coming.left_s or not soon)
    stays = not job.stop_why and not elsewhere and now_s - job.last.ahead_s < LONGEST_S
    return Ahead(job.last.gpus, "") if stays else None


def _first_ends(state: State, rows: Ints, now_s: float) -> list[tuple[float, int]]:
    """In how many seconds the running jobs are believed to end that end first, and which ones these are."""
    seen = np.empty((VIEW_COLUMNS, len(rows)))
    look(state, rows, now_s, seen)
    left_s = np.maximum(state.f[rows, col.WARM] - now_s, 0.0) + seen[V_REMAINING] / state.f[rows, col.SPEED]
    first = np.lexsort((rows, left_s))[:MOST_ENDS]
    return list(zip(left_s[first].tolist(), rows[first].tolist(), strict=True))


def _worth_while(job: LiveJob) -> bool:
    """Not where that came to nothing twice, or its process ended by itself before it had its GPUs."""
    vain = [one for one in job.attempts if one.holds]
    return len(vain) < MOST_IN_VAIN and all(one.exit_code is None and one.signal in _ENDED for one in vain)


def _gpus_hold(job: LiveJob, gpus: Gpus, there: Iterable[LiveJob], nodes: dict[str, NodeInfo]) -> bool:
    """Whether its GPUs are known to hold it beside whoever is there."""
    needs_gib = [job.spec.gpu_mem_gib, *(other.spec.gpu_mem_gib for other in there)]
    least_gib = min((nodes[name].gpu_mem_gib for name, _ in gpus if name in nodes), default=0.0)
    return min(needs_gib) > 0 and sum(needs_gib) <= least_gib


def _host_holds(job: LiveJob, gpus: Gpus, book: Book, nodes: dict[str, NodeInfo]) -> bool:
    """Whether its nodes have the memory that it asks for, beside whoever is there."""
    for name, _ in gpus if job.spec.mem_gib else ():
        used_gib = sum(one.spec.mem_gib for one in book.alive() if any(node == name for node, _ in one.last.gpus))
        if name not in nodes or used_gib + job.spec.mem_gib > nodes[name].mem_gib:
            return False
    return True
