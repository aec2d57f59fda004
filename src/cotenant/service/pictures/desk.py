"""Pictures of the whole. Answers are made of frozen views, without the scheduler's time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from cotenant.core.jobspec import JobSpec
from cotenant.service.desk.machines import Machines
from cotenant.service.facade import Caller, WhatIfWatch
from cotenant.service.pictures.forgotten import Forgotten
from cotenant.service.pictures.gantt import gantt
from cotenant.service.pictures.ledger import ledger
from cotenant.service.pictures.overview import overview
from cotenant.service.pictures.trial import TrialAsked, Trials
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store

_KEPT_S = 1.0  # for so long the order of the queue is not asked for again


Checked = Callable[[Caller, Sequence[JobSpec]], list[JobSpec]]
"""Whether jobs would be taken, with their defaults filled in; raises where not."""


class PictureBoard:
    """For whoever wants to see the whole. All answers are plain data, of jobs that the caller may see."""

    def __init__(
        self, store: Store, planner: PlannerPart, machines: Machines, counters: Mapping[str, float],
        trouble: Callable[[], str], trials: Trials, check: Checked,
    ) -> None:  # fmt: skip
        self._store, self._planner, self._machines, self._counters = store, planner, machines, counters
        self._trouble, self._lock = trouble, threading.Lock()
        self._line: tuple[float, list[str]] = (-inf, [])
        self._trials, self._check, self._forgotten = trials, check, Forgotten(store)

    def overview(self, caller: Caller) -> dict[str, Any]:
        """Jobs by state, GPUs by tenant, decisions and what needs attention."""
        view, nodes = self._store.view(), self._machines.nodes()
        return overview(view, nodes, self._counters, self._store.clock(), caller, self._trouble())

    def queue(self, caller: Caller) -> dict[str, Any]:
        """Which place waiting jobs have in the policy's order: {"waiting": {"7": 1, ...}, "count": ...}."""
        now_s = self._store.clock()
        with self._lock:
            if not 0 <= now_s - self._line[0] < _KEPT_S:
                self._line = now_s, self._planner.line(now_s)
            at_s, names = self._line
        jobs = self._store.view().jobs
        places = enumerate(names, start=1)
        mine = {name: at for at, name in places if name in jobs and caller.sees(jobs[name].tenant)}
        return {"at_s": at_s, "count": len(names), "waiting": mine}

    def gantt(self, caller: Caller, from_s: float, to_s: float | None = None) -> dict[str, Any]:
        """Who held which GPU when: {"gpus": [[node, index]], "jobs": [...], "bars": [[gpu, job, from, to, kind]]}."""
        now_s, jobs = self._store.clock(), self._jobs(from_s)
        mine = (job for job in jobs.values() if job.attempts and caller.sees(job.tenant))
        return gantt(mine, self._machines.nodes(), now_s, from_s, now_s if to_s is None else to_s)

    def ledger(self, caller: Caller, from_s: float, to_s: float | None = None) -> dict[str, Any]:
        """Every stop that was not the end of the work: its cause, what it cost and who gained by it."""
        now_s = self._store.clock()
        return ledger(self._jobs(from_s), caller, now_s, from_s, inf if to_s is None else to_s)

    def _jobs(self, from_s: float) -> dict[str, LiveJob]:
        """Those of the book, and those that it has forgotten since then."""
        view = self._store.view()  # first: who is forgotten meanwhile is in both
        return {**self._forgotten.since(from_s), **view.jobs}

    def check(self, caller: Caller, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Raises as `Desk.submit` would, else the jobs with their defaults filled in. Nothing is submitted."""
        return self._check(caller, specs)

    def trial(self, caller: Caller, asked: TrialAsked, watch: WhatIfWatch | None = None) -> dict[str, Any]:
        """When jobs would start and end with other policies, jobs, nodes or tenants, beside how it is now."""
        if asked.jobs:
            asked = replace(asked, jobs=tuple(self._check(caller, asked.jobs)))
        return self._trials.answer(caller, asked, watch or WhatIfWatch())
