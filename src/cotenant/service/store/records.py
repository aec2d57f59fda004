"""What each kind of record does to the book. No I/O: this is the only place where state changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, JobState, move
from cotenant.journal import Record
from cotenant.service.forecasts.foretold import ForecastRecord
from cotenant.service.node_windows import NodeWindow
from cotenant.service.store.idempotency import GivenAnswer, unpacked
from cotenant.service.store.job import ASK, CONTINUE, STOP, SUSPEND, WITHDRAW, Attempt, LiveJob, read_gpus
from cotenant.service.store.learned import RESUME, SUSPENDING, learn_end, learn_start, phase_keys
from cotenant.service.store.replicas import service_of
from cotenant.service.store.tenants import BookTenants

if TYPE_CHECKING:
    from cotenant.service.store.book import Book

WRITTEN = "written_s"  # the service's own clock in every record, so that a replay sees the very same times


def change_book(book: Book, record: Record, now_s: float) -> None:
    """Records of new jobs, and of what is not about one job."""
    data = record.data
    match record.kind:
        case "submit":
            spec = JobSpec.from_dict(data["spec"])
            book.enter(LiveJob(record.job, record.seq, spec, data["tenant"], data["user"], now_s))
        case "once":
            book.answers.put(data["name"], GivenAnswer(data["asked"], now_s, unpacked(data["ids"])))
        case "forget":
            for job in data["jobs"]:
                book.leave(job)
        case "account":  # of jobs that are forgotten: the archive has grown
            book.archived = record.seq
        case "lineage":
            book.lineage = data["id"]
        case "clock":  # it was set, by so much; or it is the first time that somebody looks
            book.offset = data["boot"], data["offset_s"]
            if data["by_s"]:
                book.shift(data["by_s"])
        case "policy":
            book.policy = data["policy"]
        case "drain":
            (book.drained.discard if data["undo"] else book.drained.add)(data["node"])
        case "unhealthy":  # something is wrong with a node or GPU
            book.health.add(data, now_s)
        case "healthy":  # it has passed, or was excused by somebody
            book.health.end(data, now_s)
        case "power":  # nodes that are to sleep from now on, and others that are to wake
            book.asleep = (book.asleep | set(data["asleep"])) - set(data["woken"])
        case "token":
            book.tokens[data["id"]] = {**data, "created_s": now_s, "revoked": False}
        case "revoke":
            book.tokens[data["id"]]["revoked"] = True
        case "window":
            window = NodeWindow.from_dict(data["window"])
            book.windows[window.id] = window
        case "tenants":  # the whole tree, and what is said of nodes
            book.tenants = BookTenants.from_dict({**data, "at_s": now_s})
        case "window-removed":
            book.windows.pop(data["id"], None)
        case "barrier":  # jobs of this kind wait for their GPUs at this place of their start
            book.barriers.learn(data["kind"], data["place"])
        case "used":
            book.tokens[data["id"]]["used_s"] = data["at_s"]
        case "memory" if data["value"] is None:  # the policy may forget it
            book.memory.pop(data["key"], None)
        case "memory":
            book.memory[data["key"]] = json.loads(json.dumps(data["value"]))  # as it will be read back


def change_job(book: Book, job: LiveJob, record: Record, now_s: float) -> None:
    """Records of what was asked of a job or promised to it, and of how it came to its GPUs and left them."""
    data = record.data
    match record.kind:
        case "aside":  # no node that is there could hold it; or one could again
            job.aside = data["why"]
        case "promise":  # GPUs on which it starts when others have left them, or none any more
            book.promises.pop(job.id, None)
            if data["gpus"] and not job.finished:
                book.promises[job.id] = read_gpus(data["gpus"])
        case "replicas":  # its service should have so many from now on
            service = service_of(job.id)
            book.services.wanted[service] = int(data["count"])
            book.touched.update(book.arrays.get(service, ()))
        case "deadline":  # what the policy says of its deadline
            job.deadline_answer = {name: value for name, value in data.items() if name != WRITTEN}
        case "hold" | "resume":
            job.held = record.kind == "hold"
            if job.state == JobState.PENDING and not job.held:
                job.message = ""
        case "set":
            job.spec = JobSpec.from_dict({**job.spec.as_dict(), **data})
            _withdraw(job, now_s)
        case "resize":
            _resize(job, int(data["gpus"]))
            _withdraw(job, now_s)
        case "ahead":  # a process is started that waits for these GPUs
            job.attempts.append(
                Attempt(len(job.attempts) + 1, read_gpus(data["gpus"]), now_s, ahead_s=now_s, holds=True)
            )
        case "launch":
            _launch(book, job, data, now_s)
        case "slice":  # it goes on with another part of its GPU
            job.last.slice = read_slice(data)
        case "started":
            if job.state == JobState.STARTING:
                job.state = JobState.RUNNING
            job.last.gpu_type = data.get("type", "")
            job.last.found_on = read_gpus(data.get("found_on", ()))
            if job.last.started_s is None:
                job.last.started_s = job.last.since_s = data.get("at_s", now_s)
        case "ready":  # its first steps are made
            learn_start(book.learned, job, data)
        case "stop":
            _stop(book, job, data["why"], now_s)
            job.message = data.get("because", job.message)
        case "rung":  # the next rung of the ladder is about to be taken
            job.rung, job.rung_s = data["rung"], now_s
        case "suspended":
            _suspended(book, job, data["unsaved_s"], now_s)
        case "continue":  # a suspended job is about to go on, on its own GPUs, which are its again from here on
            _start(book, job)
            job.last.taken_s = now_s
            job.rung, job.rung_s, job.message = CONTINUE, now_s, ""
        case "continued":
            _continued(book, job, data["seconds"], now_s)
        case "forecast":
            job.foretold = {**job.foretold, data["at"]: ForecastRecord.read(data, now_s)}
        case "exit":
            _exit(book, job, data, now_s)
        case "reject":
            _end(book, job, JobState(data.get("to", JobState.FAILED)), now_s, data["why"])


def _resize(job: LiveJob, gpus: int) -> None:
    """Another number of GPUs: at once where it has none, else from its next attempt on."""
    job.asked_gpus = job.asked_gpus or job.spec.gpus
    if job.state == JobState.PENDING:
        job.spec, job.resize_to = replace(job.spec, gpus=gpus), 0
    else:
        job.resize_to = 0 if gpus == job.spec.gpus else gpus


def _launch(book: Book, job: LiveJob, data: dict[str, Any], now_s: float) -> None:
    """It has its GPUs from now on: a new process, or the one that waits for exactly these."""
    goes = job.holds
    _start(book, job)
    if goes:
        job.last.holds, job.last.launched_s, job.last.taken_s = False, now_s, now_s
    else:
        gpus, level, cut = read_gpus(data["gpus"]), int(data.get("level", 0)), read_slice(data)
        job.attempts.append(Attempt(len(job.attempts) + 1, gpus, now_s, level=level, taken_s=now_s, slice=cut))
    job.message = ""


def read_slice(data: dict[str, Any]) -> tuple[int, int]:
    """Shape and column of a slice; all of the GPU where a record says nothing of it."""
    shape, column = data.get("slice") or (0, 0)
    return int(shape), int(column)


def _withdraw(job: LiveJob, now_s: float) -> None:
    """What was started ahead is not what is to run any more."""
    if job.holds and not job.stop_why:
        job.stop_why, job.stop_asked_s = WITHDRAW, now_s


def _start(book: Book, job: LiveJob) -> None:
    job.state = move(job.id, job.state, JobState.STARTING)
    book.promises.pop(job.id, None)


def _stop(book: Book, job: LiveJob, why: str, now_s: float) -> None:
    """It is to end. One without GPUs to give back (suspended, or started ahead) stays as it is until it is gone."""
    job.stop_why, job.stop_asked_s, job.rung = why, now_s, ""
    if job.holds:
        return
    if job.state == JobState.PENDING:
        _end(book, job, JobState.CANCELLED, now_s, "cancelled before it started")
    elif job.state not in (JobState.STOPPING, JobState.SUSPENDED):
        job.state = move(job.id, job.state, JobState.STOPPING)


def _suspended(book: Book, job: LiveJob, unsaved_s: float, now_s: float) -> None:
    """It stands still and its GPUs are free."""
    job.last.pause(now_s)
    book.gpu_s[job.tenant] += job.last.give_back(now_s)
    job.last.unsaved_s = unsaved_s
    job.last.suspensions += 1
    free_s = max(now_s - job.stop_asked_s, 0.0)
    book.costs.add_taken(SUSPEND, free_s, 0.0)
    book.learned.add(SUSPENDING, phase_keys(job, job.last.gpu_type), free_s)
    job.state = move(job.id, job.state, JobState.SUSPENDED)
    job.stop_why = job.rung = ""
    job.message = "suspended; it goes on when its GPUs are free"


def _continued(book: Book, job: LiveJob, took_s: float, now_s: float) -> None:
    """It goes on where it stood still."""
    job.last.since_s = now_s if job.last.since_s is None else job.last.since_s
    book.costs.add_resumed(SUSPEND, took_s)
    book.learned.add(RESUME, phase_keys(job, job.last.gpu_type), took_s)
    if job.rung == CONTINUE:
        job.state, job.rung = move(job.id, job.state, JobState.RUNNING), ""


def _exit(book: Book, job: LiveJob, data: dict[str, Any], now_s: float) -> None:
    attempt = job.last
    attempt.ended_s, attempt.why = data.get("at_s", now_s), data["why"]
    attempt.exit_code, attempt.signal = data.get("code"), data.get("signal")
    if attempt.holds:
        _held_in_vain(book, job, JobState(data["to"]), data["why"], now_s)
        return
    attempt.lost_s = data.get("lost_s", 0.0)
    attempt.stop_s, attempt.restore_s = data.get("stop_s", 0.0), data.get("restore_s", 0.0)
    attempt.pause(attempt.ended_s or 0.0)
    to = JobState(data["to"])
    _account(book, job, data, to)
    _count_costs(book, job, data)
    learn_end(book.learned, job, data, attempt.rung == ASK, to == JobState.SUCCEEDED and not book.shares(job))
    job.failures += int(data.get("failure", False))
    job.losses += int(data.get("gone", False))
    job.stop_why = job.rung = ""
    job.left_s = data.get("left_s")
    job.progress = data.get("progress", job.progress)
    if job.spec.service and "progress" in data:
        book.services.end(job, data["progress"]["metrics"])
    if to in FINAL:
        _end(book, job, to, now_s, data["why"])
        return
    job.state, job.message = move(job.id, job.state, to), data["why"]
    if job.resize_to:
        job.spec, job.resize_to = replace(job.spec, gpus=job.resize_to), 0


def _account(book: Book, job: LiveJob, data: dict[str, Any], to: JobState) -> None:
    """Its newest attempt gives its GPUs back. One of which nothing was found never had them."""
    attempt = job.last
    if "at_s" in data:
        book.gpu_s[job.tenant] += attempt.give_back(data["at_s"])
    attempt.taken_s = None
    if data.get("gone"):
        attempt.end = "lost"
    elif to in FINAL or data.get("failure"):
        attempt.end = str(to if to in FINAL else JobState.FAILED)
    else:
        attempt.end = job.stop_why or "stopped"


def _held_in_vain(book: Book, job: LiveJob, to: JobState, why: str, now_s: float) -> None:
    """A process that was started ahead has ended without its GPUs: nothing was done, and nothing is lost."""
    job.stop_why = ""
    if to in FINAL:
        _end(book, job, to, now_s, why)


def _count_costs(book: Book, job: LiveJob, data: dict[str, Any]) -> None:
    """What stopping this attempt cost, and what going on after the one before did."""
    attempt = job.last
    if "stop_s" in data:
        attempt.rung = data.get("rung", STOP)
        book.costs.add_taken(attempt.rung, attempt.stop_s, attempt.lost_s)
    elif data.get("rung") == SUSPEND:
        attempt.rung = SUSPEND
        book.costs.add_lost(SUSPEND, attempt.lost_s)
    if "restore_s" in data:
        before = job.attempts[-2].rung if len(job.attempts) > 1 else ""
        book.costs.add_resumed(before or ASK, attempt.restore_s)


def _end(book: Book, job: LiveJob, state: JobState, time_s: float, message: str) -> None:
    job.state = move(job.id, job.state, state)
    job.ended_s, job.message, job.aside = time_s, message, ""
    book.promises.pop(job.id, None)
    if state == JobState.SUCCEEDED and job.attempts:
        for at, told in job.foretold.items():
            book.calibration.add(at, told, job.last.ended_s or time_s)
