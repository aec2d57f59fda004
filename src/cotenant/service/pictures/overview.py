"""The cluster at a glance, and what in it needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.service.desk.views import node_statuses
from cotenant.service.facade import Caller
from cotenant.service.store.view import BookView

LATELY_S = 3600.0
_NAMED = 5
_WRONG = ("down", "draining", "drained", "maintenance")


def overview(
    view: BookView, nodes: Sequence[NodeInfo], counters: Mapping[str, float], now_s: float, caller: Caller,
    trouble: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Plain data for JSON; GPUs of tenants that the caller does not see are counted under an empty name."""
    jobs = [job for job in view.jobs.values() if caller.sees(job.tenant)]
    states = Counter(job.state for job in jobs)
    waits_s = [now_s - job.submitted_s for job in jobs if job.state in WAITING]
    held: Counter[str] = Counter()
    for job in view.on_gpus.values():
        held[job.tenant if caller.sees(job.tenant) else ""] += job.last.size
    statuses = node_statuses(nodes, view, now_s)
    return {
        "at_s": now_s,
        "policy": view.policy,
        "jobs": {str(state): states[state] for state in JobState},
        "waiting": len(waits_s),
        "longest_wait_s": max(waits_s, default=0.0),
        "gpus": sum(node.gpus for node in nodes),
        "gpus_used": sum(one.gpus_used for one in statuses),
        "gpus_shared": sum(one.gpus_shared for one in statuses),
        "gpus_by_tenant": dict(sorted(held.items())),
        "nodes": dict(Counter(one.state for one in statuses)),
        "decisions": {
            "count": counters["decisions"],
            "last_s": counters["decision_s"],
            "late": counters["decision_timeouts"],
            "preemptions": counters["preemptions"],
            "suspensions": counters["suspensions"],
            "moves": counters["moves"],
            "lost_work_s": counters["lost_work_s"],
        },
        "alerts": [*_of_service(trouble, counters), *_of_nodes(statuses), *_of_jobs(jobs, now_s)],
    }


def _alert(level: str, text: str, **more: Any) -> dict[str, Any]:
    return {"level": level, "text": text, "jobs": [], "nodes": [], **more}


def _of_service(trouble: str, counters: Mapping[str, float]) -> list[dict[str, Any]]:
    found = [_alert("bad", f"the service takes no changes: {trouble}")] if trouble else []
    if late := int(counters["decision_timeouts"]):
        found.append(_alert("warn", f"the policy was too slow for {late} decisions since the start"))
    return found


def _of_nodes(statuses: Sequence[Any]) -> list[dict[str, Any]]:
    found = []
    for state in _WRONG:
        if names := [one.name for one in statuses if one.state == state]:
            level = "bad" if state == "down" else "info"
            text = f"{len(names)} {'node is' if len(names) == 1 else 'nodes are'} {state}"
            found.append(_alert(level, text, nodes=names[:_NAMED]))
    return found


def _of_jobs(jobs: Sequence[Any], now_s: float) -> list[dict[str, Any]]:
    failed = [job for job in jobs if job.state == JobState.FAILED and now_s - (job.ended_s or 0.0) < LATELY_S]
    aside = [job for job in jobs if job.aside and job.state in WAITING]
    late = [job for job in jobs if not job.finished and _overdue(job, now_s)]
    found = []
    for level, some, text in (
        ("bad", failed, "failed within the last hour"),
        ("warn", aside, "cannot start on the nodes that are up"),
        ("warn", late, "missed a deadline and did not end yet"),
    ):
        if some:
            names = [job.id for job in sorted(some, key=lambda one: -(one.ended_s or one.submitted_s))]
            count = f"{len(some)} {'job' if len(some) == 1 else 'jobs'}"
            found.append(_alert(level, f"{count} {text}", jobs=names[:_NAMED]))
    return found


def _overdue(job: Any, now_s: float) -> bool:
    return bool(job.spec.deadline_s) and now_s > job.submitted_s + job.spec.deadline_s
