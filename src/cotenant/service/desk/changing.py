"""What people do to jobs: to one, or to all that they mean, in one write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cotenant.core.errors import CotenantError, InputError, unknown
from cotenant.core.jobspec import changed_fields
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Entry
from cotenant.service.desk import selecting
from cotenant.service.desk.machines import Machines
from cotenant.service.facade import Caller, Conflict, Role, Which
from cotenant.service.store.job import KILL, PAST, LiveJob
from cotenant.service.store.store import Store

SETTABLE = ("name", "priority", "deadline", "max_runtime", "retries", "expected", "gpus")

Make = Callable[[LiveJob], list[Entry]]
"""What to journal of a job that has not ended, for something that is asked of it."""


def cancel(force: bool = False) -> Make:
    """It ends for good; with `force` by SIGKILL at once."""

    def make(job: LiveJob) -> list[Entry]:
        entries = [] if job.stop_why == "cancel" else [Entry("stop", job.id, {"why": "cancel"})]
        if force and job.state in ON_GPUS and job.rung != KILL:
            entries.append(Entry("rung", job.id, {"rung": KILL}))
        return entries

    return make


def hold(job: LiveJob) -> list[Entry]:
    """It does not start; one that runs makes room."""
    return [] if job.held else [Entry("hold", job.id)]


def resume(job: LiveJob) -> list[Entry]:
    """It may start."""
    return [Entry("resume", job.id)] if job.held else []


def requeue(job: LiveJob) -> list[Entry]:
    """It stops and waits again."""
    if job.state == JobState.PENDING:
        raise Conflict(f"job {job.id} waits already")
    if job.stop_why:
        raise Conflict(f"job {job.id} is stopping already")
    return [Entry("stop", job.id, {"why": "requeue"})]


def settings(changes: Mapping[str, Any], where: str, check: Callable[[LiveJob, int], None]) -> Make:
    """Fields of a job that has not ended; `check` is asked whether it may have a priority."""
    for key in changes:
        if key not in SETTABLE:
            raise unknown("field to set", key, SETTABLE)
    values = changed_fields(changes, where)
    gpus = values.pop("gpus", None)
    values.pop("gpu_type", None)

    def make(job: LiveJob) -> list[Entry]:
        if "priority" in values:
            check(job, values["priority"])
        entries = [Entry("set", job.id, values)] if values else []
        if gpus is not None:
            _check_size(job, gpus)
            entries.append(Entry("resize", job.id, {"gpus": gpus}))
        return entries

    return make


def _check_size(job: LiveJob, gpus: int) -> None:
    """Only elastic jobs change their size, and only within the limits that they were submitted with."""
    low, high = max(job.spec.min_gpus, 1), job.spec.max_gpus
    if not high:
        raise InputError(f"job {job.id} is not elastic: submit it with elastic: {{min_gpus: 1, max_gpus: 4}}")
    if not low <= gpus <= high:
        raise InputError(f"job {job.id} takes {low} to {high} GPUs, not {gpus}")


def check_priority(caller: Caller, priority: int, most: float) -> None:
    """Raise where somebody asks to go before others who may not."""
    if priority > most and caller.role is not Role.ADMIN:
        raise InputError(f"field 'priority' is {priority}: your token may ask for at most {most:g}, an admin for more")


def check_weight(caller: Caller, weight: float) -> None:
    """Raise where somebody asks for longer turns than others who may not."""
    if weight > 1 and caller.role is not Role.ADMIN:
        raise InputError(f"field 'weight' is {weight:g}: your token may ask for at most 1, an admin for more")


class JobChanges:
    """Changes the book, and has the scheduler look. Nothing is half done: all entries are one write."""

    def __init__(self, store: Store, machines: Machines) -> None:
        self._store, self._machines = store, machines

    def one(self, caller: Caller, text: str, make: Make, but: JobState | None = None) -> None:
        """Do it to one job; `but`: having ended like this is as good."""
        caller.must_be(Role.USER)
        with self._store.lock:
            entries = _of(selecting.one(self._store.book, caller, text), make, but)
            self._write(entries, but)
        self._machines.wake()

    def _write(self, entries: Sequence[Entry], but: JobState | None) -> None:
        """People can cancel whatever state the disk is in: the job may be what fills it."""
        if entries:
            (self._store.cancel if but == JobState.CANCELLED else self._store.write)(entries)

    def many(self, caller: Caller, which: Which, make: Make, but: JobState | None = None) -> dict[str, str]:
        """Do it to all that are meant. One that refuses does not keep the others from it: why, by id, or empty."""
        caller.must_be(Role.USER)
        entries: list[Entry] = []
        outcomes: dict[str, str] = {}
        with self._store.lock:
            for text in which.jobs or ("",):
                try:
                    jobs = self._meant(caller, which, text)
                except CotenantError as error:
                    outcomes[text] = str(error)
                    continue
                for job in jobs:
                    if job.id in outcomes:
                        continue
                    try:
                        entries += _of(job, make, but)
                        outcomes[job.id] = ""
                    except CotenantError as error:
                        outcomes[job.id] = str(error)
            self._write(entries, but)
        self._machines.wake()
        return outcomes

    def _meant(self, caller: Caller, which: Which, text: str) -> Sequence[LiveJob]:
        """The jobs of one text that pass the filters. Those who have ended count only where one is named by its id."""
        book = self._store.book
        jobs = selecting.named(book, caller, text) if text else list(book.active.values())
        meant = [job for job in jobs if caller.sees(job.tenant) and selecting.matches(job, which)]
        if len(jobs) == 1 and text:
            return meant
        alive = [job for job in meant if not job.finished]
        if text and not alive:
            raise Conflict(f"all jobs of '{text}' have ended")
        return alive


def _of(job: LiveJob, make: Make, but: JobState | None) -> list[Entry]:
    if not job.finished:
        return make(job)
    if job.state != but:
        raise Conflict(f"job {job.id} has {PAST[job.state]}")
    return []
