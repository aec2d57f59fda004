"""What each kind of record does to the book. No I/O: this is the only place where state changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, JobState, move
from cotenant.journal import Record
from cotenant.service.store.idempotency import Answer, unpacked
from cotenant.service.store.job import ASK, CONTINUE, STOP, SUSPEND, Attempt, LiveJob, read_gpus

if TYPE_CHECKING:
    from cotenant.service.store.book import Book

WRITTEN = "written_s"  # the service's own clock in every record, so that a replay sees the very same times


def _time(record: Record) -> float:
    return float(record.data.get(WRITTEN, record.time_s))


def _submit(book: Book, record: Record) -> None:
    data = record.data
    job = LiveJob(
        id=record.job, order=record.seq, spec=JobSpec.from_dict(data["spec"]), tenant=data["tenant"],
        user=data["user"], submitted_s=_time(record),
    )  # fmt: skip
    book.enter(job)
    book.next_id = max(book.next_id, int(job.id.partition(".")[0]) + 1)


def _once(book: Book, record: Record) -> None:
    data = record.data
    book.answers.put(data["name"], Answer(data["asked"], _time(record), unpacked(data["ids"])))


def _forget(book: Book, record: Record) -> None:
    for job in record.data["jobs"]:
        book.leave(job)


def _policy(book: Book, record: Record) -> None:
    book.policy = record.data["policy"]


def _drain(book: Book, record: Record) -> None:
    (book.drained.discard if record.data["undo"] else book.drained.add)(record.data["node"])


def _token(book: Book, record: Record) -> None:
    book.tokens[record.data["id"]] = {**record.data, "created_s": _time(record), "revoked": False}


def _revoke(book: Book, record: Record) -> None:
    book.tokens[record.data["id"]]["revoked"] = True


def _memory(book: Book, record: Record) -> None:
    """What the policy must not forget; null for what it may. Kept as it will be read back."""
    key, value = record.data["key"], record.data["value"]
    if value is None:
        book.memory.pop(key, None)
    else:
        book.memory[key] = json.loads(json.dumps(value))


def _promise(book: Book, job: LiveJob, record: Record) -> None:
    """GPUs on which it starts when others have left them, or none any more."""
    gpus = read_gpus(record.data["gpus"] or ())
    if gpus and not job.finished:
        book.promises[job.id] = gpus
    else:
        book.promises.pop(job.id, None)


def _hold(book: Book, job: LiveJob, record: Record) -> None:
    job.held = True


def _resume(book: Book, job: LiveJob, record: Record) -> None:
    job.held = False


def _set(book: Book, job: LiveJob, record: Record) -> None:
    job.spec = JobSpec.from_dict({**job.spec.as_dict(), **record.data})


def _resize(book: Book, job: LiveJob, record: Record) -> None:
    """Another number of GPUs: at once where it has none, else from its next attempt on."""
    gpus = int(record.data["gpus"])
    job.asked_gpus = job.asked_gpus or job.spec.gpus
    if job.state == JobState.PENDING:
        job.spec, job.resize_to = replace(job.spec, gpus=gpus), 0
    else:
        job.resize_to = 0 if gpus == job.spec.gpus else gpus


def _launch(book: Book, job: LiveJob, record: Record) -> None:
    job.state = move(job.id, job.state, JobState.STARTING)
    gpus, level = read_gpus(record.data["gpus"]), int(record.data.get("level", 0))
    job.attempts.append(Attempt(len(job.attempts) + 1, gpus, _time(record), level=level))
    book.promises.pop(job.id, None)


def _started(book: Book, job: LiveJob, record: Record) -> None:
    if job.state == JobState.STARTING:
        job.state = JobState.RUNNING
    if job.last.started_s is None:
        job.last.started_s = job.last.since_s = record.data.get("at_s", _time(record))


def _stop(book: Book, job: LiveJob, record: Record) -> None:
    """It is to end. A suspended job has no GPUs to give back: it stays suspended until its process is gone."""
    job.stop_why, job.stop_asked_s, job.rung = record.data["why"], _time(record), ""
    if job.state == JobState.PENDING:
        _end(book, job, JobState.CANCELLED, _time(record), "cancelled before it started")
    elif job.state not in (JobState.STOPPING, JobState.SUSPENDED):
        job.state = move(job.id, job.state, JobState.STOPPING)


def _rung(book: Book, job: LiveJob, record: Record) -> None:
    """The next rung of the ladder is about to be taken."""
    job.rung, job.rung_s = record.data["rung"], _time(record)


def _suspended(book: Book, job: LiveJob, record: Record) -> None:
    """It stands still and its GPUs are free."""
    now_s = _time(record)
    job.last.pause(now_s)
    job.last.unsaved_s = record.data["unsaved_s"]
    job.last.suspensions += 1
    book.costs.add_taken(job.spec.name, SUSPEND, max(now_s - job.stop_asked_s, 0.0), 0.0)
    job.state = move(job.id, job.state, JobState.SUSPENDED)
    job.stop_why = job.rung = ""
    job.message = "suspended; it goes on when its GPUs are free"


def _continue(book: Book, job: LiveJob, record: Record) -> None:
    """A suspended job is about to go on, on its own GPUs, which are its again from here on."""
    job.state = move(job.id, job.state, JobState.STARTING)
    job.rung, job.rung_s, job.message = CONTINUE, _time(record), ""
    book.promises.pop(job.id, None)


def _continued(book: Book, job: LiveJob, record: Record) -> None:
    job.last.since_s = _time(record) if job.last.since_s is None else job.last.since_s
    book.costs.add_resumed(job.spec.name, SUSPEND, record.data["seconds"])
    if job.rung == CONTINUE:
        job.state, job.rung = move(job.id, job.state, JobState.RUNNING), ""


def _exit(book: Book, job: LiveJob, record: Record) -> None:
    data, attempt = record.data, job.last
    attempt.ended_s, attempt.why = data.get("at_s", _time(record)), data["why"]
    attempt.exit_code, attempt.signal = data.get("code"), data.get("signal")
    attempt.lost_s = data.get("lost_s", 0.0)
    attempt.stop_s, attempt.restore_s = data.get("stop_s", 0.0), data.get("restore_s", 0.0)
    attempt.pause(attempt.ended_s or 0.0)
    _count_costs(book, job, data)
    job.failures += int(data.get("failure", False))
    job.losses += int(data.get("gone", False))
    job.stop_why = job.rung = ""
    job.left_s = data.get("left_s")
    to = JobState(data["to"])
    if to in FINAL:
        _end(book, job, to, _time(record), data["why"])
        return
    job.state, job.message = move(job.id, job.state, to), data["why"]
    if job.resize_to:
        job.spec, job.resize_to = replace(job.spec, gpus=job.resize_to), 0


def _count_costs(book: Book, job: LiveJob, data: dict[str, Any]) -> None:
    """What stopping this attempt cost, and what going on after the one before did."""
    attempt, name = job.last, job.spec.name
    if "stop_s" in data:
        attempt.rung = data.get("rung", STOP)
        book.costs.add_taken(name, attempt.rung, attempt.stop_s, attempt.lost_s)
    elif data.get("rung") == SUSPEND:
        attempt.rung = SUSPEND
        book.costs.add_lost(name, SUSPEND, attempt.lost_s)
    if "restore_s" in data:
        before = job.attempts[-2].rung if len(job.attempts) > 1 else ""
        book.costs.add_resumed(name, before or ASK, attempt.restore_s)


def _reject(book: Book, job: LiveJob, record: Record) -> None:
    _end(book, job, JobState.FAILED, _time(record), record.data["why"])


def _end(book: Book, job: LiveJob, state: JobState, time_s: float, message: str) -> None:
    job.state = move(job.id, job.state, state)
    job.ended_s, job.message = time_s, message
    book.promises.pop(job.id, None)


OF_THE_BOOK: dict[str, Callable[[Book, Record], None]] = {
    "submit": _submit, "once": _once, "forget": _forget, "policy": _policy, "drain": _drain, "token": _token,
    "revoke": _revoke, "memory": _memory,
}  # fmt: skip
OF_A_JOB: dict[str, Callable[[Book, LiveJob, Record], None]] = {
    "promise": _promise, "hold": _hold, "resume": _resume, "set": _set, "resize": _resize, "launch": _launch,
    "started": _started, "stop": _stop, "rung": _rung, "suspended": _suspended, "continue": _continue,
    "continued": _continued, "exit": _exit, "reject": _reject,
}  # fmt: skip
