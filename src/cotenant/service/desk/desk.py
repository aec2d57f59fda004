"""What people ask of their jobs. Answers are built of frozen views: none takes the scheduler's time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any

from cotenant.backends.base import BackendError, LogReader, LogTimes, Stream
from cotenant.backends.channels import Channel, ChannelSpec
from cotenant.core.errors import unknown
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import JobState
from cotenant.core.reasons import Cause
from cotenant.journal import Record
from cotenant.service.accounts.share import ShareBoard
from cotenant.service.desk import changing, selecting
from cotenant.service.desk import views as shown
from cotenant.service.desk.deadlines import deadline_of, with_deadline
from cotenant.service.desk.machines import Machines
from cotenant.service.desk.serving import standing
from cotenant.service.desk.submitting import ANYTHING, Rules, Submissions, again
from cotenant.service.desk.tenant_reasons import explained
from cotenant.service.facade import (
    EVERY,
    Caller,
    Conflict,
    EventInfo,
    JobInfo,
    JobList,
    JobOutcome,
    NotAllowed,
    NotFound,
    Role,
    WhatIfWatch,
    Which,
)
from cotenant.service.forecasts.background import Forecasts
from cotenant.service.forecasts.evaluate import evaluate, points_of
from cotenant.service.observer.outcomes import UNKNOWN_DURATION_S
from cotenant.service.observer.report import Report
from cotenant.service.observer.usage import Usage
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView


class Desk:
    """What people ask of jobs.

    `report` gives the newest report of a job, `told` what is foretold of it, `usage` what it uses, `board` how tenants
    stand.
    `rules`: what may be asked for.
    `most_priority`: the highest that others than admins may ask for.
    """

    def __init__(
        self,
        store: Store,
        planner: PlannerPart,
        machines: Machines,
        report: Callable[[str], Report | None],
        told: Forecasts,
        rules: Rules = ANYTHING,
        usage: Usage | None = None,
        board: ShareBoard | None = None,
        granted: Callable[[str], float | None] = lambda job: None,
    ) -> None:
        self._granted = granted
        self._usage, self._board = usage or Usage(), board
        self._store, self._planner, self._machines, self._report = store, planner, machines, report
        self._told_ends = told
        self._submissions = Submissions(store, machines, rules)
        self._changes, self._most_priority = changing.JobChanges(store, machines), rules.most_priority

    def submit(self, caller: Caller, specs: list[JobSpec], key: str = "", asked: str = "") -> list[list[str]]:
        """Durable when it returns: the ids per spec, several for an array, in order of its indexes.

        The same `key` from the same caller within a day gives the same ids and submits nothing; `asked` is a digest
        of the request, and another one under the same key is a `Conflict`.
        """
        caller.must_be(Role.USER)
        ids = self._submissions.take(caller, specs, key, asked)
        self._machines.wake()
        return ids

    def jobs(self, caller: Caller, which: Which = EVERY, *, limit: int = 1000, skip: int | None = None) -> JobList:
        """Jobs that the caller may see, newest last; without spec and attempts.

        Of more than `limit`: those on GPUs, then suspended, next in line, last ended; with `skip` the next in order.
        """
        view = self._store.view()
        found = [*selecting.chosen(view, caller, which)][skip or 0 :]
        some = selecting.first(found, limit) if skip is None else found[:limit]
        listed = JobList(self._shown(job, view, caller.tenant, whole=False) for job in some)
        listed.left_out = len(found) - len(listed)
        return listed

    def job(self, caller: Caller, job: str) -> JobInfo:
        """One job with spec and attempts."""
        name = self._find(caller, job).id
        view = self._store.around(name)
        return self._shown(view.jobs[name], view, caller.tenant, whole=True)

    def history(self, caller: Caller) -> Iterator[JobInfo]:
        """Finished jobs, oldest first."""
        view = self._store.view()
        ended = (job for job in view.jobs.values() if job.finished and caller.sees(job.tenant))
        return (self._shown(job, view, caller.tenant, whole=True) for job in ended)

    def _shown(self, job: LiveJob, view: BookView, tenant: str, whole: bool) -> JobInfo:
        reason, report = shown.reason(job, view, tenant, self._granted), self._report(job.id)
        on_gpus = whole and job.id in view.on_gpus
        use = self._usage.of(job, not view.company.get(job.id)) if on_gpus else None
        told = self._told_ends.of(job.id)
        info = shown.job_info(job, reason, report, told, self._store.clock(), whole, use)
        if not job.spec.service or job.finished:
            return info
        return replace(info, service=standing(job, view, self._report))

    def why(self, caller: Caller, job: str) -> dict[str, Any]:
        """The reason of one job, as `Reason.as_dict`. Only the planner knows why a job waits that could start."""
        name, now_s = self._find(caller, job).id, self._store.clock()
        view, nodes = self._store.around(name), self._machines.nodes()
        found = view.jobs[name]
        text, cause = shown.reason(found, view, caller.tenant, self._granted), shown.cause(found, view)
        if cause:
            said = found.aside or text or f"it is {found.state}"
            return {"job": name, "at_s": now_s, "cause": cause, "text": with_deadline(said, view, nodes, found, now_s)}
        reason = self._planner.why(name, now_s)
        if reason is not None and self._board is not None and view.tenants.tree is not None:
            picture = self._board.picture()
            reason = explained(reason, picture.view, caller, now_s, self._board.grace_s, picture.lenders)
        if reason is not None:
            return {**reason.as_dict(), "text": with_deadline(reason.text, view, nodes, found, now_s)}
        up = any(node.state == "up" and node.name not in view.drained for node in nodes)
        text = "the next decision comes at once" if up else "no node is up"
        return {"job": name, "at_s": now_s, "cause": str(Cause.CAPACITY), "text": text}

    def deadline(self, caller: Caller, job: str) -> dict[str, Any]:
        """What the policy has told of a job's deadline: `unanswered` until its first decision with the job."""
        name = self._find(caller, job).id
        view = self._store.around(name)
        return deadline_of(view, self._machines.nodes(), view.jobs[name], self._store.clock())

    def whatif(self, caller: Caller, policies: list[str], watch: WhatIfWatch | None = None) -> dict[str, Any]:
        """Per job the expected finish now and under each policy: {"now": p, "jobs": [{"id":, p: seconds|None}]}.

        "forecasts" of a job has its intervals by policy. `watch` is kept up to date. Policies for which time was up
        are named under "partial".
        """
        view = self._store.view()
        names = list(dict.fromkeys([view.policy, *policies]))
        watch = watch or WhatIfWatch()
        at_s = self._store.clock()
        found = self._planner.forecast(names, watch)
        finish = {name: self._told_ends.calibrated(name, found[name], view, at_s).jobs for name in names}
        mine = (job for job in view.active if caller.sees(job.tenant))
        rows = [shown.foretold(job, {name: finish[name].get(job.id) for name in names}) for job in mine]
        seen = (job for job in view.active if caller.sees(job.tenant))
        assumed = [job.id for job in seen if not shown.has_length(job, self._report(job.id))]
        answer = {"now": view.policy, "at_s": at_s, "policies": names, "partial": watch.partial}
        return {**answer, "jobs": rows, "assumed": assumed, "assumed_s": UNKNOWN_DURATION_S}

    def evaluation(self, caller: Caller) -> dict[str, Any]:
        """How right forecasts were: errors by moment and policy, calibration, and forecasts one by one."""
        view = self._store.view()
        points = points_of(job for job in view.jobs.values() if caller.sees(job.tenant))
        return evaluate(points, view.calibration)

    def events(
        self, caller: Caller, job: str = "", after: int = 0, limit: int = 1000, newest: bool = False
    ) -> list[EventInfo]:
        """History of one job, or of everything the caller may see: the oldest `limit` of it, or the newest."""
        name = self._find(caller, job).id if job else ""
        records: Iterable[Record] = self._store.story(name) if name else self._store.journal.read(after)
        told = (record for record in records if record.seq > after and self._told(caller, record))
        return [shown.event(record) for record in (deque(told, limit) if newest else islice(told, limit))]

    def _told(self, caller: Caller, record: Record) -> bool:
        """Whether a record is for people at all, and for this one."""
        if record.kind in ("token", "revoke", "used", "once", "lineage", "account"):
            return False
        if not caller.tenant:
            return True
        owner = self._store.book.jobs.get(record.job)  # without the lock: whose a job is never changes
        return owner is not None and caller.sees(owner.tenant)

    def wait_events(self, after: int, timeout_s: float) -> int:
        """Block until the journal is past `after` or time is up; its last number."""
        return self._store.wait_beyond(after, timeout_s)

    def open_log(self, caller: Caller, job: str, stream: Stream = "stdout", attempt: int = 0) -> LogReader | None:
        """The output of an attempt (0: the newest); None before there is one."""
        key = _attempt(self._find(caller, job), attempt)
        return self._machines.open_log(key, stream) if key else None

    def open_times(self, caller: Caller, job: str, attempt: int) -> LogTimes:
        """When the output of an attempt came."""
        return self._machines.open_times(_attempt(self._find(caller, job), attempt))

    def open_channel(self, caller: Caller, job: str, asked: ChannelSpec) -> Channel:
        """A way into a job that runs (a program beside it, its terminal, a port); `Conflict` where there is none."""
        caller.must_be(Role.USER)
        found = self._find(caller, job)
        if not caller.is_of(found.tenant):
            raise NotAllowed(f"job {job} is of tenant '{found.tenant}': only its users join it")
        if found.state != JobState.RUNNING and not found.holds:
            raise Conflict(f"job {job} is {found.state}: only a running one can be joined")
        try:
            return self._machines.open_channel(found.key, asked)
        except BackendError as error:
            raise Conflict(f"job {job}: {error}") from None

    def cancel(self, caller: Caller, job: str, force: bool = False) -> None:
        """Ask a job to end for good. Cancelling a cancelled job is fine; a finished one is a `Conflict`."""
        self._changes.one(caller, job, changing.cancel(force), but=JobState.CANCELLED)

    def hold(self, caller: Caller, job: str) -> None:
        """Keep a pending job from starting; a running one is preempted and then held."""
        self._changes.one(caller, job, changing.hold)

    def resume(self, caller: Caller, job: str) -> None:
        """Let a held job go on."""
        self._changes.one(caller, job, changing.resume)

    def requeue(self, caller: Caller, job: str) -> None:
        """Stop a job and let it wait again."""
        self._changes.one(caller, job, changing.requeue)

    def set(self, caller: Caller, job: str, changes: dict[str, Any]) -> None:
        """Change priority, deadline, max_runtime, retries, name or expected of a job that has not ended."""
        self._changes.one(caller, job, self._settings(caller, changes, f"job {job}"))

    def change(
        self, caller: Caller, verb: str, which: Which, *, force: bool = False, changes: dict[str, Any] | None = None
    ) -> list[JobOutcome]:
        """Cancel, hold, resume, requeue or set all jobs that are meant; one that refuses does not stop the others."""
        simple = {"hold": changing.hold, "resume": changing.resume, "requeue": changing.requeue}
        if verb == "cancel":
            done = self._changes.many(caller, which, changing.cancel(force), but=JobState.CANCELLED)
        elif verb == "set":
            done = self._changes.many(caller, which, self._settings(caller, changes or {}, "change"))
        elif verb in simple:
            done = self._changes.many(caller, which, simple[verb])
        else:
            raise unknown("verb", verb, ("cancel", "set", *simple))
        view = self._store.view()
        jobs = {name: view.jobs[name] for name in done if name in view.jobs}
        infos = {name: self._shown(job, view, caller.tenant, whole=False) for name, job in jobs.items()}
        return [JobOutcome(name, error, infos.get(name)) for name, error in done.items()]

    def resubmit(self, caller: Caller, which: Which, changes: dict[str, Any]) -> list[list[str]]:
        """New jobs like these, but for some fields; elements of an array become one. Their ids as of `submit`."""
        caller.must_be(Role.USER)
        found = list(selecting.chosen(self._store.view(), caller, which))
        ids = self._submissions.take(caller, again(caller, found, changes), "", "")
        self._machines.wake()
        return ids

    def _settings(self, caller: Caller, changes: dict[str, Any], where: str) -> changing.Make:
        caller.must_be(Role.USER)

        def check(job: LiveJob, priority: int) -> None:
            highest = self._store.book.tenants.of(job.tenant).highest_priority
            most = inf if job.tenant in caller.administers else self._most_priority
            changing.check_priority(caller, priority, most if highest is None else highest)

        return changing.settings(changes, where, check)

    def _find(self, caller: Caller, job: str) -> LiveJob:
        with self._store.lock:
            return selecting.one(self._store.book, caller, job)


def _attempt(job: LiveJob, number: int) -> str:
    """The key of an attempt (0: the newest); '' before there is any."""
    had = len(job.attempts)
    if number > had:
        raise NotFound(f"job '{job.id}' has no attempt {number}: it has had {had}")
    return f"{job.id}-{number or had}" if had else ""
