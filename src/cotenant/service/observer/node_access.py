"""Which nodes are open to which jobs, now; who fits on none of them is set aside until one does.

The engine sets jobs aside by itself (`engine.aside`); here it is told what is open to whom, and it is journaled why,
for people. Shut are nodes that are down or drained, those in a window that has begun, and, to a job that would not end
before, those whose window is near. How long a job takes is its `max_runtime`, else what is believed. Nodes with other
windows ahead are apart: no gang spans both. So are nodes that are dedicated to tenants, which take no others' jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from cotenant.backends.base import ASLEEP, NodeInfo
from cotenant.core.lifecycle import JobState
from cotenant.core.reasons import moment
from cotenant.journal import Entry
from cotenant.service.admission import Pool, PoolDemand, demand_of, misfit, pools_of
from cotenant.service.node_windows import MAINTENANCE, NodeWindow
from cotenant.service.observer.outcomes import UNKNOWN_DURATION_S
from cotenant.service.planner.decision import Access
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

Labels = tuple[str, ...]
"""Names of sets of windows: of those that are ahead of a node."""
Whose = str
"""A tenant, where there is a tree of them; else empty."""
_NONE = Access()
_NAMED = 3  # faults of nodes that are told to whoever waits for them


def length_s(job: LiveJob, now_s: float) -> float:
    """How long a job holds its GPUs at most, or else is believed to, once it starts."""
    if job.spec.max_runtime_s:
        return job.spec.max_runtime_s
    if job.left_s is not None:
        return job.left_s
    return max(job.spec.expected_s - job.attained_s(now_s), 0.0) if job.spec.expected_s else UNKNOWN_DURATION_S


def leaving(node: NodeInfo, now_s: float) -> bool:
    """Whether a node goes away by itself so soon that nothing may start there, and whoever is there must leave."""
    return bool(node.leaves_s) and now_s >= node.leaves_s


def _has(node: NodeInfo) -> object:
    """What of a node matters to whoever would run there."""
    return node.name, node.gpu_type, node.gpus, node.out, node.cpus, node.mem_gib, node.gpu_mem_gib


class NodeAccess:
    """Looked at before every decision, by the scheduler's thread.

    `hosts`: whether cores and memory that jobs ask for bind them; else they are dealt out while jobs run.
    """

    def __init__(self, store: Store, nodes: Callable[[], Sequence[NodeInfo]], hosts: bool = True) -> None:
        self._store, self._nodes, self._hosts = store, nodes, hosts
        self._near: dict[str, NodeWindow] = {}  # windows that some job would not end before; they stay near
        self._labels: dict[str, str] = {}
        self._open: dict[str, Access] = {}  # of pending jobs, where there are labels
        self._listed: Sequence[NodeInfo] = ()  # nodes as they were asked for last, and what follows from them
        self._named: dict[str, NodeInfo] = {}
        self._down: set[str] = set()
        self._going: list[NodeInfo] = []
        self._nodes_then: list[NodeInfo] = []  # at the last look, and what they have
        self._have: list[object] = []
        self._seen: object = None
        self._due_s = inf  # when a node shuts for some pending job, or a window begins or ends

    # -- what the planner asks -------------------------------------------------------------------------------------

    def labels(self) -> Mapping[str, str]:
        """The windows near nodes; replaced as a whole."""
        return self._labels

    def open_to(self, job: LiveJob) -> Access:
        """Nodes with a label that are open to a job; whoever is on GPUs already may stay."""
        if not self._labels:
            return _NONE
        everything = Access(tuple(sorted({*self._labels.values()})))
        return self._open.get(job.id, everything) if job.state == JobState.PENDING else everything

    def shut(self, now_s: float) -> set[str]:
        """Nodes on which nothing may start."""
        book, nodes = self._store.book, self._by_name()
        found = self._down | {node.name for node in self._going if leaving(node, now_s)}
        found.update(name for name in (*book.drained, *book.asleep) if name in nodes)
        faults = book.health.faults.values()
        found.update(one.node for one in faults if one.node in nodes and one.gpu not in nodes[one.node].out)
        for window in book.windows.values():
            if window.kind == MAINTENANCE and window.on(now_s):
                found.update(name for name in nodes if window.covers(name))
        return found

    def _by_name(self) -> Mapping[str, NodeInfo]:
        """The nodes that are there; whoever is down, or will go by itself, is looked for when others are there."""
        nodes = self._nodes()
        if nodes != self._listed:
            self._listed, self._named = nodes, {node.name: node for node in nodes}
            self._down = {node.name for node in nodes if node.state != "up"}
            self._going = [node for node in nodes if node.leaves_s]
        return self._named

    def _could_take(self, shut: set[str]) -> list[NodeInfo]:
        """Nodes that are open, and those that only sleep: they are woken for whoever needs them."""
        book = self._store.book
        if not shut:
            return list(self._nodes())
        sleeps = {node.name for node in self._nodes() if node.state in ASLEEP or node.name in book.asleep}
        sleeps -= book.drained | {fault.node for fault in book.health.faults.values()}
        return [node for node in self._nodes() if node.name not in shut or node.name in sleeps]

    # -- a look ----------------------------------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Journal who is set aside and who comes back, and windows that are over."""
        with self._store.lock:
            book = self._store.book
            over = [w.id for w in book.windows.values() if w.to_s <= now_s]
            if over:
                self._store.write([Entry("window-removed", data={"id": name, "why": "it is over"}) for name in over])
            shut = self.shut(now_s)
            nodes = self._could_take(shut)
            if nodes != self._nodes_then:
                self._nodes_then, self._have = nodes, [_has(node) for node in nodes]
            seen = self._have, tuple(book.windows), book.tenants
            if not nodes:  # nobody keeps anybody waiting
                return
            every = seen != self._seen or now_s >= self._due_s or (bool(book.windows) and bool(book.unplaced))
            names: Iterable[str] = book.active if every else book.unplaced
            pending = [job for name in names if (job := book.active.get(name)) and job.state == JobState.PENDING]
            if every:
                self._label(pending, now_s)
            entries = self._judged(pending, nodes, now_s)
            if entries:
                self._store.write(entries)
            self._seen, book.unplaced = seen, set()

    def _label(self, pending: Sequence[LiveJob], now_s: float) -> None:
        """Which windows are near, and when that or who is let in changes next."""
        windows = self._store.book.windows
        longest_s = max((length_s(job, now_s) for job in pending), default=0.0)
        self._near = {name: w for name, w in windows.items() if name in self._near or w.from_s <= now_s + longest_s}
        self._labels = {
            node.name: " ".join(["window", *ids])
            for node in self._nodes()
            if (ids := sorted(name for name, w in self._near.items() if w.covers(node.name)))
        }
        active = self._store.book.active
        self._open = {name: access for name, access in self._open.items() if name in active}
        times = [t for w in windows.values() for t in (w.from_s - longest_s, w.from_s, w.to_s)]
        lengths = {length_s(job, now_s) for job in pending} if windows else ()
        times += [w.from_s - length for w in self._near.values() for length in lengths]
        self._due_s = min((t for t in times if t > now_s), default=inf) if windows else inf

    def _judged(self, pending: Sequence[LiveJob], nodes: Sequence[NodeInfo], now_s: float) -> list[Entry]:
        book, entries = self._store.book, []
        known: dict[tuple[PoolDemand, Labels, Whose], str] = {}
        pools: dict[tuple[Labels, Whose], list[Pool]] = {}
        tenants = book.tenants
        if not self._labels:
            self._open.clear()
        for job in pending:
            access = self._let_in(job, now_s) if self._labels else _NONE
            if self._labels and self._open.get(job.id) != access:
                self._open[job.id] = access
                book.touched.add(job.id)  # for the planner, which has it in the tables with that of before
            labels, whose = access.labels, job.tenant if tenants.tree is not None else ""
            ask = demand_of(job.spec, self._hosts)
            if (ask, labels, whose) not in known:
                mine = [node for node in nodes if tenants.takes(node.name, whose)] if whose else nodes
                if (labels, whose) not in pools:
                    there = [node for node in mine if self._labels.get(node.name, "") in ("", *labels)]
                    pools[labels, whose] = pools_of(there, self._apart)
                known[ask, labels, whose] = self._why(ask, pools[labels, whose], mine)
            why = known[ask, labels, whose]
            if why != job.aside:
                entries.append(Entry("aside", job.id, {"why": why}))
        return entries

    def _apart(self, node: str) -> object:
        """Nodes between which gangs may be spread agree in this."""
        return self._labels.get(node, ""), self._store.book.tenants.mark(node).dedicated

    def _let_in(self, job: LiveJob, now_s: float) -> Access:
        """Labels all of whose windows let a job start now; those reserved for it have a line of their own."""
        ends_s, near = now_s + length_s(job, now_s), self._near
        kept = {name for name, w in near.items() if not w.lets(job.tenant, job.user, ends_s)}
        mine = {name for name, w in near.items() if w.on(now_s) and w.is_for(job.tenant, job.user)}
        labels = [label for label in sorted({*self._labels.values()}) if kept.isdisjoint(label.split())]
        return Access(tuple(labels), next((label for label in labels if not mine.isdisjoint(label.split())), ""))

    def _why(self, ask: PoolDemand, pools: Sequence[Pool], nodes: Sequence[NodeInfo]) -> str:
        if not nodes:
            return "no node that is there now takes jobs of its tenant: they are dedicated to others"
        wrong = misfit(ask, pools)
        if wrong and self._labels and not misfit(ask, pools_of(nodes, self._apart)):
            first = min(self._near.values(), key=lambda w: w.from_s)
            return f"it would not end before the {first.kind} that begins at {moment(first.from_s)}"
        faults = list(self._store.book.health.faults.values())
        but = f" ({'; '.join(fault.words for fault in faults[:_NAMED])})" if faults else ""
        return f"on the nodes that are there now: {wrong}{but}" if wrong else ""
