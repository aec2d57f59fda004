"""Who has to leave its GPUs because of where they are: a window has begun there, the node goes away, or is not well."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.backends.base import NodeInfo
from cotenant.service.observer.node_access import leaving
from cotenant.service.store.book import Book
from cotenant.service.store.job import LiveJob


class Evictions:
    """At one moment, for as many jobs as are asked about."""

    def __init__(self, book: Book, nodes: Iterable[NodeInfo], now_s: float) -> None:
        self._health = book.health
        self._gone = {node.name for node in nodes if leaving(node, now_s)}
        self._begun = [window for window in book.windows.values() if window.on(now_s)]
        self.anybody = bool(self._gone or self._begun or book.health.faults)

    def of(self, job: LiveJob) -> dict[str, str]:
        """What to journal of a job's stop; empty where it may stay, or leaves already.

        A window is for everybody; for a fault nobody is stopped who said that it may not be.
        """
        if job.stop_why:
            return {}
        names = [node for node, _ in job.last.gpus]
        if self._gone and not self._gone.isdisjoint(names):
            return {"why": "window"}
        for window in self._begun:
            if not window.is_for(job.tenant, job.user) and any(map(window.covers, names)):
                return {"why": "window"}
        because = self._health.must_leave(job.last.devices) if job.spec.preemptible else ""
        return {"why": "health", "because": because} if because else {}
