"""Which jobs people mean: by id, array, element, range or name, and by filters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Protocol

from cotenant.core.jobspec import indexes_of
from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.service.facade import Caller, NotFound, Which
from cotenant.service.store.job import LiveJob

_ELEMENT = re.compile(r"([0-9]{1,18})[._](?:([0-9]{1,9})|\[([0-9,-]{1,2000})\])")


class JobIndex(Protocol):
    """Jobs by id, and the elements of arrays: a book, or a view of it."""

    jobs: dict[str, LiveJob]

    def members(self, job: str) -> Sequence[LiveJob]:
        """The job of this id, or all elements of the array of this id."""


def named(book: JobIndex, caller: Caller, text: str) -> list[LiveJob]:
    """The jobs that a person means by `12`, by an array `7`, `7.3`, `7_3`, `7_[1-4,9]` or a name (the newest so named).

    Raises `NotFound` where there are none that the caller may see.
    """
    found = _by_id(book, text) or _by_name(book, caller, text)
    seen = [job for job in found if caller.sees(job.tenant)]
    if not seen:
        raise NotFound(f"there is no job '{text}'")
    return seen


def one(book: JobIndex, caller: Caller, text: str) -> LiveJob:
    """The one job that is meant; of an array one element has to be named."""
    found = named(book, caller, text)
    if len(found) > 1:
        raise NotFound(f"'{text}' is an array of {len(found)} jobs: name one of them, e.g. {found[0].id}")
    return found[0]


def _by_id(book: JobIndex, text: str) -> Sequence[LiveJob]:
    element = _ELEMENT.fullmatch(text)
    if element is None:
        return book.members(text)
    indexes = indexes_of(element[2] or element[3]) or []
    names = dict.fromkeys(f"{element[1]}.{index}" for index in indexes)
    return [book.jobs[name] for name in names if name in book.jobs]


def _by_name(book: JobIndex, caller: Caller, text: str) -> Sequence[LiveJob]:
    for job in reversed(book.jobs.values()):
        if job.spec.name == text and caller.sees(job.tenant):
            return book.members(job.id.partition(".")[0])
    return ()


def chosen(book: JobIndex, caller: Caller, which: Which) -> Iterator[LiveJob]:
    """All that match, in the order of their submission; those named by id have to exist."""
    jobs: Iterator[LiveJob] = iter(book.jobs.values())
    if which.jobs:
        found = {job.id: job for text in which.jobs for job in named(book, caller, text)}
        jobs = iter(sorted(found.values(), key=lambda job: job.order))
    return (job for job in jobs if caller.sees(job.tenant) and matches(job, which))


def matches(job: LiveJob, which: Which) -> bool:
    """Whether a job passes all filters."""
    return (
        (not which.states or job.state in which.states)
        and (not which.names or job.spec.name in which.names)
        and (not which.users or job.user in which.users)
        and (not which.tenants or job.tenant in which.tenants)
    )


def first(jobs: Sequence[LiveJob], limit: int) -> list[LiveJob]:
    """Of too many those that matter most, in order: on GPUs, suspended, next in line; then the newest of the ended."""
    if len(jobs) <= limit:
        return list(jobs)
    return sorted(nsmallest(limit, jobs, key=_rank), key=lambda job: job.order)


def _rank(job: LiveJob) -> tuple[int, int]:
    if job.finished:
        return 3, -job.order
    return 0 if job.state in ON_GPUS else 1 if job.state == JobState.SUSPENDED else 2, job.order
