"""Which nodes and GPUs are not well: what the backend says of them, and where jobs fail that run elsewhere.

What is found is journaled; from then on nothing starts there, and jobs that may be stopped go elsewhere through the
ladder. A GPU is left out once nobody is on it, and until then its node is shut. Faults that pass are over when they are
no longer told, others when an operator says so (`cotenant drain --undo`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from cotenant.backends.base import NodeInfo
from cotenant.core.lifecycle import JobState
from cotenant.core.node_faults import WHOLE_NODE, NodeFault
from cotenant.journal import Entry
from cotenant.service.failure_rule import FailureRule
from cotenant.service.store.barriers import kind_of
from cotenant.service.store.book import Book
from cotenant.service.store.health import FaultKey, told
from cotenant.service.store.job import Attempt, LiveJob
from cotenant.service.store.store import Store

FAILURES = "failures"
_SCAN_S = 5.0  # between two looks at all jobs, while a node is suspected


class HealthWatch:
    """Asked at every look, by the scheduler's thread. `exact`: it is known which GPUs jobs have."""

    def __init__(self, store: Store, rule: FailureRule, exact: bool) -> None:
        self._store, self._rule, self._exact = store, rule, exact
        self._failed = {job.id for job in store.book.jobs.values() if _failures(job)}
        self._seen, self._due_s = -1, 0.0  # after which record jobs were judged last, and when it may be done again

    def heard(self, job: str) -> None:
        """An attempt of a job has failed."""
        self._failed.add(job)

    def look(self, nodes: Sequence[NodeInfo]) -> tuple[NodeInfo, ...]:
        """Journal what is new and what has passed; the nodes with the GPUs that are left out."""
        told_now = any(node.faults for node in nodes)
        if not (told_now or self._failed or self._store.book.health.faults or self._store.book.health.excused):
            return tuple(nodes)
        with self._store.lock:
            book = self._store.book
            if entries := [*self._news(nodes), *self._passed(nodes), *self._condemned()]:
                self._store.write(entries)
            used = _used(book) if book.health.faults else {}
            return tuple(_without(node, book, used.get(node.name, set())) for node in nodes)

    def _news(self, nodes: Sequence[NodeInfo]) -> Iterator[Entry]:
        health = self._store.book.health
        for node in nodes:
            for fault in node.faults:
                key = node.name, fault.gpu, fault.kind
                if key not in health.faults and health.excused.get(key, ("", 0.0))[0] != fault.why:
                    yield Entry("unhealthy", data=told(node.name, fault))

    def _passed(self, nodes: Sequence[NodeInfo]) -> Iterator[Entry]:
        """Faults that pass and are no longer told; and what was excused of such ones, so that it counts again."""
        health = self._store.book.health
        now: set[FaultKey] = {(node.name, fault.gpu, fault.kind) for node in nodes for fault in node.faults}
        over = [key for key, fault in health.faults.items() if fault.passes and key not in now]
        over += [key for key in health.excused if key[2] != FAILURES and key not in now and key not in health.faults]
        for node, gpu, kind in over:
            yield Entry("healthy", data={"node": node, "gpu": gpu, "kind": kind})

    # -- jobs that fail there and run elsewhere ----------------------------------------------------------------------

    def _condemned(self) -> Iterator[Entry]:
        """Whatever failed too many jobs; looked at when something was journaled since the last time."""
        book, rule = self._store.book, self._rule
        now_s = self._store.clock()
        if not rule.jobs or not self._failed or book.seq == self._seen or now_s < self._due_s:
            return
        self._seen = book.seq
        self._failed = {name for name in self._failed if name in book.jobs and _recent(book.jobs[name], now_s, rule)}
        suspects = {node: jobs for node, jobs in self._by_node(now_s).items() if len(jobs) >= rule.jobs}
        if not suspects:
            return
        self._due_s = now_s + _SCAN_S
        runs = _good_runs(book, {_kind(book.jobs[job]) for jobs in suspects.values() for job in jobs}, now_s)
        for node, jobs in suspects.items():
            for gpu in self._places(jobs):
                had = {job: failed for job, (failed, gpus) in jobs.items() if gpu == WHOLE_NODE or gpu in gpus}
                speak = [job for job, failed in had.items() if _speaks(failed, node, gpu, runs[_kind(book.jobs[job])])]
                if len(speak) >= rule.jobs:
                    if (node, gpu, FAILURES) not in book.health.faults:
                        why = f"{len(speak)} jobs failed there whose like ran elsewhere: {', '.join(sorted(speak)[:5])}"
                        yield Entry("unhealthy", data=told(node, NodeFault(FAILURES, why, gpu, passes=False)))
                    break

    def _by_node(self, now_s: float) -> dict[str, dict[str, tuple[Attempt, set[int]]]]:
        """The last failure of every job on every node, and the GPUs there; not what was excused."""
        book, found = self._store.book, dict[str, dict[str, tuple[Attempt, set[int]]]]()
        excused = {key[0]: at_s for key, (_, at_s) in book.health.excused.items() if key[2] == FAILURES}
        for name in self._failed:
            for attempt in _failures(book.jobs[name]):
                ended_s = attempt.ended_s or 0.0
                for node, gpus in attempt.devices if now_s - ended_s <= self._rule.window_s else ():
                    if ended_s > excused.get(node, -1.0):
                        found.setdefault(node, {})[name] = attempt, set(gpus)
        return found

    def _places(self, jobs: dict[str, tuple[Attempt, set[int]]]) -> list[int]:
        """What may be to blame for failures on a node: the one GPU that all had; all of it; each of the GPUs."""
        if not self._exact:
            return [WHOLE_NODE]
        common = set.intersection(*(gpus for _, gpus in jobs.values()))
        each = sorted(set.union(*(gpus for _, gpus in jobs.values())))
        return [*common, WHOLE_NODE] if len(common) == 1 else [WHOLE_NODE, *each]


def _failures(job: LiveJob) -> list[Attempt]:
    return [one for one in job.attempts if one.end == JobState.FAILED] if job.failures else []


def _recent(job: LiveJob, now_s: float, rule: FailureRule) -> bool:
    return any(now_s - (one.ended_s or 0.0) <= rule.window_s for one in _failures(job))


@dataclass(frozen=True, slots=True)
class GoodRun:
    """An attempt that did not fail: where, since when, and for how long (for ever if it came to the job's end)."""

    places: frozenset[tuple[str, int]]
    since_s: float
    ran_s: float


def _good_runs(book: Book, kinds: set[str], now_s: float) -> dict[str, list[GoodRun]]:
    """Those of all jobs of some kinds."""
    found: dict[str, list[GoodRun]] = {kind: [] for kind in kinds}
    for job in book.jobs.values():
        if job.attempts and (kind := _kind(job)) in kinds:
            found[kind] += [_good_run(one, now_s) for one in job.attempts if _is_good(one)]
    return found


def _is_good(one: Attempt) -> bool:
    return one.started_s is not None and one.end not in (JobState.FAILED, "lost")


def _good_run(one: Attempt, now_s: float) -> GoodRun:
    places = ((node, gpu) for node, gpus in one.devices for gpu in (WHOLE_NODE, *gpus))
    ran_s = inf if one.end == JobState.SUCCEEDED else one.active_s(now_s)
    return GoodRun(frozenset(places), one.started_s or 0.0, ran_s)


def _speaks(failed: Attempt, node: str, gpu: int, runs: Iterable[GoodRun]) -> bool:
    """Whether a failure speaks against a place: its like ran for longer elsewhere, and not since there."""
    longer = [run for run in runs if run.ran_s > failed.ran_s]
    well_here = any((node, gpu) in run.places and run.since_s >= failed.launched_s for run in longer)
    return not well_here and any((node, gpu) not in run.places for run in longer)


def _kind(job: LiveJob) -> str:
    return kind_of(job.spec, job.tenant, job.user) or job.id


def _used(book: Book) -> dict[str, set[int]]:
    """GPUs that somebody has, or stands still on, or is to have."""
    found: dict[str, set[int]] = {}
    for job in book.alive():
        for node, gpus in job.last.gpus:
            found.setdefault(node, set()).update(gpus)
    return found


def _without(node: NodeInfo, book: Book, used: set[int]) -> NodeInfo:
    out = book.health.out(node.name, used)
    return replace(node, out=out) if out else node
