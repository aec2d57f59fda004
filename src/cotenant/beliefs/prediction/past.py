"""What learns durations while jobs come and end, in a log that is replayed or in the service: one way for both.

A learner is asked when a job is submitted and told when it has ended. What it knows in between is what had *ended* by
then: `replay` gives a log in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cotenant.beliefs.duration import DurationGuess
from cotenant.beliefs.prediction.names import NameKinds
from cotenant.core.workload import Floats, Workload


@dataclass(frozen=True, slots=True)
class AskedJob:
    """What is known of a job before it runs. `name`: whatever tells kinds of jobs apart; empty where nothing does."""

    user: str
    tenant: str
    name: str
    gpus: int
    submit_s: float


class Learner(Protocol):
    """Believes durations. Jobs are told apart by `job`, any number of the caller's own."""

    def guess(self, asked: AskedJob) -> DurationGuess:
        """How long such a job would last, as far as is known now."""

    def submit(self, job: int, asked: AskedJob) -> DurationGuess:
        """The same of a job that is submitted now; what was said is compared with what comes."""

    def end(self, job: int, asked: AskedJob, lasted_s: float) -> None:
        """It has ended after so long; it was submitted before, or is told of for the first time."""


def known_since(work: Workload) -> Floats:
    """When each job's duration became known, s: the end in `extra["ended_s"]` where a workload has it, else
    submission plus duration, as if it had never waited.
    """
    ended = work.extra.get("ended_s")
    return work.submit_s + work.duration_s if ended is None else ended.astype(np.float64)


def replay(submit_s: Floats, ended_s: Floats) -> Iterator[tuple[bool, int]]:
    """(True, row) when a job ends, (False, row) when one is submitted, in the order in which this is known.

    A job that ends at the very moment of a submission is not yet known to it. Rows are in order of submission.
    """
    order = np.argsort(ended_s, kind="stable")
    ends, rows = ended_s[order].tolist(), order.tolist()
    at = 0
    for row, now in enumerate(submit_s.tolist()):
        while at < len(ends) and ends[at] < now:
            yield True, rows[at]
            at += 1
        yield False, row


def asked_of(work: Workload) -> list[AskedJob]:
    """The jobs of a log as a learner sees them; the name of a job is its `model` column."""
    users, tenants, names = work.user, work.tenant, work.model
    columns = (users.code, tenants.code, names.code, work.gpus, work.submit_s)
    return [
        AskedJob(users.names[user], tenants.names[tenant], names.names[name], gpus, submit_s)
        for user, tenant, name, gpus, submit_s in zip(*(column.tolist() for column in columns), strict=True)
    ]


def believed(work: Workload, learner: Learner) -> Floats:
    """What a learner says of every job of a log at its submission, s."""
    jobs, durations = asked_of(work), work.duration_s.tolist()
    belief = np.empty(len(work))
    for ended, row in replay(work.submit_s, known_since(work)):
        if ended:
            learner.end(row, jobs[row], durations[row])
        else:
            belief[row] = learner.submit(row, jobs[row]).seconds
    return belief


class Kinds:
    """Kinds of names by name, each looked up once."""

    def __init__(self) -> None:
        self._kinds, self._of = NameKinds(), dict[str, int]()

    def of(self, name: str) -> int:
        """The kind of a name."""
        if name not in self._of:
            self._of[name] = self._kinds.kind(name)
        return self._of[name]
