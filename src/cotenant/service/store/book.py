"""Everything the service knows of its jobs, as the sum of journal records. No I/O: records in, state out.

`Book.apply` is the only place where state changes, whether a record was just written or is replayed, so a
service that crashed and one that did not end up with the same book.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from cotenant.core.lifecycle import FINAL, ON_GPUS, JobState, move
from cotenant.journal import Record
from cotenant.service.store.costs import Costs, before_rungs
from cotenant.service.store.idempotency import Answer, Answers, unpacked
from cotenant.service.store.job import (
    ASK,
    CONTINUE,
    STOP,
    SUSPEND,
    Attempt,
    Gpus,
    LiveJob,
    frozen,
    plain_spec,
    read_spec,
    thawed,
)


class Book:
    """Jobs, tokens, policy and drained nodes.

    `active`, `on_gpus`, `suspended`, `chained` (pending, with predecessors), `held` (not on GPUs) and `arrays` are
    indexes into `jobs`, so that nobody has to walk a long queue; `touched` collects jobs that changed, for whoever
    mirrors them. `shared_gpus` counts the GPUs that several jobs have.
    """

    def __init__(self, policy: str = "fifo") -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.active: dict[str, LiveJob] = {}
        self.on_gpus: dict[str, LiveJob] = {}
        self.suspended: dict[str, LiveJob] = {}
        self.chained: dict[str, LiveJob] = {}
        self.held: dict[str, LiveJob] = {}
        self.arrays: dict[str, list[str]] = {}
        self.touched: set[str] = set()
        self.shared_gpus = 0
        self._users: Counter[tuple[str, int]] = Counter()  # jobs on each GPU
        self.promises: dict[str, Gpus] = {}
        self.memory: dict[str, Any] = {}
        self.costs, self.answers = Costs(), Answers()
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
        if (job.state in ON_GPUS) != (job.id in self.on_gpus):
            self._count_users(job, 1 if job.state in ON_GPUS else -1)
        _keep(self.on_gpus, job, job.state in ON_GPUS)
        _keep(self.suspended, job, job.state == JobState.SUSPENDED)
        _keep(self.held, job, job.state in (JobState.PENDING, JobState.SUSPENDED) and job.held)
        _keep(self.chained, job, job.state == JobState.PENDING and bool(job.spec.after))

    def _count_users(self, job: LiveJob, change: int) -> None:
        """A job comes to its GPUs (1) or leaves them (-1)."""
        for node, indexes in job.last.gpus:
            for index in indexes:
                before = self._users[node, index]
                self._users[node, index] = before + change
                self.shared_gpus += (before + change > 1) - (before > 1)

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

    def _on_once(self, record: Record) -> None:
        data = record.data
        self.answers.put(data["name"], Answer(data["asked"], _time(record), unpacked(data["ids"])))

    def _on_promise(self, record: Record) -> None:
        """GPUs on which it starts when others have left them, or none any more."""
        gpus = tuple((node, tuple(indexes)) for node, indexes in record.data["gpus"] or ())
        if gpus and record.job in self.jobs and not self.jobs[record.job].finished:
            self.promises[record.job] = gpus
        else:
            self.promises.pop(record.job, None)

    def _on_memory(self, record: Record) -> None:
        """What the policy must not forget; null for what it may. Kept as it will be read back."""
        key, value = record.data["key"], record.data["value"]
        if value is None:
            self.memory.pop(key, None)
        else:
            self.memory[key] = json.loads(json.dumps(value))

    def _on_hold(self, record: Record) -> None:
        self.jobs[record.job].held = True

    def _on_resume(self, record: Record) -> None:
        self.jobs[record.job].held = False

    def _on_set(self, record: Record) -> None:
        job = self.jobs[record.job]
        changes = {key: value for key, value in record.data.items() if key != WRITTEN}
        job.spec = read_spec({**plain_spec(job.spec), **changes})

    def _on_resize(self, record: Record) -> None:
        """Another number of GPUs: at once where it has none, else from its next attempt on."""
        job, gpus = self.jobs[record.job], int(record.data["gpus"])
        job.asked_gpus = job.asked_gpus or job.spec.gpus
        if job.state == JobState.PENDING:
            job.spec, job.resize_to = replace(job.spec, gpus=gpus), 0
        else:
            job.resize_to = 0 if gpus == job.spec.gpus else gpus

    def _on_launch(self, record: Record) -> None:
        job = self.jobs[record.job]
        job.state = move(job.id, job.state, JobState.STARTING)
        gpus = tuple((node, tuple(indexes)) for node, indexes in record.data["gpus"])
        level = int(record.data.get("level", 0))
        job.attempts.append(Attempt(len(job.attempts) + 1, gpus, _time(record), level=level))
        self.promises.pop(job.id, None)

    def _on_started(self, record: Record) -> None:
        job = self.jobs[record.job]
        if job.state == JobState.STARTING:
            job.state = JobState.RUNNING
        if job.last.started_s is None:
            job.last.started_s = job.last.since_s = record.data.get("at_s", _time(record))

    def _on_stop(self, record: Record) -> None:
        """It is to end. A suspended job has no GPUs to give back: it stays suspended until its process is gone."""
        job = self.jobs[record.job]
        job.stop_why, job.stop_asked_s, job.rung = record.data["why"], _time(record), ""
        if job.state == JobState.PENDING:
            self._end(job, JobState.CANCELLED, _time(record), "cancelled before it started")
        elif job.state not in (JobState.STOPPING, JobState.SUSPENDED):
            job.state = move(job.id, job.state, JobState.STOPPING)

    def _on_rung(self, record: Record) -> None:
        """The next rung of the ladder is about to be taken."""
        job = self.jobs[record.job]
        job.rung, job.rung_s = record.data["rung"], _time(record)

    def _on_suspended(self, record: Record) -> None:
        """It stands still and its GPUs are free."""
        job, now_s = self.jobs[record.job], _time(record)
        job.last.pause(now_s)
        job.last.unsaved_s = record.data["unsaved_s"]
        job.last.suspensions += 1
        self.costs.add_taken(job.spec.name, SUSPEND, max(now_s - job.stop_asked_s, 0.0), 0.0)
        job.state = move(job.id, job.state, JobState.SUSPENDED)
        job.stop_why = job.rung = ""
        job.message = "suspended; it goes on when its GPUs are free"

    def _on_continue(self, record: Record) -> None:
        """A suspended job is about to go on, on its own GPUs, which are its again from here on."""
        job = self.jobs[record.job]
        job.state = move(job.id, job.state, JobState.STARTING)
        job.rung, job.rung_s, job.message = CONTINUE, _time(record), ""
        self.promises.pop(job.id, None)

    def _on_continued(self, record: Record) -> None:
        job, now_s = self.jobs[record.job], _time(record)
        job.last.since_s = now_s if job.last.since_s is None else job.last.since_s
        self.costs.add_resumed(job.spec.name, SUSPEND, record.data["seconds"])
        if job.rung == CONTINUE:
            job.state, job.rung = move(job.id, job.state, JobState.RUNNING), ""

    def _on_exit(self, record: Record) -> None:
        job, data = self.jobs[record.job], record.data
        attempt = job.last
        attempt.ended_s, attempt.why = data.get("at_s", _time(record)), data["why"]
        attempt.exit_code, attempt.signal = data.get("code"), data.get("signal")
        attempt.lost_s = data.get("lost_s", 0.0)
        attempt.stop_s, attempt.restore_s = data.get("stop_s", 0.0), data.get("restore_s", 0.0)
        attempt.pause(attempt.ended_s or 0.0)
        self._count_costs(job, data)
        job.failures += int(data.get("failure", False))
        job.losses += int(data.get("gone", False))
        job.stop_why = job.rung = ""
        job.left_s = data.get("left_s")
        to = JobState(data["to"])
        if to in FINAL:
            self._end(job, to, _time(record), data["why"])
        else:
            job.state = move(job.id, job.state, to)
            job.message = data["why"]
            if job.resize_to:
                job.spec, job.resize_to = replace(job.spec, gpus=job.resize_to), 0

    def _count_costs(self, job: LiveJob, data: dict[str, Any]) -> None:
        """What stopping this attempt cost, and what going on after the one before did."""
        attempt, name = job.last, job.spec.name
        if "stop_s" in data:
            attempt.rung = data.get("rung", STOP)
            self.costs.add_taken(name, attempt.rung, attempt.stop_s, attempt.lost_s)
        elif data.get("rung") == SUSPEND:
            attempt.rung = SUSPEND
            self.costs.add_lost(name, SUSPEND, attempt.lost_s)
        if "restore_s" in data:
            before = job.attempts[-2].rung if len(job.attempts) > 1 else ""
            self.costs.add_resumed(name, before or ASK, attempt.restore_s)

    def _on_reject(self, record: Record) -> None:
        self._end(self.jobs[record.job], JobState.FAILED, _time(record), record.data["why"])

    def _end(self, job: LiveJob, state: JobState, time_s: float, message: str) -> None:
        job.state = move(job.id, job.state, state)
        job.ended_s, job.message = time_s, message
        self.promises.pop(job.id, None)

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
        """Seconds that a preemption cost on average, lost work included; `unknown_s` before any was measured."""
        return self.costs.mean_s(unknown_s)

    def freeze(self) -> bytes:
        """The whole book as bytes, for a snapshot."""
        jobs = [frozen(job) for job in self.jobs.values()]
        data = {
            "jobs": jobs, "tokens": self.tokens, "drained": sorted(self.drained), "policy": self.policy,
            "next_id": self.next_id, "seq": self.seq, "rungs": self.costs.rows(), "once": self.answers.rows(),
            "promises": self.promises, "memory": self.memory,
        }  # fmt: skip
        return json.dumps(data).encode()

    @classmethod
    def thaw(cls, state: bytes) -> Book:
        """The inverse of `freeze`."""
        data = json.loads(state)
        book = cls(data["policy"])
        for row in data["jobs"]:
            job = thawed(row)
            book._enter(job)
            book._index(job)
        book.tokens, book.drained = data["tokens"], set(data["drained"])
        book.next_id, book.seq = data["next_id"], data["seq"]
        book.costs = Costs(data["rungs"] if "rungs" in data else before_rungs(data["costs"]))
        book.answers = Answers(data.get("once"))
        for job_id, gpus in data.get("promises", {}).items():
            book.promises[job_id] = tuple((node, tuple(indexes)) for node, indexes in gpus)
        book.memory = data.get("memory", {})
        return book


WRITTEN = "written_s"  # the service's own clock in every record, so that a replay sees the very same times


def _time(record: Record) -> float:
    return float(record.data.get(WRITTEN, record.time_s))


def _keep(index: dict[str, LiveJob], job: LiveJob, wanted: bool) -> None:
    if wanted:
        index[job.id] = job
    else:
        index.pop(job.id, None)
