"""The service: journal, book, backend and policy, and the loop that brings them together.

Order of every change: write the intent to the journal, take it into the book, act. After a crash the book is
rebuilt and compared with what the backend really runs before anything is decided; launches carry a key, so
doing one again is harmless. What is not a part of its own yet is one class on top of the other:

    watching     what really runs, how it ended, what is left of it
    ladder       how a job gives its GPUs back
    gathering    what may run, as columns
    deciding     what should run
    launching    starting that
    seating      starting it on GPUs that the policy names, on its terms
    hosting      cores and memory of what runs
    core         the loop
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotenant.backends.base import Backend
from cotenant.core.lifecycle import JobState
from cotenant.journal import Entry, Journal
from cotenant.service.desk.admin import Admin
from cotenant.service.desk.desk import Desk
from cotenant.service.executor.host_limits import Host
from cotenant.service.options import DECISION_BUDGET_S, KEEP_S, MOST_SUSPENDED, ROUND_S, Options
from cotenant.service.planner.answers import Answers

RETIRE_EVERY_S = 3600.0


class CoreService(Host):
    """Recovery, reconciliation, `tick`, and the desks for people."""

    def __init__(
        self, journal: Journal, backend: Backend, *, home: Path, policy: str = "", grace_s: float = 30.0,
        clock: Callable[[], float] = time.time, hook: Callable[[str], None] = lambda point: None,
        keep_s: float = KEEP_S, budget_s: float = DECISION_BUDGET_S, max_suspended: int = MOST_SUSPENDED,
        round_s: float = ROUND_S, profile: str = "none", allocator: str = "", curves: str = "",
    ) -> None:  # fmt: skip
        options = Options(
            home, grace_s, clock, hook, keep_s, budget_s, max_suspended, round_s, profile, allocator, curves
        )
        super().__init__(journal, backend, options)
        self.planner = Answers(self)
        self.desk = Desk(self.store, self.planner, backend, self.reports.of, self.logs.find)
        self.admin = Admin(self.store, self.planner, backend, home, self.counters, lambda: self._ready)
        if policy and policy != self.book.policy:
            self.planner.check(policy)
            self.write([Entry("policy", data={"policy": policy})])

    def __getattr__(self, name: str) -> Any:
        """What is asked at a desk, without naming it."""
        for desk in (self.__dict__.get("desk"), self.__dict__.get("admin")):
            if not name.startswith("_") and hasattr(desk, name):
                return getattr(desk, name)
        raise AttributeError(name)

    def tick(self) -> float:
        """Observe, end, escalate, decide, act; seconds after which to look again at the latest.

        The decision itself is made without the lock, on tables of its own; whatever changed meanwhile is
        checked again before acting. So are jobs suspended and continued: the driver may take seconds for that.
        """
        with self._lock:
            self._observe()
            self._escalate()
            self._give_up_orphans()
            began, asked_s = time.perf_counter(), self.clock()
            make = self._question()
        verdict = self._decide(make(), began) if make is not None else self._last_plan()
        self.planner.renew()
        with self._lock:
            for job_id in verdict.stops:
                job = self.book.on_gpus.get(job_id)
                if job is not None and job.spec.preemptible:
                    self._ask_to_stop(job, "resize" if job_id in verdict.resized else "preempt")
            self._launch_all(verdict.starts)
            self._share_hosts()
        switched = self._switch()
        self.store.snapshot_if_due()
        with self._lock:
            if self.clock() - self._retired_s >= RETIRE_EVERY_S:
                self.retire()
            stopping = any(job.state == JobState.STOPPING for job in self.book.on_gpus.values())
            wait_s = 0.0 if switched else 0.2 if stopping else 1.0
            if self._plan.next_s <= asked_s:  # of an older plan, and done with
                return wait_s
            return min(wait_s, max(self._plan.next_s - self.clock(), 0.0))
