"""A service whose disk and world are in memory, and which a test can crash at any numbered step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotenant.backends import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend, Script, read_script
from cotenant.core.columns import SLOTS
from cotenant.core.jobspec import JobSpec
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.policies import make_policy
from cotenant.policies.base import PlanPolicy
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.store.book import Book

ME = Caller("me", Role.ADMIN)
EPOCH_S = 1_800_000_000.0


class Crash(BaseException):
    """Not an `Exception`: nothing in the service may catch it, as nothing survives SIGKILL."""


@dataclass
class Fuse:
    """Counts the steps and crashes at chosen ones. `left` holds what each step would leave behind."""

    at: frozenset[int] = frozenset()
    look: Callable[[], Hashable] = lambda: None
    points: list[str] = field(default_factory=list)
    left: list[Hashable] = field(default_factory=list)

    def step(self, point: str) -> None:
        self.points.append(point)
        self.left.append(self.look())
        if len(self.points) in self.at:
            raise Crash(point)

    def distinct(self) -> list[int]:
        """The steps but those that would leave the very same disk and world as the step before."""
        return [n for n, left in enumerate(self.left, 1) if n == 1 or left != self.left[n - 2]]


@dataclass(frozen=True)
class Step:
    """Something a person does at a time: `act` returns only when it was acknowledged. May be done again."""

    at_s: float
    act: Callable[[CoreService], None]


class MemoryWorld:
    """Disk, processes and clock that outlive the service."""

    def __init__(
        self,
        home: Path,
        policy: str = "srtf:weigh=false",
        gpus: int = 4,
        crash_at: frozenset[int] = frozenset(),
        **more: Any,
    ) -> None:
        self.more = more
        policies = make_policy(policy)
        self.shares = policies.shares
        self.in_parts = isinstance(policies, PlanPolicy) and policies.shares
        self.most_users = 1
        self.home, self.policy, self.fuse = home, policy, Fuse(crash_at, self._left)
        self.store = MemoryStore()
        self.starts: list[str] = []
        self.resumes = 0
        self.acknowledged: dict[str, str] = {}
        self.first = FakeBackend((NodeInfo("fake", "gpu", gpus, 8, 64.0),), behave=self._behave)
        self.first.world.now_s = EPOCH_S
        self.restarts = -1
        self._journal: MemoryJournal | None = None

    def _left(self) -> Hashable:
        jobs = ((key, job.state, len(job.told)) for key, job in sorted(self.first.world.jobs.items()))
        return self.store.last_seq, self.store.snapshot and self.store.snapshot[0], *jobs

    def clock(self) -> float:
        return self.first.now_s

    def _behave(self, spec: LaunchSpec) -> Script:
        """Called at every real start: the place to see a job or a GPU taken twice."""
        assert spec.key not in self.starts, f"{spec.key} was started twice"
        self.starts.append(spec.key)
        for key, other in self.first.world.jobs.items():
            if other.state in ("starting", "running", "suspended"):
                assert other.spec.job != spec.job, f"{spec.key} starts while {key} runs"
        self._check_gpus(spec)
        return read_script(spec)

    def _check_gpus(self, spec: LaunchSpec) -> None:
        """Nobody else runs on the GPUs of a job that starts or goes on; suspended jobs do not run.

        Where the policy shares, there may be one who has the very same GPUs; where it names GPUs, others per GPU.
        """
        users = 1
        on: Counter[tuple[str, int]] = Counter()
        mine = {(node, index) for node, indexes in spec.gpus for index in indexes}
        for key, other in self.first.world.jobs.items():
            if other.state in ("starting", "running") and key != spec.key:
                taken = {(node, index) for node, indexes in other.spec.gpus for index in indexes}
                may = self.shares and (taken == mine or self.in_parts)
                assert not taken & mine or may, f"{spec.key} and {key} share {taken & mine}"
                users += bool(taken & mine)
                on.update(taken & mine)
        assert users <= 2 or (self.in_parts and max(on.values()) < SLOTS), spec
        self.most_users = max(self.most_users, users)

    def _act(self, point: str, key: str) -> None:
        if point == "resume.after" and key in self.first.world.jobs:
            self.resumes += 1
            self._check_gpus(self.first.world.jobs[key].spec)
        self.fuse.step(point)

    def start(self) -> CoreService:
        """The service after its start or restart."""
        self.restarts += 1
        if self._journal is not None:
            self._journal.close()
        self._journal = MemoryJournal(self.store, clock=self.clock)
        backend = self.first.reopen()
        backend.hook = self._act
        service = CoreService(
            self._journal, backend, home=self.home, policy=self.policy, grace_s=2.0, clock=self.clock,
            hook=self.fuse.step, inline=True, check_invariants=True, **self.more,
        )  # fmt: skip
        service.reconcile()
        return service

    def submit(self, service: CoreService, *specs: JobSpec) -> None:
        """As a careful client: a submission that was not answered is looked for before it is repeated."""
        there = {info.name for info in service.desk.jobs(ME)}
        missing = [spec for spec in specs if spec.name not in there]
        if missing:
            service.desk.submit(ME, missing)
        self.acknowledged |= {info.id: info.name for info in service.desk.jobs(ME)}

    def run(self, steps: list[Step], until_s: float = 1000.0) -> CoreService:
        """Play all steps to the end of all jobs, restarting after each crash."""
        service: CoreService | None = None
        ahead = list(steps)
        while self.first.now_s < EPOCH_S + until_s:
            try:
                service = service or self.start()
                while ahead and EPOCH_S + ahead[0].at_s <= self.first.now_s:
                    ahead[0].act(service)
                    ahead.pop(0)
                wait_s = service.tick()
                if not ahead and not service.store.book.active and not self.first.world.jobs:
                    return service
                due_s = EPOCH_S + ahead[0].at_s - self.first.now_s if ahead else math.inf
                service.backend.wait_change(min(wait_s, due_s))
            except Crash:
                service = None
        raise AssertionError(f"not done after {until_s} s: {service and service.desk.jobs(ME)}")


Ending = tuple[str, int | None, int]


def endings(book: Book) -> dict[str, Ending]:
    """What must not depend on crashes: state, exit code and counted failures of every job."""
    return {
        job.id: (str(job.state), job.attempts[-1].exit_code if job.attempts else None, job.failures)
        for job in book.jobs.values()
    }
