"""The account of one job: when it had how many GPUs, how long it waited, what failed and what was lost.

It is made of the job itself while the book has it, and of a row of the archive afterwards; both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cotenant.core.lifecycle import FINAL, JobState
from cotenant.service.store.job import Attempt, Gpus, LiveJob, Stretches

FAILURES = ("failed", "lost")
SUSPENDED = "suspended"  # no end: it stands still
STOPS = ("preempt", "turn", "split", "move", "window", "health", "resize", SUSPENDED)  # why it had a run leave


class RunAccount(NamedTuple):
    """One attempt that had GPUs, in several stretches if it was suspended.

    `lost_s`: how much of its end is in no checkpoint; `end`, `why`, `stop_s`: as in `Attempt`. `places` are its GPUs
    and `start_s` its start-up; accounts of before these were kept have none.
    """

    gpus: int
    had: Stretches
    lost_s: float = 0.0
    end: str = ""
    places: Gpus = ()
    start_s: float = 0.0
    stop_s: float = 0.0
    why: str = ""

    def stops(self) -> Iterator[float]:
        """When the scheduler took its GPUs away."""
        yield from (to_s for _, to_s in (self.had if self.end in STOPS else self.had[:-1]))

    def lost(self) -> Iterator[tuple[float, float]]:
        """The stretches whose work was lost, newest first. What somebody cancelled is not lost."""
        left_s = 0.0 if self.end == JobState.CANCELLED else self.lost_s
        for from_s, to_s in reversed(self.had):
            if left_s <= 0.0:
                return
            since_s = max(from_s, to_s - left_s)
            left_s -= to_s - since_s
            yield since_s, to_s


class JobAccount(NamedTuple):
    """One job. `state`: its last, or the present one."""

    id: str
    tenant: str
    user: str
    model: str
    state: str
    submitted_s: float
    ended_s: float | None
    runs: tuple[RunAccount, ...]
    name: str = ""

    @property
    def began_s(self) -> float | None:
        """When it first had GPUs."""
        return self.runs[0].had[0][0] if self.runs else None

    @classmethod
    def read(cls, row: list[Any]) -> JobAccount:
        """An account after a way through JSON, where it is a plain list."""
        job, tenant, user, model, state, submitted_s, ended_s, runs, *more = row
        return cls(job, tenant, user, model, state, submitted_s, ended_s, tuple(map(_read_run, runs)), *more)


def _read_run(row: list[Any]) -> RunAccount:
    gpus, had, lost_s, end, *more = row
    places = tuple([(node, tuple(indexes)) for node, indexes in more[0]]) if more else ()
    return RunAccount(gpus, tuple([(a, b) for a, b in had]), lost_s, end, places, *more[1:])


def account_of(job: LiveJob, now_s: float) -> JobAccount:
    """The account of a job; runs that go on are taken to end now."""
    last = len(job.attempts) - 1
    runs = tuple(
        RunAccount(
            attempt.size,
            had,
            attempt.lost_s,
            attempt.end or _end(job, attempt, number == last),
            attempt.gpus,
            start_up_s(attempt, now_s),
            attempt.stop_s,
            attempt.why,
        )
        for number, attempt in enumerate(job.attempts)
        if (had := stretches(attempt, now_s))
    )
    state, model = str(job.state), job.spec.model
    return JobAccount(job.id, job.tenant, job.user, model, state, job.submitted_s, job.ended_s, runs, job.spec.name)


def start_up_s(attempt: Attempt, now_s: float) -> float:
    """From its launch until its steps began, or its process, where nobody has told of steps."""
    return attempt.start_s or max((attempt.started_s or now_s) - attempt.launched_s, 0.0)


def stretches(attempt: Attempt, now_s: float) -> Stretches:
    """When an attempt had its GPUs, up to now."""
    if attempt.taken_s is None:
        return attempt.had
    return (*attempt.had, (attempt.taken_s, max(now_s, attempt.taken_s)))


def _end(job: LiveJob, attempt: Attempt, last: bool) -> str:
    """How an attempt ended of which it is not written down: it has not, or an older version did not."""
    if attempt.ended_s is None:
        return SUSPENDED if attempt.taken_s is None else ""
    return str(job.state) if last and job.state in FINAL else "stopped"
