"""What really runs against what the book says: reconciliation at start, ends and traces ever after."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from typing import Any

from cotenant.backends.base import Backend, NodeInfo, Observed, Recalls
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry
from cotenant.service.observer import outcomes
from cotenant.service.observer.cleanup import Cleanup
from cotenant.service.observer.health import HealthWatch
from cotenant.service.observer.reports import Reports
from cotenant.service.observer.sight import Sight, is_awake, is_settled, owner
from cotenant.service.observer.unknown import Lineage, adopted, is_known, refusal
from cotenant.service.options import Options
from cotenant.service.store.barriers import kind_of
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

MOST_UNDONE = 5  # launches of one job that may leave no trace before it is given up
_UNDONE = "launch undone: nothing had been started"


class Observer:
    """Sees how processes begin and end, journals it, and clears away what nobody owns.

    `nodes` are as they were at the last look: others than the scheduler's thread do not ask the backend.
    `in_flight` names the attempts on which the executor acts just now: what is seen of them may be old already.
    """

    def __init__(
        self, store: Store, backend: Backend, reports: Reports, options: Options,
        counters: dict[str, float], in_flight: Callable[[], Collection[str]] = tuple,
    ) -> None:  # fmt: skip
        self._store, self._backend, self._reports = store, backend, reports
        self._clock, self._hook, self._unknown_jobs = options.clock, options.hook, options.unknown_jobs
        self._lineage = Lineage(options.home)
        self._cleanup = Cleanup(backend, options.hook)
        self._counters, self._in_flight = counters, in_flight
        self._health = HealthWatch(store, options.failure_rule, backend.capabilities().exact_gpus)
        self.nodes: tuple[NodeInfo, ...] = tuple(backend.nodes())
        self._sight = Sight()
        self._typed: tuple[tuple[NodeInfo, ...], dict[str, str]] = ((), {})  # nodes, and the GPU types of these
        self.ready = False

    def reconcile(self) -> None:
        """Compare the book with what really runs, before deciding anything. Nothing is touched that is not known."""
        seen = self._backend.observe()
        self._settle_unknown(seen)
        with self._store.lock:
            untraced = {job.key for job in self._store.book.alive()}.difference(item.key for item in seen)
        self._undo_launches(untraced)
        with self._store.lock:
            book = self._store.book
            strays = [item for item in seen if owner(book, item.key) is None and is_known(book, item)]
        self._clear_away(strays)
        self._hook("after:reconcile")
        self.ready = True

    def _settle_unknown(self, seen: Sequence[Observed]) -> None:
        """Refuse, adopt or end what the journal does not know; then the home is this journal's."""
        store = self._store
        with store.lock:
            strange = self._lineage.differs(store.book)
            unknown = [item for item in seen if strange or not is_known(store.book, item)]
            if unknown and not self._unknown_jobs:
                raise refusal(unknown)
            if unknown and self._unknown_jobs == "adopt":
                store.write(adopted(store.book, self._backend, unknown))
            if not store.book.lineage:
                store.write([Entry("lineage", data={"id": secrets.token_hex(8)})])
        for item in unknown if self._unknown_jobs == "end" else ():
            self._cleanup.kill(item.key)
            self._cleanup.forget(item.key)
        self._lineage.keep(store.book)

    def look(self) -> None:
        """Journal what has begun and ended since the last look, then act on it. The lock is held only to write."""
        busy = frozenset(self._in_flight())  # before looking: what is done meanwhile may not be seen yet
        nodes = self._backend.nodes()
        seen = self._backend.observe()
        if (found := self._health.look(nodes)) != self.nodes:
            self.nodes = found
        try:
            self._compare(seen, busy)
        except BaseException:
            self._sight.begin_anew()
            raise

    def _compare(self, seen: Sequence[Observed], busy: Collection[str]) -> None:
        book = self._store.book
        with self._store.lock:
            found = self._sight.compare(seen, book)
        self._undo_launches(found.absent.difference(busy))
        with self._store.lock:
            owned = [(job, item) for item in found.items if (job := owner(book, item.key)) is not None]
            keys = {item.key for _, item in owned}
            strays = [item for item in found.items if item.key not in keys and is_known(book, item)]
            awake = [item.key for job, item in owned if is_awake(job, item) and item.key not in busy]
            ended = [(job, item) for job, item in owned if _over(item)]
            self._sight.settle(item.key for job, item in owned if is_settled(job, item))
            self._journal_starts(owned)
            self._journal_places()
            self._journal_ready()
            self._journal_ends(ended)
            self._give_up_orphans()
        for key in awake:
            self._cleanup.suspend(key)
        for _, item in owned:
            if item.state == "lost" and item.alive:
                self._cleanup.kill(item.key)
        for job, item in ended:
            self._cleanup.forget(item.key)
            self._reports.drop(job.id, int(item.key.rsplit("-", 1)[1]))
        self._clear_away(strays)

    def _journal_starts(self, owned: Sequence[tuple[LiveJob, Observed]]) -> None:
        started = [
            Entry("started", job.id, self._start(job, item))
            for job, item in owned
            if job.last.started_s is None
            and not job.holds
            and (item.state in ("running", "suspended") or (_over(item) and item.started_s is not None))
        ]
        if started:
            self._store.write(started)

    def _start(self, job: LiveJob, item: Observed) -> dict[str, Any]:
        """When it began, and on which GPUs, where the backend chose them."""
        found = {"at_s": self._started_s(job, item), "type": self._gpu_type(job)}
        return {**found, "found_on": item.gpus} if item.gpus else found

    def _journal_places(self) -> None:
        """Kinds of jobs that have said where in their start they would wait for GPUs."""
        book, found = self._store.book, dict[tuple[str, str], None]()
        for name, places in self._reports.holding.said().items():
            job = book.active.get(name)
            kind = kind_of(job.spec, job.tenant, job.user) if job is not None else ""
            found |= dict.fromkeys((kind, place) for place in sorted(places) if kind)
        new = [Entry("barrier", data={"kind": k, "place": p}) for k, p in found if p not in book.barriers.places(k)]
        if new:
            self._store.write(new)

    def _journal_ready(self) -> None:
        """Jobs that have made their first steps: how long that took is learned at once, for others like them."""
        on_gpus = self._store.book.on_gpus
        ready = [job for name in self._reports.warm() if (job := on_gpus.get(name)) and not job.last.start_s]
        if ready:
            self._store.write(
                [Entry("ready", job.id, outcomes.timings(job, self._reports.of(job.id))) for job in ready]
            )

    def _gpu_type(self, job: LiveJob) -> str:
        if self._typed[0] is not self.nodes:
            self._typed = self.nodes, {node.name: node.gpu_type for node in self.nodes}
        return self._typed[1].get(job.last.gpus[0][0], "") if job.last.gpus else ""

    def _started_s(self, job: LiveJob, item: Observed) -> float:
        if job.last.ahead_s and item.started_s is not None:  # its process was there before it had its GPUs
            return max(item.started_s, job.last.launched_s)
        return outcomes.likely_s(item.started_s, job.last.launched_s, self._clock())

    def _journal_ends(self, ended: Sequence[tuple[LiveJob, Observed]]) -> None:
        """Ends seen together, in one go."""
        entries = []
        for job, item in ended:
            report = self._reports.of(job.id)
            end = outcomes.judge(job, item, report, self._clock())
            entries.append(_exit(job, end.to, end.why, {**end.as_dict(), **outcomes.costs(job, end, report)}))
            self._counters["lost_work_s"] += end.lost_s
            if end.failure:
                self._health.heard(job.id)
        if entries:
            self._store.write(entries)

    def _undo_launches(self, keys: Collection[str]) -> None:
        """Launches that were journaled but of which the world knows nothing: they did not happen."""
        book = self._store.book
        if not keys:
            return
        for key in sorted(keys):  # a half-written record, before the end is journaled: afterwards nobody would look
            self._cleanup.forget(key)
        with self._store.lock:
            gone = [job for job in book.alive() if job.key in keys]
            ended = [(job, item) for job in gone if (item := self._recalled(job)) is not None]
            self._journal_ends(ended)
            known = {job.id for job, _ in ended}
            if untraced := [self._untraced(job) for job in gone if job.id not in known]:
                self._store.write(untraced)

    def _recalled(self, job: LiveJob) -> Observed | None:
        """How an attempt ended that this journal, which is older than that, does not know to have ended."""
        return self._backend.ended(job.key) if isinstance(self._backend, Recalls) else None

    def _untraced(self, job: LiveJob) -> Entry:
        """What is to be journaled of an attempt that left no trace."""
        undone = 1 + sum(attempt.why == _UNDONE for attempt in job.attempts[:-1])
        if job.stop_why == "cancel":
            return _exit(job, JobState.CANCELLED, "cancelled before it started")
        if job.last.started_s is not None:
            now_s = self._clock()
            lost = outcomes.lost_s(job, self._reports.of(job.id), now_s)
            end = outcomes.gone(job, "its process left no trace", now_s, lost)
            return _exit(job, end.to, end.why, end.as_dict())
        if self.ready and undone >= MOST_UNDONE:
            return _exit(job, JobState.FAILED, f"it could not be started in {undone} tries")
        return _exit(job, JobState.PENDING, _UNDONE)

    def _give_up_orphans(self) -> None:
        """Those who come after a job that failed will never start, nor will those after them: say so now."""
        while entries := outcomes.orphans(self._store.book):
            self._store.write(entries)

    def _clear_away(self, strays: Sequence[Observed]) -> None:
        """What no active job owns is ended; once it has ended, it is forgotten."""
        for item in strays:
            if _over(item):
                self._cleanup.forget(item.key)
            else:
                self._cleanup.kill(item.key)


def _over(item: Observed) -> bool:
    """Whether its process has ended, one way or another."""
    return item.state == "exited" or (item.state == "lost" and not item.alive)


def _exit(job: LiveJob, to: JobState, why: str, more: dict[str, Any] | None = None) -> Entry:
    return Entry("exit", job.id, {"to": str(to), "why": why, **(more or {})})
