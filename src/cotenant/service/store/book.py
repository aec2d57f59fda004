"""Everything the service knows of its jobs, as the sum of journal records. No I/O: records in, state out.

`Book.apply` is the only way in, whether a record was just written or is replayed, so a service that crashed and one
that did not end up with the same book.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from cotenant.core.lifecycle import ON_GPUS, JobState
from cotenant.journal import Record
from cotenant.service.forecasts.calibration import Calibration
from cotenant.service.node_windows import NodeWindow
from cotenant.service.store.barriers import Barriers
from cotenant.service.store.costs import Costs, before_rungs
from cotenant.service.store.health import BookHealth
from cotenant.service.store.idempotency import Answers
from cotenant.service.store.job import (
    CONTINUE,
    SUSPEND,
    Gpus,
    LiveJob,
    User,
    cells,
    frozen,
    gpu_seconds,
    read_gpus,
    thawed,
)
from cotenant.service.store.learned import Learned
from cotenant.service.store.records import WRITTEN, change_book, change_job
from cotenant.service.store.replicas import BookServices
from cotenant.service.store.tenants import BookTenants


class Book:
    """Jobs, tokens, policy, drained nodes and windows; what jobs were promised, and what the policy remembers.

    `active`, `pending`, `on_gpus`, `suspended`, `ahead` (pending, with a process that waits for GPUs), `chained`
    (pending, with predecessors), `held` (not on GPUs), `serving` (replicas of services) and `arrays` are indexes into
    `jobs`, so that nobody has to walk a long queue; and so are, of jobs on GPUs, `stopping` and `turning` (about to be
    suspended, or to go on).
    `touched` collects jobs that changed, for whoever mirrors them, and so does `unseen`, in the order in which they
    came, for the pictures that readers get, and `unplaced` of pending ones, for whoever compares what they ask with the
    nodes that are there. `unlooked` and `unpressed` do so of jobs that were ever launched: for the observer, and for
    the executor.
    `shared_gpus` counts the GPUs that several jobs have, `unfinished` and `waiting` (pending) the jobs of each
    tenant's users, and `gpu_s` the GPU-seconds that each tenant ever had, but for those of runs that go on.
    """

    def __init__(self, policy: str = "fifo") -> None:
        self.jobs: dict[str, LiveJob] = {}
        self.active: dict[str, LiveJob] = {}
        self.on_gpus: dict[str, LiveJob] = {}
        self.stopping: dict[str, LiveJob] = {}
        self.turning: dict[str, LiveJob] = {}
        self.serving: dict[str, LiveJob] = {}
        self.suspended: dict[str, LiveJob] = {}
        self.ahead: dict[str, LiveJob] = {}
        self.chained: dict[str, LiveJob] = {}
        self.held: dict[str, LiveJob] = {}
        self.pending: dict[str, LiveJob] = {}
        self.arrays: dict[str, list[str]] = {}
        self.touched: set[str] = set()
        self.unseen: dict[str, None] = {}
        self.unplaced: set[str] = set()
        self.unlooked: set[str] = set()
        self.unpressed: set[str] = set()
        self.shared_gpus = 0
        self.unfinished: Counter[User] = Counter()
        self.waiting: Counter[User] = Counter()
        self.gpu_s: defaultdict[str, float] = defaultdict(float)
        self._users: Counter[tuple[str, int]] = Counter()  # jobs on each GPU
        self.promises: dict[str, Gpus] = {}
        self.memory: dict[str, Any] = {}
        self.costs, self.learned, self.answers, self.barriers = Costs(), Learned(), Answers(), Barriers()
        self.calibration = Calibration()  # of forecasts
        self.tokens: dict[str, dict[str, Any]] = {}
        self.drained: set[str] = set()
        self.asleep: set[str] = set()  # nodes that should sleep
        self.health = BookHealth()
        self.windows: dict[str, NodeWindow] = {}
        self.tenants = BookTenants()
        self.services = BookServices()  # of inference
        self.policy = policy
        self.lineage = ""  # by which a home knows its journal again, also as a copy in another database
        self.offset: tuple[str, float] | None = None  # boot of the machine, and wall time at its beginning
        self.next_id = 1
        self.archived = 0  # the last record of the archive of accounts
        self.seq = 0

    def apply(self, record: Record) -> None:
        """Take one record in. Records of jobs long forgotten, and of kinds that change nothing, are passed over."""
        self.seq = record.seq
        now_s = float(record.data.get(WRITTEN, record.time_s))
        job = self.jobs.get(record.job)
        if job is not None and record.kind != "memory":
            change_job(self, job, record, now_s)
        else:
            change_book(self, record, now_s)
            job = self.jobs.get(record.job)
        if job is not None:
            self._index(job)

    def enter(self, job: LiveJob) -> None:
        """A new job."""
        self.jobs[job.id] = job
        array, dot, _ = job.id.partition(".")
        self.next_id = max(self.next_id, int(array) + 1)
        if dot:
            self.arrays.setdefault(array, []).append(job.id)

    def leave(self, job: str) -> None:
        """A job that ended long ago is forgotten."""
        self.jobs.pop(job, None)
        self.unseen[job] = None
        array, dot, _ = job.partition(".")
        members = self.arrays.get(array, []) if dot else []
        if job in members:
            members.remove(job)
        if not members:
            self.arrays.pop(array, None)
            self.services.forget(array)

    def _index(self, job: LiveJob) -> None:
        """Bring the indexes in line with the state of a job."""
        self.touched.add(job.id)
        self.unseen[job.id] = None
        pending, user = job.state == JobState.PENDING, (job.tenant, job.user)
        if pending:
            self.unplaced.add(job.id)
        self.unfinished[user] += (not job.finished) - (job.id in self.active)
        self.waiting[user] += pending - (job.id in self.pending)
        _keep(self.active, job, not job.finished)
        _keep(self.pending, job, pending)
        if (job.state in ON_GPUS) != (job.id in self.on_gpus):
            self._count_users(job, 1 if job.state in ON_GPUS else -1)
        if job.attempts:
            self._index_launched(job)
        _keep(self.held, job, job.state in (JobState.PENDING, JobState.SUSPENDED) and job.held)
        _keep(self.serving, job, not job.finished and bool(job.spec.service))
        _keep(self.chained, job, pending and bool(job.spec.after))

    def _index_launched(self, job: LiveJob) -> None:
        """The same of what only jobs can be that were launched."""
        self.unlooked.add(job.id)
        self.unpressed.add(job.id)
        on_gpus = job.state in ON_GPUS
        _keep(self.on_gpus, job, on_gpus)
        _keep(self.stopping, job, job.state == JobState.STOPPING)
        _keep(self.turning, job, on_gpus and job.rung in (SUSPEND, CONTINUE))
        _keep(self.suspended, job, job.state == JobState.SUSPENDED)
        _keep(self.ahead, job, job.holds)

    def _count_users(self, job: LiveJob, change: int) -> None:
        """A job comes to its GPUs (1) or leaves them (-1)."""
        for cell in cells(job.last.gpus):
            before = self._users[cell]
            self._users[cell] = before + change
            self.shared_gpus += (before + change > 1) - (before > 1)

    def shares(self, job: LiveJob) -> bool:
        """Whether others are on its GPUs too."""
        return bool(self.shared_gpus) and any(self._users[cell] > 1 for cell in cells(job.last.gpus))

    def shift(self, by_s: float) -> None:
        """The clock was set: what is under way began so much later, so that it has lasted as long as it has."""
        for job in self.active.values():
            job.shift(by_s)
            self.touched.add(job.id)
            self.unseen[job.id] = None
        self.unpressed.update(self.on_gpus)
        self.answers.shift(by_s)

    def alive(self) -> list[LiveJob]:
        """Jobs that have a process, or are about to."""
        return [*self.on_gpus.values(), *self.suspended.values(), *self.ahead.values()]

    def living(self, job: str) -> LiveJob | None:
        """One of them."""
        return self.on_gpus.get(job) or self.suspended.get(job) or self.ahead.get(job)

    def members(self, job: str) -> list[LiveJob]:
        """The job of this id, or all elements of the array of this id; those forgotten are left out."""
        found = self.jobs.get(job)
        return [found] if found is not None else [self.jobs[name] for name in self.arrays.get(job, ())]

    def preemption_cost_s(self, unknown_s: float) -> float:
        """Seconds that a preemption cost on average, lost work included; `unknown_s` before any was measured."""
        return self.costs.mean_s(unknown_s)

    def freeze(self) -> bytes:
        """The whole book as bytes, for a snapshot."""
        return packed(self.jobs.values(), self.rest())

    def rest(self) -> dict[str, Any]:
        """Everything but the jobs as plain data, which later changes of the book leave alone."""
        tokens = {name: dict(token) for name, token in self.tokens.items()}
        return {
            "tokens": tokens, "drained": sorted(self.drained), "policy": self.policy, "next_id": self.next_id,
            "seq": self.seq, "rungs": self.costs.rows(), "learned": self.learned.rows(), "once": self.answers.rows(),
            "promises": dict(self.promises), "memory": dict(self.memory),
            "windows": [window.as_dict() for window in self.windows.values()],
            "lineage": self.lineage, "offset": self.offset, "calibration": self.calibration.rows(),
            "barriers": self.barriers.rows(), "tenants": self.tenants.as_dict(), "gpu_s": dict(self.gpu_s),
            "archived": self.archived, "asleep": sorted(self.asleep), "health": self.health.rows(),
            "services": self.services.rows(),
        }  # fmt: skip

    @classmethod
    def thaw(cls, state: bytes) -> Book:
        """The inverse of `freeze`, also for the snapshots of older versions."""
        data = json.loads(state)
        book = cls(data["policy"])
        for row in data["jobs"]:
            job = thawed(row)
            book.enter(job)
            cls._index(book, job)
        book.tokens, book.drained = data["tokens"], set(data["drained"])
        book.next_id, book.seq = data["next_id"], data["seq"]
        book.costs = Costs(data["rungs"] if "rungs" in data else before_rungs(data["costs"]))
        book.learned = Learned(data.get("learned", ()))
        book.answers, book.calibration = Answers(data.get("once")), Calibration(data.get("calibration"))
        book.promises = {job: read_gpus(gpus) for job, gpus in data.get("promises", {}).items()}
        book.memory = data.get("memory", {})
        book.windows = {row["id"]: NodeWindow.from_dict(row) for row in data.get("windows", ())}
        book.barriers = Barriers(data.get("barriers"))
        book.tenants = BookTenants.from_dict(data.get("tenants"))
        book.gpu_s.update(data["gpu_s"] if "gpu_s" in data else gpu_seconds(book.jobs.values()))
        book.archived, book.asleep = data.get("archived", 0), set(data.get("asleep", ()))
        book.health, book.services = BookHealth(data.get("health")), BookServices(data.get("services"))
        book.lineage = data.get("lineage", "")
        book.offset = tuple(data["offset"]) if data.get("offset") else None
        return book


def packed(jobs: Iterable[LiveJob], rest: dict[str, Any]) -> bytes:
    """Jobs, or pictures of them, and the `rest` of a book, as `Book.thaw` reads them."""
    return json.dumps({"jobs": [frozen(job) for job in jobs], **rest}).encode()


def _keep(index: dict[str, LiveJob], job: LiveJob, wanted: bool) -> None:
    if wanted:
        index[job.id] = job
    else:
        index.pop(job.id, None)
