"""Everything the service knows of its jobs, as the sum of journal records. No I/O: records in, state out.

`Book.apply` is the only place where state changes, whether a record was just written or is replayed, so a
service that crashed and one that did not end up with the same book.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, JobState, move
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


class Book:
    """Jobs, tokens, policy and drained nodes."""

    def __init__(self, policy: str = "fifo") -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.active: dict[str, LiveJob] = {}
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

    def _on_submit(self, record: Record) -> None:
        data = record.data
        job = LiveJob(
            id=record.job, order=record.seq, spec=JobSpec.from_dict(data["spec"]), tenant=data["tenant"],
            user=data["user"], submitted_s=record.time_s,
        )  # fmt: skip
        self.jobs[job.id] = self.active[job.id] = job
        self.next_id = max(self.next_id, int(job.id.split(".")[0]) + 1)

    def _on_hold(self, record: Record) -> None:
        self.jobs[record.job].held = True

    def _on_resume(self, record: Record) -> None:
        self.jobs[record.job].held = False

    def _on_set(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.spec = JobSpec.from_dict({**job.spec.as_dict(), "run": job.spec.run, **record.data})

    def _on_launch(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.state = move(job.id, job.state, JobState.STARTING)
        gpus = tuple((node, tuple(indexes)) for node, indexes in record.data["gpus"])
        job.attempts.append(Attempt(len(job.attempts) + 1, gpus, record.time_s))

    def _on_started(self, record: Record) -> None:
        job = self.jobs[record.job]
        if job.state == JobState.STARTING:
            job.state = JobState.RUNNING
        if job.last.started_s is None:
            job.last.started_s = record.data.get("at_s", record.time_s)

    def _on_stop(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.stop_why, job.stop_asked_s = record.data["why"], record.time_s
        if job.state == JobState.PENDING:
            self._end(job, JobState.CANCELLED, record.time_s, "cancelled before it started")
        elif job.state != JobState.STOPPING:
            job.state = move(job.id, job.state, JobState.STOPPING)

    def _on_exit(self, record: Record) -> None:
        job, data = self.jobs[record.job], record.data
        attempt = job.last
        attempt.ended_s, attempt.why = data.get("at_s", record.time_s), data["why"]
        attempt.exit_code, attempt.signal = data.get("code"), data.get("signal")
        attempt.lost_s = data.get("lost_s", 0.0)
        job.failures += int(data.get("failure", False))
        job.stop_why = ""
        to = JobState(data["to"])
        if to in FINAL:
            self._end(job, to, record.time_s, data["why"])
        else:
            job.state = move(job.id, job.state, to)
            job.message = data["why"]

    def _on_reject(self, record: Record) -> None:
        self._end(self.jobs[record.job], JobState.FAILED, record.time_s, record.data["why"])

    def _end(self, job: LiveJob, state: JobState, time_s: float, message: str) -> None:
        job.state = move(job.id, job.state, state)
        job.ended_s, job.message = time_s, message
        self.active.pop(job.id, None)

    def _on_forget(self, record: Record) -> None:
        for job in record.data["jobs"]:
            self.jobs.pop(job, None)

    def _on_policy(self, record: Record) -> None:
        self.policy = record.data["policy"]

    def _on_drain(self, record: Record) -> None:
        (self.drained.discard if record.data["undo"] else self.drained.add)(record.data["node"])

    def _on_token(self, record: Record) -> None:
        self.tokens[record.data["id"]] = {**record.data, "created_s": record.time_s, "revoked": False}

    def _on_revoke(self, record: Record) -> None:
        self.tokens[record.data["id"]]["revoked"] = True

    def freeze(self) -> bytes:
        """The whole book as bytes, for a snapshot."""
        jobs = [{**asdict(job), "spec": {**job.spec.as_dict(), "run": job.spec.run}} for job in self.jobs.values()]
        data = {
            "jobs": jobs, "tokens": self.tokens, "drained": sorted(self.drained), "policy": self.policy,
            "next_id": self.next_id, "seq": self.seq,
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
            row["spec"], row["state"] = JobSpec.from_dict(row["spec"]), JobState(row["state"])
            job = LiveJob(**row, attempts=attempts)
            book.jobs[job.id] = job
            if not job.finished:
                book.active[job.id] = job
        book.tokens, book.drained = data["tokens"], set(data["drained"])
        book.next_id, book.seq = data["next_id"], data["seq"]
        return book
