"""The book as people see it: jobs, nodes, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cotenant.backends.base import NodeInfo
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.journal import Record
from cotenant.service.facade import AttemptInfo, JobInfo, NodeStatus
from cotenant.service.observer.reports import Report
from cotenant.service.planner.sharing import beside
from cotenant.service.store.book import WRITTEN, Book
from cotenant.service.store.job import LiveJob, plain_spec


def job_info(job: LiveJob, reason: str, report: Report | None, now_s: float, whole: bool) -> JobInfo:
    """One job; `whole` adds its spec and attempts."""
    expected = None
    if job.state == JobState.RUNNING and report is not None and report.total and report.step_time_s:
        expected = now_s + max(report.total - (report.step or 0), 0) * report.step_time_s
    elif job.state == JobState.RUNNING and job.spec.expected_s:
        expected = now_s + max(job.spec.expected_s - job.attained_s(now_s), 0.0)
    return JobInfo(
        id=job.id, name=job.spec.name, tenant=job.tenant, user=job.user, state=job.state, reason=reason,
        gpus=job.spec.gpus, priority=job.spec.priority, submitted_s=job.submitted_s, started_s=job.started_s,
        ended_s=job.ended_s, expected_end_s=expected,
        step=report.step if report else None, total_steps=report.total if report else None,
        step_time_s=report.step_time_s if report else None, metrics=dict(report.metrics) if report else {},
        attempts=tuple(_attempt(job, number) for number in range(len(job.attempts))) if whole else (),
        spec=_spec(plain_spec(job.spec)) if whole else {},
    )  # fmt: skip


def _attempt(job: LiveJob, number: int) -> AttemptInfo:
    attempt = job.attempts[number]
    live = attempt.ended_s is None
    data = asdict(attempt)
    return AttemptInfo(
        number=attempt.number, state=str(job.state) if live else "ended", started_s=attempt.started_s,
        ended_s=attempt.ended_s, exit_code=attempt.exit_code, signal=attempt.signal, why=attempt.why,
        lost_s=data["lost_s"], nodes=attempt.gpus,
    )  # fmt: skip


def _spec(data: dict[str, Any]) -> dict[str, Any]:
    """A spec without the values of its environment, which may be secrets."""
    return {**data, "env": dict.fromkeys(data["env"], "***")} if data.get("env") else data


def event_data(record: Record) -> dict[str, Any]:
    """What a record says, without secrets."""
    data = {key: value for key, value in record.data.items() if key != WRITTEN}
    return {**data, "spec": _spec(data["spec"])} if "spec" in data else data


def node_statuses(nodes: Sequence[NodeInfo], book: Book) -> list[NodeStatus]:
    """Nodes with what is used on them."""
    users: dict[str, Counter[int]] = {}
    jobs: dict[str, list[str]] = {}
    for job in book.on_gpus.values():
        for node, indexes in job.last.gpus:
            users.setdefault(node, Counter()).update(indexes)
            jobs.setdefault(node, []).append(job.id)
    return [_node_status(node, users.get(node.name, Counter()), jobs.get(node.name, []), book) for node in nodes]


def _node_status(node: NodeInfo, users: Counter[int], jobs: list[str], book: Book) -> NodeStatus:
    state: str = node.state
    used, shared = len(users), sum(count > 1 for count in users.values())
    if node.name in book.drained:
        state = "draining" if used else "drained"
    return NodeStatus(
        node.name, node.gpu_type, node.gpus, used, node.cpus, node.mem_gib, state, tuple(jobs), shared, node.gpu_mem_gib
    )  # fmt: skip


def company(job: LiveJob, book: Book, tenant: str) -> str:
    """Who else is on its GPUs, for a reader who may see this tenant (empty: all); empty where it is alone."""
    others = beside(job, book.on_gpus.values())
    seen = [other.id for other in others if tenant in ("", other.tenant)]
    parts = [f"job {name}" for name in seen] + ["another tenant's job"] * (len(others) - len(seen))
    return f"shares its GPUs with {' and '.join(parts)}" if parts else ""


def metrics(book: Book, nodes: Sequence[NodeInfo], counters: dict[str, float], now_s: float) -> dict[str, float]:
    """Gauges and counters for Prometheus."""
    by_state = dict.fromkeys(map(str, JobState), 0.0)
    for job in book.jobs.values():
        by_state[str(job.state)] += 1
    waits = [now_s - job.submitted_s for job in book.active.values() if job.state in WAITING]
    used = sum(status.gpus_used for status in node_statuses(nodes, book))
    rows = {f'cotenant_jobs{{state="{state}"}}': count for state, count in by_state.items()}
    return {
        **rows,
        "cotenant_queue_length": float(len(waits)),
        "cotenant_longest_wait_seconds": max(waits, default=0.0),
        "cotenant_gpus": float(sum(node.gpus for node in nodes)),
        "cotenant_gpus_used": float(used),
        "cotenant_decisions_total": counters["decisions"],
        "cotenant_decision_latency_seconds": counters["decision_s"],
        "cotenant_decision_timeouts_total": counters["decision_timeouts"],
        "cotenant_preemption_cost_seconds": book.preemption_cost_s(0.0),
        "cotenant_preemptions_total": counters["preemptions"],
        "cotenant_suspensions_total": counters["suspensions"],
        "cotenant_lost_work_seconds_total": counters["lost_work_s"],
    }
