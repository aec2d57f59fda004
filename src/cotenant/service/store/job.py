"""A live job and its attempts, and how both are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field, fields
from operator import attrgetter
from typing import Any

from cotenant.core.jobspec import ANY, FAILED, OK, JobSpec, dependency
from cotenant.core.lifecycle import FINAL, ON_GPUS, JobState
from cotenant.service.forecasts.foretold import ForecastRecord

Gpus = tuple[tuple[str, tuple[int, ...]], ...]
User = tuple[str, str]
"""Tenant and name: one name in two tenants is two users."""
Stretches = tuple[tuple[float, float], ...]  # from when to when, oldest first

# Rungs of the preemption ladder. CONTINUE is none of them: it is what undoes SUSPEND.
ASK, SUSPEND, STOP, KILL, CONTINUE = "ask", "suspend", "stop", "kill", "continue"
WITHDRAW = "withdraw"  # why a process is ended that was started ahead: its GPUs are not to be had, the job waits on

MOST_STRETCHES = 500  # of an attempt: in that many its account is exact

PAST = {JobState.SUCCEEDED: "succeeded", JobState.FAILED: "failed", JobState.CANCELLED: "been cancelled"}


@dataclass(slots=True)
class Attempt:
    """One try. Times are Unix seconds.

    It runs since `since_s` (None before its start, while suspended and after its end) and has run `ran_s` before
    that. Of what it did before `since_s`, `unsaved_s` is in no checkpoint: lost if its process is. Its GPUs are its own
    since `taken_s` (None while suspended and after its end), and were in the stretches of `had` before that.
    """

    number: int
    gpus: Gpus
    launched_s: float
    started_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    why: str = ""
    lost_s: float = 0.0
    stop_s: float = 0.0  # from the request to stop to the end of the process
    restore_s: float = 0.0  # what loading the checkpoint took, as the job said
    since_s: float | None = None
    ran_s: float = 0.0
    unsaved_s: float = 0.0
    suspensions: int = 0
    rung: str = ""  # the one that ended it, where the ladder did
    level: int = 0  # its steps are cut into 2**level sub-batches
    slice: tuple[int, int] = (0, 0)  # of its GPU: shape and column, as in `LaunchSpec`; (0, 0) for all of it
    ahead_s: float = 0.0  # when its process was started ahead of its GPUs; 0: it was not
    holds: bool = False  # it waits for its GPUs, or ended without having had them
    gpu_type: str = ""
    start_s: float = 0.0  # from its launch until its steps began, loading a checkpoint included; 0: not known
    taken_s: float | None = None
    had: Stretches = ()
    found_on: Gpus = ()  # the GPUs that it really has, where the backend chose them; else `gpus`
    end: str = ""  # how it ended: succeeded, failed, lost, cancelled, or why it was asked to leave

    @property
    def devices(self) -> Gpus:
        """The GPUs that it really has: those of the tables, or others of the same nodes that the backend chose."""
        return self.found_on or self.gpus

    @property
    def size(self) -> int:
        """How many GPUs."""
        return sum(len(indexes) for _, indexes in self.gpus)

    def active_s(self, now_s: float) -> float:
        """Seconds in which it has run, without those in which it was suspended."""
        return self.ran_s + (max(now_s - self.since_s, 0.0) if self.since_s is not None else 0.0)

    def lost_if_ended_s(self, now_s: float, checkpoint_s: float | None) -> float:
        """Work that is in no checkpoint, the last of which was written at `checkpoint_s`."""
        if self.since_s is None:
            return self.unsaved_s
        if checkpoint_s is not None and checkpoint_s > self.since_s:
            return max(now_s - checkpoint_s, 0.0)
        return self.unsaved_s + max(now_s - self.since_s, 0.0)

    def pause(self, at_s: float) -> None:
        """It runs no more, for a while or for ever."""
        self.ran_s, self.since_s = self.active_s(at_s), None

    def give_back(self, at_s: float) -> float:
        """It has its GPUs no more, for a while or for ever; GPU-seconds that it had them."""
        if self.taken_s is None:
            return 0.0
        stretch = self.taken_s, max(at_s, self.taken_s)
        self.had, self.taken_s = (*self.had, stretch), None
        if len(self.had) > MOST_STRETCHES:  # the two oldest become one that is as long
            (first_s, between_s), (since_s, until_s), *others = self.had
            self.had = ((since_s - (between_s - first_s), until_s), *others)
        return self.size * (stretch[1] - stretch[0])


@dataclass(slots=True)
class LiveJob:
    """A job. `stop_why` is set while it is asked to end: preempt, turn, hold, cancel, timeout, move, or resize.

    While it `holds`, `withdraw` ends its process and not its waiting.
    `rung` is the rung of the ladder that was taken last, at `rung_s`; empty when it was only asked.
    """

    id: str
    order: int
    spec: JobSpec
    tenant: str
    user: str
    submitted_s: float
    state: JobState = JobState.PENDING
    held: bool = False
    stop_why: str = ""
    stop_asked_s: float = 0.0
    ended_s: float | None = None
    message: str = ""
    failures: int = 0
    left_s: float | None = None  # what it said was left when it saved and stopped
    rung: str = ""
    rung_s: float = 0.0
    resize_to: int = 0  # GPUs that it shall have from its next attempt on; 0: as its spec says
    asked_gpus: int = 0  # what it was submitted with, once its size has changed; 0: as its spec says
    losses: int = 0  # how often its process was lost through no fault of its own
    progress: dict[str, Any] | None = None  # the last word of an attempt that has ended: steps and metrics
    aside: str = ""  # why no node that is there could hold it: it waits for others, and keeps nobody waiting
    foretold: dict[str, ForecastRecord] = field(default_factory=dict)  # what was written down of its end, by moment
    deadline_answer: dict[str, Any] | None = None  # what the policy has told of its deadline, as it was said
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Idempotency key of the newest attempt."""
        return f"{self.id}-{len(self.attempts)}"

    @property
    def last(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def size(self) -> int:
        """GPUs of its newest attempt; an elastic job may have others than it asked for."""
        return self.last.size if self.attempts else self.spec.gpus

    @property
    def holds(self) -> bool:
        """Whether it waits for GPUs with a process that was started ahead of them."""
        return self.state == JobState.PENDING and bool(self.attempts) and self.last.holds and self.last.ended_s is None

    @property
    def elastic(self) -> bool:
        """Whether it may change its number of GPUs."""
        return self.spec.max_gpus > 0

    @property
    def started_s(self) -> float | None:
        """First moment at which it ran."""
        return next((a.started_s for a in self.attempts if a.started_s is not None), None)

    @property
    def since_s(self) -> float:
        """From when on it has been on its GPUs, or has waited."""
        if self.state in ON_GPUS:
            return self.last.since_s or (self.rung_s if self.rung == CONTINUE else self.last.launched_s)
        if self.state == JobState.SUSPENDED:
            return self.rung_s
        return next((one.ended_s for one in reversed(self.attempts) if not one.holds), None) or self.submitted_s

    def attained_s(self, now_s: float) -> float:
        """Seconds in which it has held GPUs."""
        return sum(attempt.active_s(now_s) for attempt in self.attempts)

    def shift(self, by_s: float) -> None:
        """Move all its times."""
        self.submitted_s, self.stop_asked_s, self.rung_s = (
            at_s + by_s if at_s else at_s for at_s in (self.submitted_s, self.stop_asked_s, self.rung_s)
        )
        if told := self.deadline_answer:
            self.deadline_answer = {**told, **{at: told[at] + by_s for at in ("at_s", "by_s") if told[at]}}
        self.foretold = {at: told.shifted(by_s) for at, told in self.foretold.items()}
        for attempt in self.attempts:
            attempt.launched_s += by_s
            attempt.ahead_s += by_s if attempt.ahead_s else 0.0
            attempt.had = tuple((from_s + by_s, to_s + by_s) for from_s, to_s in attempt.had)
            for name in ("started_s", "since_s", "ended_s", "taken_s"):
                if (at_s := getattr(attempt, name)) is not None:
                    setattr(attempt, name, at_s + by_s)

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.state in FINAL


def waits_for(job: LiveJob, members: Callable[[str], Iterable[LiveJob]]) -> str:
    """The first job that keeps this one waiting, if any; those long forgotten count as done."""
    for item in job.spec.after:
        how, name = dependency(item)
        good = JobState.SUCCEEDED if how == OK else None
        for other in members(name):
            if not other.finished or (good is not None and other.state != good):
                return other.id
    return ""


def never(job: LiveJob, members: Callable[[str], Iterable[LiveJob]]) -> str:
    """Why a job can never start that comes after others; empty where it still can."""
    for item in job.spec.after:
        how, name = dependency(item)
        others = list(members(name)) if how != ANY else []
        bad = next((other for other in others if other.finished and other.state != JobState.SUCCEEDED), None)
        if how == OK and bad is not None:
            return f"job {bad.id}, which it comes after, has {PAST[bad.state]}"
        if how == FAILED and others and bad is None and all(other.finished for other in others):
            return f"job {name}, after whose failure it was to run, has succeeded"
    return ""


def gpu_seconds(jobs: Iterable[LiveJob]) -> dict[str, float]:
    """GPU-seconds of each tenant, without the stretches that are not over."""
    found: dict[str, float] = {}
    for job in jobs:
        for attempt in job.attempts:
            had_s = sum(to_s - from_s for from_s, to_s in attempt.had)
            found[job.tenant] = found.get(job.tenant, 0.0) + attempt.size * had_s
    return found


_SCALARS = [item.name for item in fields(LiveJob) if item.name not in ("spec", "attempts", "foretold")]
_VALUES = attrgetter(*(item.name for item in fields(LiveJob)))
_ATTEMPT_NAMES = [item.name for item in fields(Attempt)]
_ATTEMPT = attrgetter(*_ATTEMPT_NAMES)
_NO_ATTEMPTS: list[Attempt] = []


def picture(job: LiveJob) -> LiveJob:
    """The job as it is now, for readers: whatever happens to the job, and nobody changes a picture.

    Of its attempts only the last one can change; specs never do.
    """
    made = LiveJob(*_VALUES(job))
    made.attempts = [*job.attempts[:-1], Attempt(*_ATTEMPT(job.last))] if job.attempts else _NO_ATTEMPTS
    return made


def frozen(job: LiveJob) -> dict[str, Any]:
    """A job as plain data, for a snapshot."""
    row = {name: getattr(job, name) for name in _SCALARS}
    if job.foretold:
        row["foretold"] = {at: astuple(told) for at, told in job.foretold.items()}
    attempts = [dict(zip(_ATTEMPT_NAMES, _ATTEMPT(attempt), strict=True)) for attempt in job.attempts]
    return {**row, "spec": job.spec.as_dict(), "attempts": attempts}


def thawed(row: dict[str, Any]) -> LiveJob:
    """The inverse of `frozen`, also for snapshots of versions that could not suspend."""
    foretold = {at: ForecastRecord(*told) for at, told in row.get("foretold", {}).items()}
    row = {**row, "spec": JobSpec.from_dict(row["spec"]), "state": JobState(row["state"]), "foretold": foretold}
    return LiveJob(**{**row, "attempts": [_thawed_attempt(item) for item in row["attempts"]]})


def _thawed_attempt(item: dict[str, Any]) -> Attempt:
    had = tuple((from_s, to_s) for from_s, to_s in item.get("had", ()))
    found_on = read_gpus(item.get("found_on", ()))
    attempt = Attempt(**{**item, "gpus": read_gpus(item["gpus"]), "had": had, "found_on": found_on})
    if "since_s" not in item and attempt.started_s is not None:
        attempt.since_s = attempt.started_s
        if attempt.ended_s is not None:
            attempt.pause(attempt.ended_s)
    if "had" not in item and not attempt.holds:
        _guess_stretches(attempt)
    return attempt


def _guess_stretches(attempt: Attempt) -> None:
    """When an attempt had its GPUs, of which an older version wrote only how long it ran: exact if never suspended."""
    first_s, ended_s = attempt.launched_s, attempt.ended_s
    if attempt.suspensions:
        attempt.had, attempt.taken_s = ((first_s, first_s + attempt.ran_s),), attempt.since_s
    elif ended_s is None:
        attempt.taken_s = first_s
    elif attempt.started_s is not None:
        attempt.had = ((first_s, max(first_s, ended_s)),)


def cells(gpus: Gpus) -> Iterator[tuple[str, int]]:
    """GPUs one by one: node and index."""
    return ((node, index) for node, indexes in gpus for index in indexes)


def read_gpus(data: Iterable[tuple[str, Iterable[int]]]) -> Gpus:
    """GPUs after a way through JSON."""
    return tuple((node, tuple(indexes)) for node, indexes in data)
