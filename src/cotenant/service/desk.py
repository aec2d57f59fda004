"""What people ask of the service: the facade, on top of the dispatcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any

from cotenant.backends.base import LogReader, NodeInfo, Stream
from cotenant.core.errors import CotenantError, InputError, unknown
from cotenant.core.jobspec import JobSpec, parse_job
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.plan import ALONE
from cotenant.core.reasons import Cause, Reason
from cotenant.journal import Entry, Record
from cotenant.policies import make_policy
from cotenant.service import once, shown
from cotenant.service.asked import check_gpu_memory, check_place
from cotenant.service.core import Dispatcher
from cotenant.service.facade import Caller, Conflict, EventInfo, JobInfo, NodeStatus, NotFound, Role, TokenInfo
from cotenant.service.forecast import forecast
from cotenant.service.live import Tables
from cotenant.service.livejob import LiveJob, plain_spec
from cotenant.service.memory import check_nodes
from cotenant.service.promises import deadline_of

LONG_QUEUE = 3000
WHY_AGE_S = 2.0  # in a long queue answers to `why` may be this old while jobs come and go
ASKED_LATELY_S = 60.0
SETTABLE = ("name", "priority", "deadline", "max_runtime", "retries", "expected", "gpus")


class CoreService(Dispatcher):
    """The one implementation of `cotenant.service.facade.Service`."""

    _next_id = 1  # above every id that was ever given out, also to submissions on their way to the disk
    _explained: tuple[Tables | None, int] = (None, 0)
    _asked_s = 0.0

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._on_way: dict[str, tuple[once.Answer, Future[list[int]]]] = {}  # submissions with a key, by its name

    def submit(self, caller: Caller, specs: list[JobSpec], key: str = "", asked: str = "") -> list[list[str]]:
        """See the facade."""
        self._allow(caller, Role.USER)
        name = once.name_of(caller, key) if key else ""
        with self._lock:
            known = self.book.answers.get(name, asked, self.clock())
            if known is not None:
                return known
            if name in self._on_way:
                answer, future = self._on_way[name]
                ids = once.same(answer, asked).ids
            else:
                entries, ids, number = self._entries(caller, specs)
                if not entries:
                    return ids
                if key:
                    entries.append(Entry("once", data={"name": name, "asked": asked, "ids": once.packed(ids)}))
                future = self._begin_write(entries)
                self._next_id = number
                if key:
                    self._on_way[name] = once.Answer(asked, self.clock(), ids), future
        try:
            self._end_write(future)  # without the lock: submissions that wait together share one flush
        finally:
            self._on_way.pop(name, None)
        self.backend.wake()
        return ids

    def _entries(self, caller: Caller, specs: list[JobSpec]) -> tuple[list[Entry], list[list[str]], int]:
        """What to journal for a submission, the ids in it, and the next number after them."""
        nodes = self.backend.nodes()
        entries, ids = [], []
        number = max(self.book.next_id, self._next_id)
        named: dict[str, str] = {}  # jobs of this very submission, by id and by name
        for spec in specs:
            spec = self._accepted(caller, spec, nodes, named)
            named[str(number)] = named[spec.name] = str(number)
            mine = []
            for index in spec.array or (None,):
                job_id = f"{number}" if index is None else f"{number}.{index}"
                one = spec if index is None else replace(
                    spec, array=(), env={**spec.env, "COTENANT_ARRAY_INDEX": str(index)}
                )  # fmt: skip
                data = {"spec": plain_spec(one), "tenant": spec.tenant, "user": caller.name}
                entries.append(Entry("submit", job_id, data))
                mine.append(job_id)
            ids.append(mine)
            number += 1
        return entries, ids, number

    def _accepted(self, caller: Caller, spec: JobSpec, nodes: Sequence[NodeInfo], named: dict[str, str]) -> JobSpec:
        tenant = spec.tenant or caller.tenant or "default"
        if caller.tenant and tenant != caller.tenant:
            raise InputError(
                f"job '{spec.name}': field 'tenant' is '{tenant}', but your token is for '{caller.tenant}'"
            )
        if spec.gpus < 1:
            raise InputError(f"job '{spec.name}': field 'gpus' must be at least 1")
        check_place(spec, nodes)
        check_gpu_memory(spec, nodes)
        after = tuple(named.get(other) or self._existing(caller, spec, other) for other in spec.after)
        return replace(spec, tenant=tenant, after=after)

    def _existing(self, caller: Caller, spec: JobSpec, other: str) -> str:
        """The id that `after` means: an id, an array, or the newest job of that name."""
        seen = [job for job in self.book.jobs.values() if not caller.tenant or job.tenant == caller.tenant]
        if any(not caller.tenant or job.tenant == caller.tenant for job in self.book.members(other)):
            return other
        for job in reversed(seen):
            if job.spec.name == other:
                return job.id.split(".")[0]
        raise InputError(f"job '{spec.name}': field 'after' names '{other}', but there is no such job")

    def _find(self, caller: Caller, job: str) -> LiveJob:
        found = self.book.jobs.get(job)
        if found is None or (caller.tenant and found.tenant != caller.tenant):
            raise NotFound(f"there is no job '{job}'")
        return found

    @staticmethod
    def _allow(caller: Caller, role: Role) -> None:
        ranks = {Role.VIEWER: 0, Role.USER: 1, Role.ADMIN: 2}
        if ranks[caller.role] < ranks[role]:
            raise CotenantError(f"this needs the role {role}")

    def jobs(self, caller: Caller, *, states: tuple[str, ...] = (), limit: int = 1000) -> list[JobInfo]:
        """See the facade."""
        with self._lock:
            chosen = [
                job
                for job in self.book.jobs.values()
                if (not caller.tenant or job.tenant == caller.tenant) and (not states or str(job.state) in states)
            ][-limit:]
            return [self._shown(job, whole=False, tenant=caller.tenant) for job in chosen]

    def job(self, caller: Caller, job: str) -> JobInfo:
        """See the facade."""
        with self._lock:
            return self._shown(self._find(caller, job), whole=True, tenant=caller.tenant)

    def _shown(self, job: LiveJob, whole: bool, tenant: str = "") -> JobInfo:
        return shown.job_info(job, self._reason(job, tenant), self.reports.of(job.id), self.clock(), whole)

    def _reason(self, job: LiveJob, tenant: str = "") -> str:
        if job.id in self.book.on_gpus:
            return shown.company(job, self.book, tenant) or job.message
        if job.state not in WAITING:
            return job.message
        if job.held:
            return "held"
        other = self._waits_for(job)
        return f"after job {other}" if other else job.message or "waiting for GPUs"

    def why(self, caller: Caller, job: str) -> dict[str, Any]:
        """See the facade."""
        with self._lock:
            found = self._find(caller, job)
            self._asked_s = self.clock()
            if not self._startable(found):
                cause = str(found.state) if found.state not in WAITING else self._reason(found)
                text = self._reason(found, caller.tenant) or f"it is {found.state}"
                return {"job": job, "at_s": self.clock(), "cause": cause, "text": text}
            if (reason := self._round_reason(found)) is not None:
                return reason.as_dict()
            tables, seq = self._explained
            row = tables.row_of(job) if tables is not None and self._fresh(tables, seq, WHY_AGE_S) else None
            if tables is None or row is None or not tables.waits(row):
                tables = self._tables()
                self._explained = tables, self.book.seq
                row = tables.row_of(job) if tables is not None else None
            if tables is None or row is None:
                return {"job": job, "at_s": self.clock(), "cause": "waiting for capacity", "text": "no node is up"}
            return tables.why(row).as_dict()

    def deadline(self, caller: Caller, job: str) -> dict[str, Any]:
        """See the facade."""
        with self._lock:
            found, cost_s = self._find(caller, job), self.book.preemption_cost_s(0.0)
            return deadline_of(self.book, self.backend.nodes(), found, self.clock(), cost_s)

    def _round_reason(self, job: LiveJob) -> Reason | None:
        """The reason under a policy of rounds, from its last decision; None under others and before the first."""
        now_s, standings = self.clock(), self._plan.standings
        if self._plan.policy != self.book.policy:
            return None
        if job.id in self._promised:
            nodes = ", ".join(f"{count} of {name}" for name, count in self._promised[job.id])
            mate = " beside another job" if job.id in self._beside else ""
            when = (
                "when its turn comes"
                if self._terms.get(job.id, ALONE).turn
                else "as soon as others have given them back"
            )
            text = f"it is chosen and has {nodes}{mate} {when}"
            return Reason(job.id, now_s, Cause.CAPACITY, text, job.spec.gpus)
        if job.id in self._plan.reasons:
            return Reason(job.id, now_s, Cause.BEHIND_HEAD, self._plan.reasons[job.id], job.spec.gpus)
        return standings.reason(job.id, now_s) if standings is not None else None

    def _fresh(self, tables: Tables, seq: int, age_s: float) -> bool:
        """Whether tables may still serve for explanations: nothing has changed or, in a long queue, not long ago."""
        recent = len(tables.jobs.ids) > LONG_QUEUE and self.clock() - tables.now_s <= age_s
        return tables.policy_name == self.book.policy and (seq == self.book.seq or recent)

    def _renew_explanations(self) -> None:
        """While people ask why, the scheduler's thread renews the tables, so that nobody waits for that."""
        with self._lock:
            tables, seq = self._explained
            long_ago = self.clock() - self._asked_s > ASKED_LATELY_S
            if tables is None or long_ago or len(tables.jobs.ids) <= LONG_QUEUE:
                self._explained = None, 0
                return
            if self._fresh(tables, seq, WHY_AGE_S / 2):
                return
            make, seq = self._gathered(), self.book.seq
        renewed = make() if make is not None else None
        if renewed is not None:
            renewed.prepare()
        with self._lock:
            self._explained = renewed, seq

    def events(self, caller: Caller, job: str = "", after: int = 0, limit: int = 1000) -> list[EventInfo]:
        """See the facade."""
        if job:
            self._find(caller, job)
            records: Iterator[Record] = (r for r in self.journal.read_job(job) if r.seq > after)
        else:
            records = self.journal.read(after)
        found = []
        for record in records:
            owner = self.book.jobs.get(record.job)
            hidden = caller.tenant and (owner is None or owner.tenant != caller.tenant)
            if hidden or record.kind in ("token", "revoke", "once"):
                continue
            data = shown.event_data(record)
            found.append(EventInfo(record.seq, record.time_s, record.kind, record.job, data))
            if len(found) >= limit:
                break
        return found

    def wait_events(self, after: int, timeout_s: float) -> int:
        """See the facade."""
        with self._changed:
            self._changed.wait_for(lambda: self.book.seq > after, timeout_s)
        return self.book.seq

    def open_log(self, caller: Caller, job: str, stream: Stream = "stdout", attempt: int = 0) -> LogReader | None:
        """See the facade."""
        with self._lock:
            found = self._find(caller, job)
            number = attempt or len(found.attempts)
            known = 1 <= number <= len(found.attempts)
        return self.backend.open_log(f"{found.id}-{number}", stream) if known else None

    def cancel(self, caller: Caller, job: str) -> None:
        """See the facade."""
        self._allow(caller, Role.USER)
        with self._lock:
            found = self._find(caller, job)
            if found.state == JobState.CANCELLED:
                return
            if found.finished:
                raise Conflict(f"job {job} has {found.state}")
            if found.stop_why != "cancel":
                self.write([Entry("stop", job, {"why": "cancel"})])
        self.backend.wake()

    def hold(self, caller: Caller, job: str) -> None:
        """See the facade."""
        self._allow(caller, Role.USER)
        with self._lock:
            found = self._find(caller, job)
            if found.finished:
                raise Conflict(f"job {job} has {found.state}")
            self.write([Entry("hold", job)])
        self.backend.wake()

    def resume(self, caller: Caller, job: str) -> None:
        """See the facade."""
        self._allow(caller, Role.USER)
        with self._lock:
            found = self._find(caller, job)
            if found.finished:
                raise Conflict(f"job {job} has {found.state}")
            self.write([Entry("resume", job)])
        self.backend.wake()

    def set(self, caller: Caller, job: str, changes: dict[str, Any]) -> None:
        """See the facade."""
        self._allow(caller, Role.USER)
        for key in changes:
            if key not in SETTABLE:
                raise unknown("field to set", key, SETTABLE)
        spec = asdict(parse_job({"run": "-", **changes}, f"job {job}"))
        names = {"deadline": "deadline_s", "max_runtime": "max_runtime_s", "expected": "expected_s"}
        values = {names.get(key, key): spec[names.get(key, key)] for key in changes}
        if "deadline" in changes:
            values["deadline_steps"] = spec["deadline_steps"]
        gpus = values.pop("gpus", None)
        with self._lock:
            found = self._find(caller, job)
            if found.finished:
                raise Conflict(f"job {job} has {found.state}")
            if gpus is not None:
                _check_size(found, gpus)
            resize = [] if gpus is None else [Entry("resize", job, {"gpus": gpus})]
            self.write([*([Entry("set", job, values)] if values else []), *resize])
        self.backend.wake()

    def nodes(self, caller: Caller) -> list[NodeStatus]:
        """See the facade."""
        with self._lock:
            statuses = shown.node_statuses(self.backend.nodes(), self.book)
        if not caller.tenant:
            return statuses
        mine = {job.id for job in self.book.active.values() if job.tenant == caller.tenant}
        return [replace(status, jobs=tuple(job for job in status.jobs if job in mine)) for status in statuses]

    def drain(self, caller: Caller, node: str, undo: bool = False) -> None:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        if node not in {item.name for item in self.backend.nodes()}:
            raise NotFound(f"there is no node '{node}'")
        with self._lock:
            self.write([Entry("drain", data={"node": node, "undo": undo})])
        self.backend.wake()

    def policy(self) -> str:
        """See the facade."""
        return self.book.policy

    def set_policy(self, caller: Caller, policy: str) -> None:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        if ".py" in policy.split(":", 1)[0]:
            raise InputError("a policy from a file can only be set when the service starts: cotenant serve --policy")
        check_nodes(make_policy(policy), policy, self.backend.nodes())
        with self._lock:
            self.write([Entry("policy", data={"policy": policy})])
        self.backend.wake()

    def whatif(self, caller: Caller, policies: list[str]) -> dict[str, Any]:
        """See the facade. The tables are built under the lock, the forecasts run without it."""
        with self._lock:
            now = self.book.policy
            names = list(dict.fromkeys([now, *policies]))
            tables = {name: self._tables(name) for name in names}
            shown_jobs = [job for job in self.book.active.values() if not caller.tenant or job.tenant == caller.tenant]
            rows: list[dict[str, Any]] = [{"id": job.id, "name": job.spec.name} for job in shown_jobs]
        for name in names:
            table = tables[name]
            finish = forecast(table) if table is not None else {}
            for row in rows:
                row[name] = finish.get(row["id"])
        return {"now": now, "at_s": self.clock(), "policies": names, "jobs": rows}

    def tokens(self, caller: Caller) -> list[TokenInfo]:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        return self.tokens_of.listed()

    def create_token(self, caller: Caller, name: str, role: Role, tenant: str) -> tuple[TokenInfo, str]:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        with self._lock:
            data, secret = self.tokens_of.new(name, role, tenant)
            self.write([Entry("token", data=data)])
            return self.tokens_of.info(data["id"]), secret

    def revoke_token(self, caller: Caller, token: str) -> None:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        with self._lock:
            if token not in self.book.tokens:
                raise NotFound(f"there is no token '{token}'")
            self.write([Entry("revoke", data={"id": token})])

    def authenticate(self, secret: str) -> Caller | None:
        """See the facade."""
        return self.tokens_of.whose(secret)

    def backup(self, caller: Caller, path: str) -> None:
        """See the facade."""
        self._allow(caller, Role.ADMIN)
        folder = (self.home / "backups").resolve()
        target = (folder / path).resolve()
        if folder not in target.parents:
            raise InputError(f"backup path '{path}' must stay inside {folder}")
        if target.exists():
            raise Conflict(f"'{path}' exists already")
        target.parent.mkdir(parents=True, exist_ok=True)
        self.journal.backup(target)

    def metrics(self) -> dict[str, float]:
        """See the facade."""
        with self._lock:
            return shown.metrics(self.book, self.backend.nodes(), self.counters, self.clock())

    def ready(self) -> bool:
        """See the facade."""
        return self._ready

    def history(self, caller: Caller) -> Iterator[JobInfo]:
        """See the facade."""
        with self._lock:
            mine = (
                self.book.jobs.values()
                if not caller.tenant
                else (job for job in self.book.jobs.values() if job.tenant == caller.tenant)
            )
            ended = [job for job in mine if job.finished]
            return iter([self._shown(job, whole=True) for job in ended])


def _check_size(job: LiveJob, gpus: int) -> None:
    """Only elastic jobs change their size, and only within the limits that they were submitted with."""
    low, high = max(job.spec.min_gpus, 1), job.spec.max_gpus
    if not high:
        raise InputError(f"job {job.id} is not elastic: submit it with elastic: {{min_gpus: 1, max_gpus: 4}}")
    if not low <= gpus <= high:
        raise InputError(f"job {job.id} takes {low} to {high} GPUs, not {gpus}")
