"""Observer, executor and store over a fake world, with a planner that does as a test tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from cotenant.backends.base import LaunchSpec, NodeInfo
from cotenant.backends.fake import FakeBackend
from cotenant.core.jobspec import parse_job
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.reasons import Reason
from cotenant.journal import Entry, Record
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.accounts.numbers import TenantNumbers
from cotenant.service.core import CoreService
from cotenant.service.facade import WhatIfWatch
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.observer.report import Report
from cotenant.service.planner.decision import Act, LiveDecision
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.store.book import Book
from cotenant.service.store.job import Gpus, LiveJob

EPOCH_S = 1_000_000.0
NODE = NodeInfo("n0", "gpu", 4, 8, 64.0)


class Silent:
    """Knows no reasons, foresees nothing, takes any policy."""

    def why(self, job: str, now_s: float) -> Reason | None:
        return None

    def forecast(self, policies: Sequence[str], watch: WhatIfWatch) -> dict[str, dict[str, Foretold | None]]:
        return {}

    def scene(self, policy: str = "") -> Any:
        return None

    def standing(self) -> dict[str, TenantNumbers]:
        return {}

    def check(self, policy: str) -> None:
        pass

    def begin_anew(self) -> None:
        pass


@dataclass
class Scripted(Silent):
    """Decides what it was told to, once."""

    acts: list[Act] = field(default_factory=list)
    promised: dict[str, Gpus] = field(default_factory=dict)
    remembered: dict[str, Any] = field(default_factory=dict)
    next_s: float = inf

    def step(self, now_s: float) -> LiveDecision:
        acts, self.acts = tuple(self.acts), []
        return LiveDecision(now_s, "stub", acts, self.next_s, dict(self.promised), dict(self.remembered))


@dataclass
class Greedy(Silent):
    """By priority, on the lowest free GPUs of one node. Whoever has to make room is suspended, or stopped.

    A suspended job waits for its own GPUs, `patience_s` at most; then it is ended.
    """

    book: Book
    gpus: int
    stops: Callable[[LiveJob], str] = lambda job: "suspend"
    patience_s: float = inf
    node: str = "n0"

    def step(self, now_s: float) -> LiveDecision:
        acts: list[Act] = []
        held: dict[int, LiveJob] = {}
        for job in self.book.on_gpus.values():
            held |= dict.fromkeys(_indexes(job.last.gpus), job)
        free = set(range(self.gpus)) - held.keys()
        waiting = [job for job in self.book.active.values() if job.state in WAITING and not (job.held or job.stop_why)]
        promised: dict[str, Gpus] = {}
        for job in sorted(waiting, key=lambda job: (-job.spec.priority, job.order)):
            mine = _indexes(job.last.gpus) if job.state == JobState.SUSPENDED else sorted(free)[: job.spec.gpus]
            if len(mine) == job.spec.gpus and free.issuperset(mine):
                kind = "resume" if job.state == JobState.SUSPENDED else "start"
                acts.append(Act(kind, job.id, ((self.node, tuple(mine)),)))
                free -= set(mine)
            elif job.state == JobState.SUSPENDED:
                if now_s - job.rung_s > self.patience_s and len(free) >= job.spec.gpus:
                    acts.append(Act("end", job.id))
            else:
                lower = {one.id: one for one in held.values() if one.spec.priority < job.spec.priority}
                if lower:
                    promised[job.id] = ((self.node, tuple(range(job.spec.gpus))),)
                for one in lower.values():
                    if not one.stop_why:
                        acts.append(Act(self.stops(one), one.id, why="preempt"))
                break
        return LiveDecision(now_s, "greedy", tuple(acts), inf, promised, {"waits": len(waiting)})


def _indexes(gpus: Gpus) -> list[int]:
    return [index for _, indexes in gpus for index in indexes]


class PartsRig:
    """The parts, the world and the journal; `restart` gives new parts over the same two."""

    def __init__(
        self, home: Path, nodes: tuple[NodeInfo, ...] = (NODE,),
        planner: Callable[[CoreService], PlannerPart] = lambda core: Scripted(), **more: Any,
    ) -> None:  # fmt: skip
        self.backend = FakeBackend(nodes)
        self.backend.world.now_s = EPOCH_S
        self.disk, self.home, self.make_planner = MemoryStore(), home, planner
        self.more = {"inline": True, "grace_s": 5.0, **more}
        self.open()

    def open(self) -> None:
        journal = MemoryJournal(self.disk, clock=lambda: self.backend.now_s)
        self.core = CoreService(
            journal, self.backend, planner=self.make_planner, home=self.home, clock=lambda: self.backend.now_s,
            **self.more,
        )  # fmt: skip
        self.core.reconcile()

    def restart(self) -> None:
        self.core.store.journal.close()
        self.backend = self.backend.reopen()
        self.open()

    @property
    def planner(self) -> Scripted:
        assert isinstance(self.core.planner, Scripted)
        return self.core.planner

    @property
    def book(self) -> Book:
        return self.core.store.book

    def submit(self, run: str = "sleep 10", **fields: Any) -> str:
        job = str(self.book.next_id)
        spec = replace(parse_job({"run": run, **fields}), tenant="t")
        self.tell("submit", job, spec=spec.as_dict(), tenant="t", user="u")
        return job

    def tell(self, kind: str, job: str, **data: Any) -> None:
        """As the desk does: journaled, and that is all."""
        self.core.store.write([Entry(kind, job, data)])

    def does(self, *acts: Act) -> None:
        """One look with this decision."""
        self.planner.acts += acts
        self.core.tick()

    def start(self, run: str = "sleep 100", at: int = 0, **fields: Any) -> str:
        """A job that runs by now, on GPUs from `at` on."""
        job = self.submit(run, **fields)
        gpus = self.book.jobs[job].spec.gpus
        self.does(Act("start", job, (("n0", tuple(range(at, at + gpus))),)))
        self.ticks(1)
        assert self.state(job) == "running"
        return job

    def saves(self, job: str) -> None:
        """As if it had said that it can save, and somebody were there to ask it."""
        reports = self.core.reports
        asked: set[str] = set()
        reports.of = lambda name: Report(saves=True, checkpoint_s=EPOCH_S) if name == job else None  # type: ignore
        reports.can_save = lambda name: name == job  # type: ignore[method-assign]
        reports.listens = lambda name: name in asked  # type: ignore[method-assign]
        reports.ask_to_stop = lambda name, grace_s: name == job and not asked.add(name)  # type: ignore

    def state(self, job: str) -> str:
        return str(self.book.jobs[job].state)

    def ticks(self, seconds: float, step: float = 1.0) -> None:
        until = self.backend.now_s + seconds
        self.core.tick()
        while self.backend.now_s < until:
            self.backend.advance(step)
            self.core.tick()

    def play(self, seconds: float) -> None:
        """As the service's own loop does: look when something happens, and when it is time to."""
        until_s = self.backend.now_s + seconds
        while self.backend.now_s < until_s:
            wait_s = self.core.tick()
            self.backend.wait_change(min(wait_s, until_s - self.backend.now_s))

    def story(self, job: str) -> list[str]:
        return [record.kind for record in self.records(job)]

    def records(self, job: str) -> list[Record]:
        return self.core.store.story(job)

    def told(self, job: str) -> list[str]:
        key = self.book.jobs[job].key
        return self.backend.world.jobs[key].told

    def spec(self, job: str) -> LaunchSpec:
        return self.backend.world.jobs[self.book.jobs[job].key].spec
