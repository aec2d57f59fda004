"""Everything the service knows of its jobs, as the sum of journal records. No I/O: records in, state out.

`Book.apply` is the only place where state changes, whether a record was just written or is replayed, so a
service that crashed and one that did not end up with the same book.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, ON_GPUS, JobState, move
from cotenant.journal import Record

Gpus = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(slots=True)
class Attempt:
    """One try. Times are Unix seconds."""

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


@dataclass(slots=True)
class LiveJob:
    """A job. `stop_why` is set while it is asked to end: preempt, hold, cancel or timeout."""

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
    def started_s(self) -> float | None:
        """First moment at which it ran."""
        return next((a.started_s for a in self.attempts if a.started_s is not None), None)

    def attained_s(self, now_s: float) -> float:
        """Seconds in which it has held GPUs."""
        return sum((a.ended_s or now_s) - a.started_s for a in self.attempts if a.started_s is not None)

    @property
    def finished(self) -> bool:
        """Whether it has come to its end."""
        return self.state in FINAL


@dataclass(slots=True)
class Mean:
    """The mean of what was measured so far."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.count, self.total = self.count + 1, self.total + value

    @property
    def value(self) -> float:
        """0 before there is any."""
        return self.total / self.count if self.count else 0.0


class Book:
    """Jobs, tokens, policy and drained nodes.

    `active`, `on_gpus`, `chained` (pending, with predecessors), `held` (pending) and `arrays` are indexes into
    `jobs`, so that nobody has to walk a long queue; `touched` collects jobs that changed, for whoever mirrors them.
    """

    def __init__(self, policy: str = "fifo") -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.active: dict[str, LiveJob] = {}
        self.on_gpus: dict[str, LiveJob] = {}
        self.chained: dict[str, LiveJob] = {}
        self.held: dict[str, LiveJob] = {}
        self.arrays: dict[str, list[str]] = {}
        self.touched: set[str] = set()
        self.stop_cost, self.restore_cost = Mean(), Mean()
        self.tokens: dict[str, dict[str, Any]] = {}
        self.drained: set[str] = set()
        self.policy = policy
        self.next_id = 1
        self.seq = 0

    def apply(self, record: Record) -> None:
        """Take one record in. Records of jobs long forgotten are passed over."""
        self.seq = record.seq
        handler = getattr(self, f"_on_{record.kind}", None)
        if handler is not None:
            handler(record)
        job = self.jobs.get(record.job)
        if job is not None:
            self._index(job)

    def _index(self, job: LiveJob) -> None:
        """Bring the indexes in line with the state of a job."""
        self.touched.add(job.id)
        _keep(self.active, job, job.state not in FINAL)
        _keep(self.on_gpus, job, job.state in ON_GPUS)
        _keep(self.held, job, job.state == JobState.PENDING and job.held)
        _keep(self.chained, job, job.state == JobState.PENDING and bool(job.spec.after))

    def _enter(self, job: LiveJob) -> None:
        self.jobs[job.id] = job
        array, dot, _ = job.id.partition(".")
        if dot:
            self.arrays.setdefault(array, []).append(job.id)

    def _on_submit(self, record: Record) -> None:
        data = record.data
        job = LiveJob(
            id=record.job, order=record.seq, spec=read_spec(data["spec"]), tenant=data["tenant"],
            user=data["user"], submitted_s=_time(record),
        )  # fmt: skip
        self._enter(job)
        self.next_id = max(self.next_id, int(job.id.partition(".")[0]) + 1)

    def _on_hold(self, record: Record) -> None:
        self.jobs[record.job].held = True

    def _on_resume(self, record: Record) -> None:
        self.jobs[record.job].held = False

    def _on_set(self, record: Record) -> None:
        job = self.jobs[record.job]
        changes = {key: value for key, value in record.data.items() if key != WRITTEN}
        job.spec = read_spec({**plain_spec(job.spec), **changes})

    def _on_launch(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.state = move(job.id, job.state, JobState.STARTING)
        gpus = tuple((node, tuple(indexes)) for node, indexes in record.data["gpus"])
        job.attempts.append(Attempt(len(job.attempts) + 1, gpus, _time(record)))

    def _on_started(self, record: Record) -> None:
        job = self.jobs[record.job]
        if job.state == JobState.STARTING:
            job.state = JobState.RUNNING
        if job.last.started_s is None:
            job.last.started_s = record.data.get("at_s", _time(record))

    def _on_stop(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.stop_why, job.stop_asked_s = record.data["why"], _time(record)
        if job.state == JobState.PENDING:
            self._end(job, JobState.CANCELLED, _time(record), "cancelled before it started")
        elif job.state != JobState.STOPPING:
            job.state = move(job.id, job.state, JobState.STOPPING)

    def _on_exit(self, record: Record) -> None:
        job, data = self.jobs[record.job], record.data
        attempt = job.last
        attempt.ended_s, attempt.why = data.get("at_s", _time(record)), data["why"]
        attempt.exit_code, attempt.signal = data.get("code"), data.get("signal")
        attempt.lost_s = data.get("lost_s", 0.0)
        attempt.stop_s, attempt.restore_s = data.get("stop_s", 0.0), data.get("restore_s", 0.0)
        if "stop_s" in data:
            self.stop_cost.add(attempt.stop_s)
        if "restore_s" in data:
            self.restore_cost.add(attempt.restore_s)
        job.failures += int(data.get("failure", False))
        job.stop_why = ""
        job.left_s = data.get("left_s")
        to = JobState(data["to"])
        if to in FINAL:
            self._end(job, to, _time(record), data["why"])
        else:
            job.state = move(job.id, job.state, to)
            job.message = data["why"]

    def _on_reject(self, record: Record) -> None:
        self._end(self.jobs[record.job], JobState.FAILED, _time(record), record.data["why"])

    def _end(self, job: LiveJob, state: JobState, time_s: float, message: str) -> None:
        job.state = move(job.id, job.state, state)
        job.ended_s, job.message = time_s, message

    def _on_forget(self, record: Record) -> None:
        for job in record.data["jobs"]:
            self.jobs.pop(job, None)
            array, dot, _ = job.partition(".")
            members = self.arrays.get(array, []) if dot else []
            if job in members:
                members.remove(job)
            if dot and not members:
                self.arrays.pop(array, None)

    def _on_policy(self, record: Record) -> None:
        self.policy = record.data["policy"]

    def _on_drain(self, record: Record) -> None:
        (self.drained.discard if record.data["undo"] else self.drained.add)(record.data["node"])

    def _on_token(self, record: Record) -> None:
        self.tokens[record.data["id"]] = {**record.data, "created_s": _time(record), "revoked": False}

    def _on_revoke(self, record: Record) -> None:
        self.tokens[record.data["id"]]["revoked"] = True

    def members(self, job: str) -> list[LiveJob]:
        """The job of this id, or all elements of the array of this id; those forgotten are left out."""
        found = self.jobs.get(job)
        return [found] if found is not None else [self.jobs[name] for name in self.arrays.get(job, ())]

    def preemption_cost_s(self, unknown_s: float) -> float:
        """Seconds that stopping and restoring a job took on average; `unknown_s` before any was measured."""
        if not self.stop_cost.count and not self.restore_cost.count:
            return unknown_s
        return self.stop_cost.value + self.restore_cost.value

    def freeze(self) -> bytes:
        """The whole book as bytes, for a snapshot."""
        jobs = [_frozen(job) for job in self.jobs.values()]
        costs = [[mean.count, mean.total] for mean in (self.stop_cost, self.restore_cost)]
        data = {
            "jobs": jobs, "tokens": self.tokens, "drained": sorted(self.drained), "policy": self.policy,
            "next_id": self.next_id, "seq": self.seq, "costs": costs,
        }  # fmt: skip
        return json.dumps(data).encode()

    @classmethod
    def thaw(cls, state: bytes) -> Book:
        """The inverse of `freeze`."""
        data = json.loads(state)
        book = cls(data["policy"])
        for row in data["jobs"]:
            attempts = [
                Attempt(**{**item, "gpus": tuple((node, tuple(indexes)) for node, indexes in item["gpus"])})
                for item in row.pop("attempts")
            ]
            row["spec"], row["state"] = read_spec(row["spec"]), JobState(row["state"])
            job = LiveJob(**row, attempts=attempts)
            book._enter(job)
            book._index(job)
        book.tokens, book.drained = data["tokens"], set(data["drained"])
        book.next_id, book.seq = data["next_id"], data["seq"]
        book.stop_cost, book.restore_cost = (Mean(*pair) for pair in data.get("costs", ([0, 0.0], [0, 0.0])))
        return book


WRITTEN = "written_s"  # the service's own clock in every record, so that a replay sees the very same times
_SCALARS = [item.name for item in fields(LiveJob) if item.name not in ("spec", "attempts")]
_SPEC_FIELDS = [(item.name, getattr(JobSpec(run=""), item.name)) for item in fields(JobSpec)]
_SPEC_NAMES = frozenset(name for name, _ in _SPEC_FIELDS)


def _time(record: Record) -> float:
    return float(record.data.get(WRITTEN, record.time_s))


def _keep(index: dict[str, LiveJob], job: LiveJob, wanted: bool) -> None:
    if wanted:
        index[job.id] = job
    else:
        index.pop(job.id, None)


def plain_spec(spec: JobSpec) -> dict[str, Any]:
    """A spec for the journal: `run` and what differs from the defaults, without deep copies."""
    values = {name: getattr(spec, name) for name, _ in _SPEC_FIELDS}
    return {name: values[name] for name, default in _SPEC_FIELDS if values[name] != default or name == "run"}


def read_spec(data: dict[str, Any]) -> JobSpec:
    """The inverse of `plain_spec`. Fields of a newer version are passed over."""
    values = {name: value for name, value in data.items() if name in _SPEC_NAMES}
    for name in ("array", "after"):
        if name in values:
            values[name] = tuple(values[name])
    return JobSpec(**values)


def _frozen(job: LiveJob) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in _SCALARS}
    return {**row, "spec": plain_spec(job.spec), "attempts": [asdict(attempt) for attempt in job.attempts]}
