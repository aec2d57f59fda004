"""A service over a fake world whose clock moves only when told to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.core.columns import SLOTS
from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import JobState
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.runtime.protocol import Hello, JobMessage, Progress
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.store.job import Gpus

ADMIN = Caller("root", Role.ADMIN)
EPOCH_S = 1_000_000.0
ONE = (NodeInfo("n0", "gpu", 1, 8, 64.0, gpu_mem_gib=80.0),)


class Rig:
    """Service, world and journal; `restart` gives a new service over the same two."""

    def __init__(self, home: Path, policy: str = "fifo", nodes: tuple[NodeInfo, ...] = (), **more: Any) -> None:
        self.backend = FakeBackend(nodes or (NodeInfo("n0", "gpu", 4, 8, 64.0),))
        self.backend.world.now_s = EPOCH_S
        self.store, self.home, self.more = MemoryStore(), home, more
        self.shares = self.in_parts = False
        self.service = self._open(policy)

    def _open(self, policy: str) -> CoreService:
        journal = MemoryJournal(self.store, clock=lambda: self.backend.now_s)
        service = CoreService(
            journal, self.backend, home=self.home, policy=policy, grace_s=5.0,
            clock=lambda: self.backend.now_s, inline=True, check_invariants=True, **self.more,
        )  # fmt: skip
        service.reconcile()
        return service

    def restart(self) -> CoreService:
        self.service.store.journal.close()
        self.backend = self.backend.reopen()
        self.service = self._open("")
        return self.service

    def submit(self, run: str = "sleep 10", caller: Caller = ADMIN, **fields: Any) -> str:
        (ids,) = self.service.desk.submit(caller, [parse_job({"run": run, **fields})])
        return ids[0].split(".")[0] if "array" in fields else ids[0]

    def says(self, job: str, message: JobMessage) -> None:
        """A running job tells the service something."""
        attempt = len(self.service.store.book.jobs[job].attempts)
        self.service.reports.hear(Hello("", job, attempt, 1), message)

    def attempts(self, *jobs: str) -> list[int]:
        """How often each has started."""
        return [len(self.service.desk.job(ADMIN, job).attempts) for job in jobs]

    def state(self, job: str) -> str:
        return str(self.service.desk.job(ADMIN, job).state)

    def ticks(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, looking every `step`."""
        until = self.backend.now_s + seconds
        self.service.tick()
        while self.backend.now_s < until:
            self.backend.advance(step)
            self.service.tick()

    def finish(self, limit_s: float = 3000.0, step_s: float = 1.0) -> None:
        """Go on until every job has ended, looking at each event and every `step_s`; no GPU is ever given twice."""
        until = self.backend.now_s + limit_s
        while self.service.store.book.active:
            self.service.tick()
            self.check()
            assert self.backend.now_s < until, {
                job.id: str(job.state) for job in self.service.store.book.active.values()
            }
            self.backend.wait_change(step_s)

    def check(self) -> None:
        """No GPU has two jobs; where the policy shares, jobs share all of their GPUs and their memory fits."""
        users: dict[tuple[str, int], list[LaunchSpec]] = {}
        for job in self.backend.world.jobs.values():
            if job.state in ("starting", "running"):
                for node, indexes in job.spec.gpus:
                    for index in indexes:
                        users.setdefault((node, index), []).append(job.spec)
        for (node, _), specs in users.items():
            assert len(specs) == 1 or self.shares, specs
            assert len(specs) <= (SLOTS if self.in_parts else 2), specs
            assert len({spec.gpus for spec in specs}) == 1 or self.in_parts, specs
            size_gib = self.backend.world.nodes[node].gpu_mem_gib or math.inf
            told = {spec.job: self.service.reports.told(spec.job).gpu_mem_gib for spec in specs}  # since its launch
            assert sum(told[spec.job] or spec.gpu_mem_gib or 0.0 for spec in specs) <= size_gib, specs
        on_gpus = {job.id for job in self.service.store.book.jobs.values() if job.state in ON}
        assert on_gpus == set(self.service.store.book.on_gpus)


ON = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def play(rig: Rig, seconds: float) -> None:
    """As the service's own loop does: look when something happens, and when the policy wants to be asked."""
    until_s = rig.backend.now_s + seconds
    while rig.backend.now_s < until_s:
        wait_s = rig.service.tick()
        rig.check()
        rig.backend.wait_change(min(max(wait_s, 0.001), until_s - rig.backend.now_s))


def states(rig: Rig, jobs: Iterable[str]) -> list[str]:
    return [rig.state(job) for job in jobs]


def plan_rig(home: Path, policy: str, nodes: tuple[NodeInfo, ...] = ONE, **more: Any) -> Rig:
    """A policy that says on which GPUs every job sits, with whom and on what terms."""
    rig = Rig(home, policy, nodes, profile="h200", budget_s=60.0, **more)
    rig.shares = rig.in_parts = True
    return rig


def tell(rig: Rig, job: str, step: int, step_time_s: float) -> None:
    """As if a job had reported over its socket."""
    rig.says(job, Progress(step, 100_000, step_time_s=step_time_s, saves=True))


def cells(gpus: Gpus) -> set[tuple[str, int]]:
    return {(node, index) for node, indexes in gpus for index in indexes}
