"""Idle nodes sleep while a service runs: the rules of `--power` on what the book and the backend say.

Every ten minutes, and at once when jobs wait that nodes asleep could hold, the rules say how many nodes are to be awake
(Helios, SC'21, section 4.3). Which ones should sleep is journaled before anybody acts; nothing starts on these from
then on (`NodeAccess.shut`). What the backend says of its nodes is compared with that at every look, so that a crash in
between leaves no node forgotten. Only nodes without any job, promised or suspended ones included, are put to sleep.
Past days, as far as jobs of the book tell of them, teach the forecast at the start.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cotenant.backends.base import Backend, BackendError, NodeInfo, Sleeps
from cotenant.core.errors import InputError
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.power import Ces, LearnedForecast, QueueLength, parse_power, parse_queue
from cotenant.power.ces import STEP_S
from cotenant.power.windows import Floats
from cotenant.service.admission import demand_of, misfit, pools_of
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

_PAST_S = 60 * 86400.0  # of which the forecast learns at a start
_log = logging.getLogger(__name__)


class LivePower:
    """Who sleeps. `look` is called by the scheduler's thread after every decision."""

    def __init__(
        self, text: str, store: Store, backend: Backend, nodes: Callable[[], Sequence[NodeInfo]], hosts: bool = True
    ) -> None:
        self._store, self._backend, self._nodes, self._hosts = store, backend, nodes, hosts
        usual = getattr(backend, "power_rules", "")
        by_queue = (text or usual).partition(":")[0] == "queue"
        self._queue = QueueLength(parse_queue(text or usual)) if by_queue else None
        self._rules = parse_power(text)[0] if text and not by_queue else None
        if text and not isinstance(backend, Sleeps):
            raise InputError("--power: this backend cannot let nodes sleep; leave it out, or use one that can")
        self._ces: Ces | None = None
        self._step_s = 0.0
        self.wakes = 0

    def look(self, now_s: float) -> None:
        """Decide, journal, and have the backend do what is still to be done."""
        if not isinstance(self._backend, Sleeps):
            return
        with self._store.lock:
            book = self._store.book
            shut = book.drained | {fault.node for fault in book.health.faults.values()}
            nodes = [node for node in self._nodes() if node.state != "down" and node.name not in shut]
            wanted = self._by_queue(self._queue, nodes, book, now_s) if self._queue is not None else set()
            wanted = self._wanted(nodes, book, now_s) if self._rules is not None else wanted
            if wanted != book.asleep:
                woken, slept = sorted(book.asleep - wanted), sorted(wanted - book.asleep)
                self._store.write([Entry("power", data={"asleep": slept, "woken": woken})])
        self._act(self._backend, wanted)

    @property
    def due_s(self) -> float:
        """When it wants to look again."""
        if self._queue is not None:
            return self._queue.due_s
        return self._step_s if self._rules is not None else math.inf

    def _act(self, backend: Sleeps, wanted: set[str]) -> None:
        """Bring the nodes to what the book says."""
        states = {node.name: node.state for node in self._nodes()}
        sleep = sorted(name for name in wanted if states.get(name) == "up")
        wake = sorted(name for name, state in states.items() if state == "asleep" and name not in wanted)
        try:
            if sleep:
                backend.sleep_nodes(sleep)
            if wake:
                backend.wake_nodes(wake)
        except BackendError as error:  # the next look tries again
            _log.warning("%s", error)

    # -- how many, and which ---------------------------------------------------------------------------------------

    def _by_queue(self, queue: QueueLength, nodes: Sequence[NodeInfo], book: Book, now_s: float) -> set[str]:
        """As many awake as are used and waited for; those that some job cannot do without are woken first."""
        off = {node.name for node in nodes if node.state == "asleep"} | (book.asleep & {node.name for node in nodes})
        up = {node.name for node in nodes if node.state == "up"} - off
        rising = {node.name for node in nodes if node.state == "waking"} - off
        waiting = _waiting(book)
        needed = self._needed(nodes, off, waiting)
        order = sorted(off, key=lambda name: (name not in needed, name))
        queued = max(_queued(nodes, waiting), len(needed)) if waiting and nodes else 0
        return queue.asleep(up, rising, order, _busy(book) & (up | rising), queued, now_s)

    def _wanted(self, nodes: Sequence[NodeInfo], book: Book, now_s: float) -> set[str]:
        """Nodes that should sleep from now on."""
        names = {node.name for node in nodes}
        asleep = book.asleep & names
        if not nodes or self._rules is None:
            return asleep
        busy, waiting = _busy(book) & names, _waiting(book)
        if self._ces is None or self._ces.nodes != len(nodes):
            self._begin(nodes, book, now_s)
        assert self._ces is not None
        queued = _queued(nodes, waiting)
        awake = len(names) - len(asleep)
        if now_s >= self._step_s:
            self._step_s = now_s + STEP_S
            target = self._step(self._ces, now_s, len(busy), queued, awake)
        elif queued and asleep and len(busy) + queued > awake:
            target = self._ces.need(len(busy) + queued)
        else:
            target = awake
        needed = self._needed(nodes, asleep, waiting)
        woken = self._first(asleep, nodes, needed, max(target - awake, len(needed)))
        self.wakes += bool(woken)
        if target < awake and not woken:
            idle = [name for name in sorted(names - asleep - busy, reverse=True) if _is_up(name, nodes)]
            asleep |= set(idle[: awake - target])
        return asleep - woken

    @staticmethod
    def _step(ces: Ces, now_s: float, busy: int, queued: int, awake: int) -> int:
        """Nodes to keep awake; as many as now where nothing can be forecast."""
        try:
            return ces.step(now_s, busy, queued)
        except InputError as error:
            _log.warning("--power: %s; nobody is put to sleep", error)
            return awake

    def _begin(self, nodes: Sequence[NodeInfo], book: Book, now_s: float) -> None:
        assert self._rules is not None
        forecast = LearnedForecast(self._rules.ahead)
        forecast.learn(*_history(book, {node.name for node in nodes}, now_s))
        self._ces, self._step_s = Ces(self._rules, len(nodes), forecast), now_s

    def _needed(self, nodes: Sequence[NodeInfo], asleep: set[str], waiting: Iterable[LiveJob]) -> set[str]:
        """Nodes asleep without which some waiting job could never start, however many others are awake."""
        needed: set[str] = set()
        for ask in {demand_of(job.spec, self._hosts) for job in waiting} if asleep else ():
            off = asleep - needed
            if misfit(ask, pools_of(nodes)) or not misfit(ask, pools_of(_without(nodes, off))):
                continue
            kept = set[str]()  # whoever is not missed sleeps on
            for name in sorted(off, reverse=True):
                if not misfit(ask, pools_of(_without(nodes, kept | {name}))):
                    kept.add(name)
            needed |= off - kept
        return needed

    @staticmethod
    def _first(asleep: set[str], nodes: Sequence[NodeInfo], needed: set[str], count: int) -> set[str]:
        """So many of those asleep, the needed first, then in the order of the nodes."""
        order = sorted((node.name for node in nodes if node.name in asleep), key=lambda name: name not in needed)
        return set(order[:count])


def _without(nodes: Iterable[NodeInfo], names: set[str]) -> list[NodeInfo]:
    return [node for node in nodes if node.name not in names]


def _is_up(name: str, nodes: Iterable[NodeInfo]) -> bool:
    return any(node.name == name and node.state == "up" for node in nodes)


def _busy(book: Book) -> set[str]:
    """Nodes on which something lives or is about to."""
    held = [job.last.gpus for job in book.alive()] + list(book.promises.values())
    return {name for gpus in held for name, _ in gpus}


def _waiting(book: Book) -> list[LiveJob]:
    """Jobs that nothing but GPUs keeps from starting, as far as their own files tell."""
    return [
        job for job in book.active.values()
        if job.state == JobState.PENDING and not (job.held or job.stop_why or job.id in book.chained)
    ]  # fmt: skip


def _queued(nodes: Sequence[NodeInfo], waiting: Iterable[LiveJob]) -> int:
    """Nodes that waiting jobs would fill: what is free beside running ones is of no use to them, or they would run."""
    each = sum(node.gpus for node in nodes) / len(nodes) or 1.0
    return math.ceil(sum(max(job.spec.gpus, 1) for job in waiting) / each)


def _history(book: Book, names: set[str], now_s: float) -> tuple[Floats, Floats]:
    """Nodes that were busy in each step of the past, from the attempts that the book knows."""
    last = int(now_s // STEP_S)
    first = max(int((now_s - _PAST_S) // STEP_S), 0)
    runs = [
        (name, max(int(one.launched_s // STEP_S), first), min(int((one.ended_s or now_s) // STEP_S), last))
        for job in book.jobs.values() for one in job.attempts if not one.holds for name, _ in one.gpus if name in names
    ]  # fmt: skip
    if not runs:
        return np.zeros(0), np.zeros(0)
    first = min(begin for _, begin, _ in runs)
    rows = {name: at for at, name in enumerate(sorted(names))}
    used = np.zeros((len(rows), last - first), bool)
    for name, begin, end in runs:
        used[rows[name], max(begin - first, 0) : max(end - first + 1, 0)] = True
    time_s = (first + np.arange(last - first, dtype=np.float64)) * STEP_S
    return np.asarray(time_s, np.float64), np.asarray(used.sum(axis=0), np.float64)
