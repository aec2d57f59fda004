"""What a service knows that must outlive it: what users were told, and what was measured. For `bench.crash`.

A service says what it knows after every look and when it dies. Afterwards all of that must be found in the journal, as
it was at that record: promises, what the policy remembers, measured costs, levels of attempts. After every look the
planner's mind and the book agree. Jobs that share their GPUs in turns, or as guests, do so again after the first look
of the next service. With jobs that leave nothing is agreed any more, but who took turns is sent off without GPUs for
another's turn only. A promise is taken back only when its GPUs are given to others, or its job may not run. Who stands
still goes on where it stands: it needs no other GPUs, until it is ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from cotenant.core.plan import ALONE
from cotenant.journal import Record
from cotenant.service.core import CoreService
from cotenant.service.planner.follower import comes_back
from cotenant.service.store.book import Book
from cotenant.service.store.job import Gpus, LiveJob
from cotenant.service.store.records import WRITTEN

Known = dict[str, Any]
Tell = Callable[[str, str], None]  # kind of fault, and a note


class Watched:
    """A service that notes after every look what it knows; the scheduler's loop takes it for the service."""

    def __init__(self, service: CoreService) -> None:
        self.service, self.store, self.backend, self.usage = service, service.store, service.backend, service.usage
        self.known: Known = {}

    def tick(self) -> float:
        """One look."""
        wait_s = self.service.tick()
        mind = self.service.planner.mind()
        with self.store.lock:
            known = knows(self.store.book)
            known["terms"] = _terms(self.service)
            known["stop"] = {job.key: job.stop_why for job in self.store.book.on_gpus.values()}
            if mind is not None:
                known["amiss"] = _amiss(self.store.book, *mind)
        known["looks"] = self.known.get("looks", 0) + 1
        self.known = known
        return wait_s


def knows(book: Book) -> Known:
    """What must be found in the journal, at the last record of the book."""
    alive = [*book.on_gpus.values(), *book.suspended.values()]
    found = {
        "seq": book.seq, "promises": book.promises, "memory": book.memory, "costs": book.costs.rows(),
        "levels": {job.key: job.last.level for job in alive}, "policy": book.policy,
        "barriers": book.barriers.rows(),
    }  # fmt: skip
    return _plain(found)


def _amiss(book: Book, promised: Mapping[str, Gpus], remembered: Mapping[str, Any]) -> list[str]:
    """Where the planner's mind and the book differ, but for jobs to which something happened meanwhile."""
    found = [
        f"{job} is promised {promised.get(job)} by the planner and {book.promises.get(job)} by the book"
        for job in promised.keys() | book.promises.keys()
        if promised.get(job) != book.promises.get(job) and job not in book.touched
    ]
    ended = book.jobs.keys() - book.active.keys()
    mine, written = _plain(dict(remembered)), _plain(book.memory)
    for key in mine.keys() | written.keys():
        one, two = (_of_active(memory.get(key, {}), ended) for memory in (mine, written))
        if one != two:
            found.append(f"{key} is {one} for the planner and {two} in the book")
    return found


def _of_active(memory: dict[str, Any], ended: Set[str]) -> dict[str, Any]:
    """What is remembered, but of jobs (or pairs of them) that have ended."""
    memory = memory.get("kept", memory)
    return {key: value for key, value in memory.items() if ended.isdisjoint(key.split())}


def _terms(service: CoreService) -> dict[str, list[Any]]:
    """The terms of jobs that are not alone on theirs, with their GPUs."""
    jobs, terms = service.store.book.on_gpus.values(), service.executor.terms
    users: dict[tuple[str, int], list[str]] = {}
    for job in jobs:
        for cell in _cells(job.last.gpus):
            users.setdefault(cell, []).append(job.key)
    return {
        job.key: [
            sorted({key for cell in _cells(job.last.gpus) for key in users[cell]}),
            terms.of(job).turn > 0, terms.of(job).opportunistic,
        ]
        for job in jobs
        if terms.of(job) != ALONE
    }  # fmt: skip


def _plain(data: dict[str, Any]) -> Known:
    read: Known = json.loads(json.dumps(data))
    return read


def _cells(gpus: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((node, index) for node, indexes in gpus for index in indexes)


@dataclass
class Words:
    """All that the services of one round have said, oldest first."""

    said: list[Known] = field(default_factory=list)
    _terms: dict[str, list[Any]] = field(default_factory=dict)  # of those who stayed, before the last kill
    _fell: bool = False

    def fell(self) -> None:
        """The service is dead: the next one is to know the same."""
        self._fell = True

    def hear(self, known: Known, tell: Tell) -> None:
        """Take one in, and compare it with what was known before."""
        if not known or (self.said and known == self.said[-1]):
            return
        self.said.append(known)
        if "looks" not in known:  # its last words
            return
        for note in known.get("amiss", ()):
            tell("forgotten", f"after look {known['looks']}, record {known['seq']}: {note}")
        if self._fell and "amiss" not in known:  # its policy still thinks
            return
        if self._fell:
            for key, before in self._terms.items():
                _same_terms(key, before, known, tell)
        self._terms = {key: terms for key, terms in known["terms"].items() if not known["stop"][key]}
        self._fell = False

    def check(self, records: Iterable[Record], tell: Tell) -> None:
        """Whether the journal has all that was said, and whether promises were kept or taken back for a reason."""
        said = sorted(self.said, key=lambda known: int(known["seq"]))
        book, at = Book(), 0
        for _, append in groupby(records, key=lambda record: record.data.get(WRITTEN)):
            before = dict(book.promises)
            whole = list(append)
            for record in whole:
                while at < len(said) and said[at]["seq"] < record.seq:
                    _compare(said[at], knows(book), tell)
                    at += 1
                book.apply(record)
            for record in whole:
                if record.kind == "promise" and record.data["gpus"] is None and record.job in before:
                    _taken_back(book, record, before[record.job], tell)
        for known in said[at:]:
            _compare(known, knows(book), tell)


def _same_terms(key: str, before: list[Any], known: Known, tell: Tell) -> None:
    """Whether somebody is still on the terms of before the kill; who is sent off now must have been promised GPUs."""
    now, stop = known["terms"].get(key, [before[0], False, False]), known["stop"].get(key)
    if stop == "" and now[0] == before[0] and now[1:] != before[1:]:
        tell("forgotten", f"{key} shared on terms {before} and does on {now} after a restart")
    if stop in ("preempt", "move") and before[1] and key.rpartition("-")[0] not in known["promises"]:
        tell("forgotten", f"{key} took turns and is sent off after a restart: {stop}")


def _compare(known: Known, journaled: Known, tell: Tell) -> None:
    for what in journaled:
        if known[what] != journaled[what]:
            note = f"the service knew {what} {known[what]}, the journal has {journaled[what]}"
            tell("forgotten", f"at record {known['seq']}: {note}")


def _taken_back(book: Book, record: Record, gpus: Gpus, tell: Tell) -> None:
    """A promise is gone: others must have its GPUs by now, or its job cannot use them."""
    job = book.jobs[record.job]
    others = [*book.on_gpus.values(), *book.suspended.values()]
    taken = {cell for other in others if other is not job for cell in _cells(other.last.gpus)}
    taken |= {cell for name, promised in book.promises.items() if name != job.id for cell in _cells(promised)}
    free = not taken.intersection(_cells(gpus))
    if free and not book.drained and _may_start(book, job):
        tell("forgotten", f"record {record.seq}: {job.id} is not promised {gpus} any more, and nobody else is")


def _may_start(book: Book, job: LiveJob) -> bool:
    size = sum(len(indexes) for _, indexes in book.promises.get(job.id, ()))
    placed = job.id in book.on_gpus or job.id in book.suspended
    free = comes_back(job) if placed else not job.stop_why
    return job.id in book.active and free and not (job.held or size)
