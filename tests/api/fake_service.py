"""A service in memory, for the tests of its doors: jobs do nothing until a test says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotenant.backends.base import NodeInfo, Stream
from cotenant.backends.channels import ChannelSpec
from cotenant.backends.fake_channel import FakeChannel
from cotenant.backends.local.logs import LocalLog, LocalTimes
from cotenant.core.errors import CotenantError, InputError
from cotenant.core.jobspec import JobSpec
from cotenant.core.lifecycle import FINAL, JobState
from cotenant.core.proof import digest, proof
from cotenant.core.proof import hint as hint_of
from cotenant.core.tenants import Tenant, Tree
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.accounts.account import JobAccount, RunAccount
from cotenant.service.accounts.numbers import HeldGpus
from cotenant.service.accounts.share import SharePicture
from cotenant.service.accounts.usage import usage
from cotenant.service.desk.tenants import LiveTenants
from cotenant.service.facade import (
    EVERY,
    AttemptInfo,
    Caller,
    Conflict,
    EventInfo,
    JobInfo,
    JobList,
    JobOutcome,
    NodeStatus,
    NotFound,
    Role,
    TokenInfo,
    Unavailable,
    WhatIfWatch,
    Which,
)
from cotenant.service.forecasts.evaluate import Comparison, evaluate
from cotenant.service.node_windows import NodeWindow
from cotenant.service.pictures.desk import PictureBoard
from cotenant.service.pictures.trial import TrialAsked
from cotenant.service.store.book import Book
from cotenant.service.store.store import Store
from cotenant.service.store.view import BookView
from cotenant.tenancy.standing import loans, standings

ADMIN, USER_A, USER_B, VIEWER = "secret-admin", "secret-user-a", "secret-user-b", "secret-viewer"
NOW = 1_700_000_000.0
_COUNTED = ("decisions", "decision_s", "decision_timeouts", "preemptions", "suspensions", "moves", "lost_work_s")
COUNTERS: dict[str, float] = dict.fromkeys(_COUNTED, 0.0)
LIMITS = {"fifo": {"expected_end_s": NOW + 42, "expected_end_low_s": NOW + 30, "expected_end_high_s": NOW + 90}}


class TwoNodes:
    """What tenants are checked against."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(NodeInfo(name, "gpu", 4, 8, 32.0) for name in ("n0", "n1"))

    def wake(self) -> None:
        pass


class FakeService:
    """What the doors ask of a service, over dictionaries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed = threading.Condition()
        self.taking = threading.Lock()
        self.answers: dict[tuple[Caller, str], tuple[str, list[list[str]]]] = {}
        self.desk = self.admin = self.accounts = self
        store = Store(MemoryJournal(MemoryStore()))
        self.tenants = LiveTenants(store, TwoNodes())  # type: ignore[arg-type]
        self.pictures = PictureBoard(
            store,
            self,
            TwoNodes(),
            COUNTERS,
            lambda: "",
            self,
            lambda caller, specs: list(specs),  # type: ignore[arg-type]
        )
        self.infos: dict[str, JobInfo] = {}
        self.shut: dict[str, NodeWindow] = {}
        self.history_: list[EventInfo] = []
        self.logs: dict[tuple[str, str], Path] = {}  # in a folder per job, as older keepers named them
        self.secrets: dict[str, tuple[TokenInfo, Caller]] = {}
        self.node_states = {"n0": "up", "n1": "up"}
        self.live_policy = "fifo"
        self.full = False
        self.is_ready = True
        self.ended = ""
        self.submits = 0
        self.backups: list[str] = []
        self.foreseen = threading.Event()  # until then a what-if is not answered
        self.foreseen.set()
        self.set_calls: list[dict[str, Any]] = []
        for secret, role, tenant in (
            (ADMIN, Role.ADMIN, ""),
            (USER_A, Role.USER, "a"),
            (USER_B, Role.USER, "b"),
            (VIEWER, Role.VIEWER, ""),
        ):
            self._add_token(secret, secret.removeprefix("secret-"), role, tenant)

    # what tests do to it

    def event(self, kind: str, job: str = "", **data: Any) -> None:
        with self.changed:
            self.history_.append(EventInfo(len(self.history_) + 1, NOW, kind, job, data))
            self.changed.notify_all()

    def move(self, job: str, state: JobState, **more: Any) -> None:
        self.infos[job] = replace(self.infos[job], state=state, **more)
        self.event("state", job, state=state.value)

    def start(self, job: str) -> Path:
        """Run a job: it has an attempt and an empty log from now on."""
        attempt = AttemptInfo(1, "running", NOW, nodes=(("n0", (0, 1)),))
        for stream in ("stdout", "stderr"):
            self.logs[job, stream] = self.folder / job / f"{stream}.log"
            self.logs[job, stream].parent.mkdir(exist_ok=True)
            self.logs[job, stream].touch()
        self.move(job, JobState.RUNNING, started_s=NOW, attempts=(attempt,), reason="running")
        return self.logs[job, "stdout"]

    # the protocol

    def submit(self, caller: Caller, specs: list[JobSpec], key: str = "", asked: str = "") -> list[list[str]]:
        with self.taking:
            name = (caller, key)
            if not key or name not in self.answers:
                self.answers[name] = asked, self._take(caller, specs)
            if key and self.answers[name][0] != asked:
                raise Conflict("this key was used for another request")
            return self.answers[name][1]

    def _take(self, caller: Caller, specs: list[JobSpec]) -> list[list[str]]:
        if self.full:
            raise Unavailable("the disk is full: nothing was taken")
        self.submits += 1
        ids: list[list[str]] = []
        for spec in specs:
            for after in spec.after:
                if after not in self.infos:
                    raise InputError(f"field 'after' names '{after}', which is no job")
            base = str(len(self.infos) + 1)
            ids.append([base] if not spec.array else [f"{base}_{index}" for index in spec.array[:100]])
            for name in ids[-1]:
                self.infos[name] = JobInfo(
                    name, spec.name, spec.tenant or caller.tenant or "default", caller.name, JobState.PENDING,
                    "waiting for capacity", spec.gpus, spec.priority, NOW, None, None, NOW + 60, None, None, None,
                    {"loss": float("nan")}, (), spec.as_dict(), NOW + 50, NOW + 90,
                )  # fmt: skip
                self.event("submitted", name, spec=spec.as_dict())
        return ids

    def _visible(self, caller: Caller, job: str) -> JobInfo:
        info = self.infos.get(job)
        if info is None or (caller.tenant and info.tenant != caller.tenant):
            raise NotFound(f"no job '{job}'")
        return info

    def jobs(self, caller: Caller, which: Which = EVERY, *, limit: int = 1000, skip: int | None = None) -> JobList:
        mine = [job for job in self.infos.values() if not caller.tenant or job.tenant == caller.tenant]
        if which.jobs:
            mine = [self._visible(caller, name) for name in which.jobs]
        states = which.states
        found = [replace(job, spec={}, attempts=()) for job in mine if not states or job.state in states][skip or 0 :]
        some = JobList(found[-limit:])
        some.left_out = len(found) - len(some)
        return some

    def change(
        self, caller: Caller, verb: str, which: Which, *, force: bool = False, changes: dict[str, Any] | None = None
    ) -> list[JobOutcome]:
        done = []
        for name in which.jobs or [job.id for job in self.jobs(caller, which)]:
            try:
                if verb == "set":
                    self.set(caller, name, changes or {})
                else:
                    getattr(self, verb)(caller, name)
                done.append(JobOutcome(name, "", self.infos[name]))
            except CotenantError as error:
                done.append(JobOutcome(name, str(error), None))
        return done

    def requeue(self, caller: Caller, job: str) -> None:
        self._visible(caller, job)
        self.move(job, JobState.PENDING, reason="requeued")

    def resubmit(self, caller: Caller, which: Which, changes: dict[str, Any]) -> list[list[str]]:
        return [self._take(caller, [JobSpec.from_dict(self._visible(caller, name).spec)])[0] for name in which.jobs]

    def windows(self, caller: Caller) -> list[NodeWindow]:
        return list(self.shut.values())

    def add_window(self, caller: Caller, window: NodeWindow, gpus: int = 0) -> NodeWindow:
        made = replace(window, id=f"w{len(self.shut) + 1}")
        self.shut[made.id] = made
        return made

    def remove_window(self, caller: Caller, window: str) -> None:
        if self.shut.pop(window, None) is None:
            raise NotFound(f"no window '{window}'")

    def job(self, caller: Caller, job: str) -> JobInfo:
        return self._visible(caller, job)

    def why(self, caller: Caller, job: str) -> dict[str, Any]:
        return {"job": job, "cause": "waiting for capacity", "text": self._visible(caller, job).reason}

    def deadline(self, caller: Caller, job: str) -> dict[str, Any]:
        return {"job": self._visible(caller, job).id, "verdict": "no deadline", "text": "it has no deadline"}

    def events(
        self, caller: Caller, job: str = "", after: int = 0, limit: int = 1000, newest: bool = False
    ) -> list[EventInfo]:
        if job:
            self._visible(caller, job)
        found = [item for item in self.history_ if item.seq > after and job in ("", item.job)]
        if caller.tenant:
            found = [item for item in found if item.job and self.infos[item.job].tenant == caller.tenant]
        return found[-limit:] if newest else found[:limit]

    def wait_events(self, after: int, timeout_s: float) -> int:
        with self.changed:
            self.changed.wait_for(lambda: len(self.history_) > after, min(timeout_s, 5.0))
            return len(self.history_)

    def open_log(self, caller: Caller, job: str, stream: Stream = "stdout", attempt: int = 0) -> LocalLog | None:
        info = self._visible(caller, job)
        if attempt > len(info.attempts):
            raise NotFound(f"job '{job}' has no attempt {attempt}")
        return LocalLog(f"{job}-1", stream, (self.folder / job,), lambda: False) if info.attempts else None

    def open_times(self, caller: Caller, job: str, attempt: int) -> LocalTimes:
        return LocalTimes(LocalLog(f"{job}-1", "times", (self.folder / job,), lambda: False))

    def open_channel(self, caller: Caller, job: str, asked: ChannelSpec) -> FakeChannel:
        if self._visible(caller, job).state is not JobState.RUNNING:
            raise Conflict(f"job '{job}' does not run")
        return FakeChannel()

    def cancel(self, caller: Caller, job: str, force: bool = False) -> None:
        info = self._visible(caller, job)
        if info.state in FINAL and info.state is not JobState.CANCELLED:
            raise Conflict(f"job '{job}' has {info.state}")
        self.move(job, JobState.CANCELLED, ended_s=NOW)

    def hold(self, caller: Caller, job: str) -> None:
        if self._visible(caller, job).state in FINAL:
            raise Conflict(f"job '{job}' has ended")
        self.move(job, JobState.PENDING, reason="held")

    def resume(self, caller: Caller, job: str) -> None:
        if self._visible(caller, job).reason != "held":
            raise Conflict(f"job '{job}' is not held")
        self.move(job, JobState.PENDING, reason="waiting for capacity")

    def set(self, caller: Caller, job: str, changes: dict[str, Any]) -> None:
        self._visible(caller, job)
        self.set_calls.append(changes)
        own = {key: value for key, value in changes.items() if key in ("priority", "name")}
        self.infos[job] = replace(self.infos[job], **own)

    def nodes(self, caller: Caller) -> list[NodeStatus]:
        return [NodeStatus(name, "gpu", 4, 1, 8, 32.0, state, ()) for name, state in self.node_states.items()]

    def drain(self, caller: Caller, node: str, undo: bool = False) -> None:
        if node not in self.node_states:
            raise NotFound(f"no node '{node}'")
        self.node_states[node] = "up" if undo else "draining"

    def policy(self) -> str:
        return self.live_policy

    def set_policy(self, caller: Caller, policy: str) -> None:
        if policy.split(":")[0] not in ("fifo", "srtf", "srsf"):
            raise InputError(f"unknown policy '{policy}'")
        self.live_policy = policy

    def whatif(self, caller: Caller, policies: list[str], watch: WhatIfWatch | None = None) -> dict[str, Any]:
        assert watch is not None
        watch.policy, watch.jobs = policies[0], len(self.infos)
        assert self.foreseen.wait(30)
        rows = [
            {"id": job.id, self.live_policy: NOW + 60, **dict.fromkeys(policies, NOW + 42), "forecasts": LIMITS}
            for job in self.jobs(caller)
        ]
        return {"now": self.live_policy, "at_s": NOW, "jobs": rows}

    def line(self, now_s: float) -> list[str]:
        return []

    def answer(self, caller: Caller, asked: TrialAsked, watch: WhatIfWatch) -> dict[str, Any]:
        columns = ["fifo", *(f"{name} with changes" for name in asked.policies)]
        return {"at_s": NOW, "now": "fifo", "columns": columns, "partial": [], "jobs": [], "deadlines": {}}

    def evaluation(self, caller: Caller) -> dict[str, Any]:
        points = [Comparison("1", "start", "srtf", NOW, 100.0, 50.0, 200.0, 80.0)] if self.infos else []
        return evaluate(points, dict.fromkeys(("submit", "start", "half"), 1.0))

    def usage(
        self, caller: Caller, by: Sequence[str] = ("tenant",), from_s: float | None = None, to_s: float | None = None
    ) -> dict[str, Any]:
        had = RunAccount(2, ((NOW, NOW + 3600.0),))
        mine = [
            JobAccount(job.id, job.tenant, job.user, "", str(job.state), NOW, None, (had,)) for job in self.jobs(caller)
        ]
        until_s = NOW + 3600.0 if to_s is None else to_s
        return {"at_s": NOW, "from_s": from_s, "to_s": until_s, **usage(mine, by, from_s or 0.0, until_s)}

    def share(self, caller: Caller, tenant: str = "") -> dict[str, Any]:
        tree = Tree((Tenant("a", guaranteed=8), Tenant("b", guaranteed=8), Tenant("b1", "b", 4)))
        used, waiting = {"a": 6, "b1": 6}, {"a": 4}
        limits = {"b1": 6}
        rows, made = standings(tree, 16, used, waiting, limits, {"b1": 1.5}), loans(tree, used)
        view = BookView(Book(), {})
        return SharePicture(NOW, view, tree, 16, HeldGpus(used, waiting), limits, rows, made).as_dict(tenant)

    def _add_token(self, secret: str, name: str, role: Role, tenant: str) -> TokenInfo:
        token = TokenInfo(f"t{len(self.secrets) + 1}", name, role, tenant, NOW, False)
        self.secrets[secret] = (token, Caller(name, role, tenant, token=token.id))
        return token

    def tokens(self, caller: Caller) -> list[TokenInfo]:
        return [token for token, _ in self.secrets.values()]

    def create_token(
        self, caller: Caller, name: str, role: Role, tenant: str, *,
        scopes: tuple[str, ...] = (), lasts_s: float | None = None,
    ) -> tuple[TokenInfo, str]:  # fmt: skip
        secret = f"made-{len(self.secrets)}-secret"
        info = self._add_token(secret, name, role, tenant)
        if scopes or lasts_s is not None:
            info = replace(info, scopes=scopes, expires_s=None if lasts_s is None else NOW + lasts_s)
            self.secrets[secret] = (info, Caller(name, role, tenant, scopes, token=info.id))
        return info, secret

    def revoke_token(self, caller: Caller, token: str, *, force: bool = False) -> None:
        for secret, (info, owner) in self.secrets.items():
            if info.id == token:
                self.secrets[secret] = (replace(info, revoked=True), owner)
                return
        raise NotFound(f"no token '{token}'")

    def authenticate(self, secret: str) -> Caller | None:
        info, caller = self.secrets.get(secret, (None, None))
        return None if info is None or info.revoked else caller

    def holder(self, token: str) -> Caller | None:
        found = (who for info, who in self.secrets.values() if info.id == token and not info.revoked)
        return next(found, None)

    def prove(self, hint: str, nonce: str, address: str) -> str:
        known = (digest(secret) for secret, (info, _) in self.secrets.items() if not info.revoked)
        return next((proof(one, nonce, address) for one in known if hint_of(one) == hint), "")

    def backup(self, caller: Caller, path: str) -> None:
        if path in self.backups:
            raise Conflict(f"'{path}' exists")
        self.backups.append(path)

    def shut_down(self, caller: Caller, jobs: str) -> None:
        self.ended = jobs

    def metrics(self) -> dict[str, float]:
        return {"cotenant_queue_length": 3.0, 'cotenant_jobs{state="running"}': 1.0, "cotenant_decisions_total": 7.0}

    def ready(self) -> bool:
        return self.is_ready

    def trouble(self) -> str:
        return "" if self.is_ready else "not yet"

    def history(self, caller: Caller) -> Iterator[JobInfo]:
        return iter([job for job in self.jobs(caller) if job.state in FINAL])
