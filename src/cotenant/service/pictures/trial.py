"""What would be: the live state beside one in which jobs, nodes or tenants are otherwise, both played forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.errors import InputError, unknown
from cotenant.core.jobspec import JobSpec
from cotenant.core.tenants import Tree, tenant_as_dict, tenant_from_dict
from cotenant.service.desk.deadlines import promises
from cotenant.service.desk.machines import Machines
from cotenant.service.facade import Caller, WhatIfWatch
from cotenant.service.forecasts.background import Forecasts
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.planner.interface import PlannerPart
from cotenant.service.planner.what_if import NOTHING_ELSE, Supposed
from cotenant.service.store.job import LiveJob
from cotenant.service.store.store import Store
from cotenant.service.store.tenants import BookTenants
from cotenant.service.store.view import BookView

MOST_JOBS, MOST_NODES = 100, 1000
CHANGED = " with changes"  # after a policy's name: what it would do then


@dataclass(frozen=True, slots=True)
class TrialAsked:
    """`nodes` more like the node `like` (the first, if none is named); fields of tenants as in the cluster file."""

    policies: tuple[str, ...] = ()
    jobs: tuple[JobSpec, ...] = ()
    nodes: int = 0
    like: str = ""
    tenants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether anything but the policy is otherwise."""
        return bool(self.jobs or self.nodes or self.tenants)


class Trials:
    """Answers questions of this kind."""

    def __init__(self, store: Store, planner: PlannerPart, machines: Machines, told: Forecasts) -> None:
        self._store, self._planner, self._machines, self._told = store, planner, machines, told

    def answer(self, caller: Caller, asked: TrialAsked, watch: WhatIfWatch) -> dict[str, Any]:
        """Now in the first column; then each policy, or the live one, with what is supposed."""
        view, at_s = self._store.view(), self._store.clock()
        supposed = self._supposed(caller, asked, view, at_s)
        names = list(dict.fromkeys(asked.policies or (view.policy,)))
        found = {view.policy: self._planner.forecast([view.policy], watch)[view.policy]}
        other = [name for name in names if asked.changes or name != view.policy]
        mark = CHANGED if asked.changes else ""
        found |= {name + mark: ends for name, ends in self._planner.forecast(other, watch, supposed).items()}
        there = {**view.jobs, **{job.id: job for job in supposed.jobs}}
        ends = {name: self._calibrated(name, jobs, view, at_s) for name, jobs in found.items()}
        jobs = [job for job in there.values() if not job.finished and caller.sees(job.tenant)]
        return {
            "at_s": at_s, "now": view.policy, "columns": list(found), "partial": watch.partial,
            "jobs": [_row(job, ends, job.id not in view.jobs) for job in jobs],
            "deadlines": {
                job.id: [
                    {"column": name + mark, **_verdict(job, name, watch.answers.get(name, {}).get(job.id),
                                                       ends[name + mark].get(job.id), at_s)}
                    for name in other
                ]
                for job in supposed.jobs if job.spec.deadline_s
            },
        }  # fmt: skip

    def _calibrated(
        self, name: str, found: Mapping[str, Foretold | None], view: BookView, at_s: float
    ) -> dict[str, Foretold]:
        """Intervals as past errors say for jobs that are there; of supposed ones as beliefs give them."""
        known = self._told.calibrated(name, {job: told for job, told in found.items() if job in view.jobs}, view, at_s)
        return {**{job: told for job, told in found.items() if told is not None}, **known.jobs}

    def _supposed(self, caller: Caller, asked: TrialAsked, view: BookView, at_s: float) -> Supposed:
        if not asked.changes:
            return NOTHING_ELSE
        if len(asked.jobs) > MOST_JOBS or asked.nodes > MOST_NODES:
            raise InputError(f"suppose at most {MOST_JOBS} jobs and {MOST_NODES} nodes at a time")
        jobs = tuple(
            LiveJob(f"new-{k}", view.seq + k, spec, spec.tenant or caller.tenant or "default", caller.name, at_s)
            for k, spec in enumerate(asked.jobs, start=1)
        )
        tenants = _tenants(view.tenants, asked.tenants) if asked.tenants else None
        return Supposed(jobs, self._more(asked), tenants)

    def _more(self, asked: TrialAsked) -> tuple[NodeInfo, ...]:
        if not asked.nodes:
            return ()
        nodes = {node.name: node for node in self._machines.nodes()}
        if not nodes:
            raise InputError("there is no node that more could be like")
        like = asked.like or next(iter(nodes))
        if like not in nodes:
            raise unknown("node", like, nodes)
        return tuple(replace(nodes[like], name=f"{like}-more-{k}", state="up") for k in range(1, asked.nodes + 1))


def _tenants(now: BookTenants, changes: Mapping[str, Mapping[str, Any]]) -> BookTenants:
    """The tree with other fields of some tenants; those not declared yet are added at the top."""
    tree = now.tree or Tree()
    for name, fields in changes.items():
        old = tree.of(name)
        merged = {**tenant_as_dict(old), **fields}
        given = {key: value for key, value in merged.items() if value is not None and key != "parent"}
        tree = tree.with_(tenant_from_dict(name, old.parent if name in tree else "", given, f"tenants.{name}"))
    return replace(now, tree=tree)


def _row(job: LiveJob, ends: Mapping[str, Mapping[str, Foretold]], new: bool) -> dict[str, Any]:
    told = {name: _told(found.get(job.id)) for name, found in ends.items()}
    about = {"id": job.id, "name": job.spec.name, "tenant": job.tenant, "state": str(job.state), "gpus": job.spec.gpus}
    return {**about, "new": new, "ends": told}


def _told(told: Foretold | None) -> dict[str, Any] | None:
    if told is None:
        return None
    limits = {"expected_end_low_s": told.low_s, "expected_end_high_s": told.high_s}
    return {"expected_start_s": told.start_s, "expected_end_s": told.end_s, **limits}


def _verdict(
    job: LiveJob, policy: str, answer: Mapping[str, Any] | None, told: Foretold | None, at_s: float
) -> dict[str, Any]:
    """What the policy would say of a deadline; else what is to be expected."""
    if answer is not None:
        return {"verdict": answer["verdict"], "text": answer["text"], "promised": True}
    name, due_s = policy.partition(":")[0], at_s + job.spec.deadline_s
    nobody = "" if promises(policy) else f"; policy '{name}' promises nothing, 'chronus' would"
    if told is None:
        return {"verdict": "unknown", "text": f"nobody can tell when it would end{nobody}", "promised": False}
    if told.end_s > due_s:
        verdict, text = "expected to be missed", "it is expected to end after it"
    elif told.high_s is not None and told.high_s > due_s:
        verdict, text = "at risk", "it is expected to be met, but not 9 times of 10"
    else:
        verdict, text = "expected to be met", "it is expected to end before it"
    return {"verdict": verdict, "text": text + nobody, "promised": False}
