"""What people ask of their jobs. Answers are built of frozen views: none takes the scheduler's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from cotenant.backends.base import LogReader, Stream
from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.reasons import Cause
from cotenant.journal import Entry, Record
from cotenant.service.desk import views as shown
from cotenant.service.desk.deadlines import deadline_of
from cotenant.service.desk.parts import Machines, PlannerAnswers, ReportedProgress
from cotenant.service.desk.submitting import Submissions
from cotenant.service.facade import Caller, Conflict, EventInfo, JobInfo, NotFound, Role
from cotenant.service.options import MOST_UNFINISHED
from cotenant.service.store.job import LiveJob, waits_for
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView

SETTABLE = ("name", "priority", "deadline", "max_runtime", "retries", "expected", "gpus")
_NAMES = {"deadline": "deadline_s", "max_runtime": "max_runtime_s", "expected": "expected_s"}


class Desk:
    """The one implementation of `cotenant.service.facade.Jobs`.

    `report` gives the newest report of a job.
    """

    def __init__(
        self,
        store: Store,
        planner: PlannerAnswers,
        machines: Machines,
        report: Callable[[str], ReportedProgress | None],
        most_unfinished: int = MOST_UNFINISHED,
    ) -> None:
        self._store, self._planner, self._machines, self._report = store, planner, machines, report
        self._submissions = Submissions(store, machines, most_unfinished)

    def submit(self, caller: Caller, specs: list[JobSpec], key: str = "", asked: str = "") -> list[list[str]]:
        """See the facade."""
        caller.must_be(Role.USER)
        ids = self._submissions.take(caller, specs, key, asked)
        self._machines.wake()
        return ids

    def jobs(self, caller: Caller, *, states: tuple[str, ...] = (), limit: int = 1000) -> list[JobInfo]:
        """See the facade."""
        view = self._store.view()
        newest = (
            job
            for job in reversed(view.jobs.values())
            if caller.sees(job.tenant) and (not states or job.state in states)
        )
        return [self._shown(job, view, caller.tenant, whole=False) for job in [*islice(newest, limit)][::-1]]

    def job(self, caller: Caller, job: str) -> JobInfo:
        """See the facade."""
        view = self._store.around(job)
        return self._shown(_visible(view.jobs.get(job), caller, job), view, caller.tenant, whole=True)

    def history(self, caller: Caller) -> Iterator[JobInfo]:
        """See the facade."""
        view = self._store.view()
        ended = (job for job in view.jobs.values() if job.finished and caller.sees(job.tenant))
        return (self._shown(job, view, caller.tenant, whole=True) for job in ended)

    def _shown(self, job: LiveJob, view: BookView, tenant: str, whole: bool) -> JobInfo:
        reason, report = shown.reason(job, view, tenant), self._report(job.id)
        return shown.job_info(job, reason, report, self._store.clock(), whole)

    def why(self, caller: Caller, job: str) -> dict[str, Any]:
        """See the facade. Only the planner knows why a job waits that could start."""
        view, now_s = self._store.around(job), self._store.clock()
        found = _visible(view.jobs.get(job), caller, job)
        waits = found.state in WAITING
        if not waits or found.held or found.stop_why or waits_for(found, view.members):
            text = shown.reason(found, view, caller.tenant)
            cause = shown.reason(found, view, "") if waits else str(found.state)
            return {"job": job, "at_s": now_s, "cause": cause, "text": text or f"it is {found.state}"}
        reason = self._planner.why(job, now_s)
        if reason is not None:
            return reason.as_dict()
        up = any(node.state == "up" and node.name not in view.drained for node in self._machines.nodes())
        text = "the next decision comes at once" if up else "no node is up"
        return {"job": job, "at_s": now_s, "cause": str(Cause.CAPACITY), "text": text}

    def deadline(self, caller: Caller, job: str) -> dict[str, Any]:
        """See the facade."""
        view = self._store.view()
        found = _visible(view.jobs.get(job), caller, job)
        return deadline_of(view, self._machines.nodes(), found, self._store.clock())

    def whatif(self, caller: Caller, policies: list[str]) -> dict[str, Any]:
        """See the facade."""
        view = self._store.view()
        names = list(dict.fromkeys([view.policy, *policies]))
        finish = self._planner.forecast(names)
        mine = (job for job in view.active if caller.sees(job.tenant))
        rows = [
            {"id": job.id, "name": job.spec.name} | {name: finish[name].get(job.id) for name in names} for job in mine
        ]
        return {"now": view.policy, "at_s": self._store.clock(), "policies": names, "jobs": rows}

    def events(self, caller: Caller, job: str = "", after: int = 0, limit: int = 1000) -> list[EventInfo]:
        """See the facade."""
        if job:
            self._find(caller, job)
        records: Iterable[Record] = self._store.story(job) if job else self._store.journal.read(after)
        told = (record for record in records if record.seq > after and self._told(caller, record))
        return [shown.event(record) for record in islice(told, limit)]

    def _told(self, caller: Caller, record: Record) -> bool:
        """Whether a record is for people at all, and for this one."""
        if record.kind in ("token", "revoke", "used", "once"):
            return False
        if not caller.tenant:
            return True
        owner = self._store.book.jobs.get(record.job)  # without the lock: whose a job is never changes
        return owner is not None and caller.sees(owner.tenant)

    def wait_events(self, after: int, timeout_s: float) -> int:
        """See the facade."""
        return self._store.wait_beyond(after, timeout_s)

    def open_log(self, caller: Caller, job: str, stream: Stream = "stdout", attempt: int = 0) -> LogReader | None:
        """See the facade."""
        attempts = len(self._find(caller, job).attempts)
        number = attempt or attempts
        return self._machines.open_log(f"{job}-{number}", stream) if 1 <= number <= attempts else None

    def cancel(self, caller: Caller, job: str) -> None:
        """See the facade."""
        with self._changing(caller, job, but=JobState.CANCELLED) as found:
            if not found.finished and found.stop_why != "cancel":
                self._store.write([Entry("stop", job, {"why": "cancel"})])

    def hold(self, caller: Caller, job: str) -> None:
        """See the facade."""
        with self._changing(caller, job):
            self._store.write([Entry("hold", job)])

    def resume(self, caller: Caller, job: str) -> None:
        """See the facade."""
        with self._changing(caller, job):
            self._store.write([Entry("resume", job)])

    def set(self, caller: Caller, job: str, changes: dict[str, Any]) -> None:
        """See the facade."""
        caller.must_be(Role.USER)
        for key in changes:
            if key not in SETTABLE:
                raise unknown("field to set", key, SETTABLE)
        spec = parse_job({"run": "-", **changes}, f"job {job}")
        names = [_NAMES.get(key, key) for key in changes] + ["deadline_steps"] * ("deadline" in changes)
        values = {name: getattr(spec, name) for name in names if name != "gpus"}
        with self._changing(caller, job) as found:
            entries = [Entry("set", job, values)] if values else []
            if "gpus" in changes:
                _check_size(found, spec.gpus)
                entries.append(Entry("resize", job, {"gpus": spec.gpus}))
            if entries:
                self._store.write(entries)

    def _find(self, caller: Caller, job: str) -> LiveJob:
        with self._store.lock:
            return _visible(self._store.book.jobs.get(job), caller, job)

    @contextmanager
    def _changing(self, caller: Caller, job: str, but: JobState | None = None) -> Iterator[LiveJob]:
        """A job that has not ended (`but` in this state), with the lock held; afterwards the scheduler looks."""
        caller.must_be(Role.USER)
        with self._store.lock:
            found = self._find(caller, job)
            if found.finished and found.state != but:
                raise Conflict(f"job {job} has {found.state}")
            yield found
        self._machines.wake()


def _visible(found: LiveJob | None, caller: Caller, job: str) -> LiveJob:
    if found is None or not caller.sees(found.tenant):
        raise NotFound(f"there is no job '{job}'")
    return found


def _check_size(job: LiveJob, gpus: int) -> None:
    """Only elastic jobs change their size, and only within the limits that they were submitted with."""
    low, high = max(job.spec.min_gpus, 1), job.spec.max_gpus
    if not high:
        raise InputError(f"job {job.id} is not elastic: submit it with elastic: {{min_gpus: 1, max_gpus: 4}}")
    if not low <= gpus <= high:
        raise InputError(f"job {job.id} takes {low} to {high} GPUs, not {gpus}")
