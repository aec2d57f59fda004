"""The book as people see it: jobs, nodes, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any

from cotenant.backends.base import JobUse, NodeInfo
from cotenant.core.lifecycle import WAITING, JobState
from cotenant.core.reasons import Cause
from cotenant.journal import Record
from cotenant.service.desk.serving import not_needed
from cotenant.service.facade import AttemptInfo, EventInfo, JobInfo, NodeStatus
from cotenant.service.forecasts.foretold import Foretold
from cotenant.service.node_windows import MAINTENANCE
from cotenant.service.observer.report import Report
from cotenant.service.observer.usage import Usage
from cotenant.service.store.book import Book
from cotenant.service.store.health import KnownFault
from cotenant.service.store.job import LiveJob, waits_for
from cotenant.service.store.records import WRITTEN
from cotenant.service.store.view import BookView

_MOST_TEXT = 200
Granted = Callable[[str], float | None]
"""What a job was told last of the GiB of each GPU that it is granted."""


def job_info(
    job: LiveJob, reason: str, report: Report | None, told: Foretold | None, now_s: float, whole: bool,
    use: JobUse | None = None,
) -> JobInfo:  # fmt: skip
    """One job with what is foretold of it; `whole` adds its spec and attempts."""
    report = report or (Report(**job.progress) if job.progress else None)
    expected, told = None, None if job.finished else told
    if told is not None:
        expected = max(told.end_s, now_s)
    elif job.state == JobState.RUNNING and report is not None and report.total and report.step_time_s:
        expected = now_s + max(report.total - (report.step or 0), 0) * report.step_time_s
    elif job.state == JobState.RUNNING and job.spec.expected_s:
        expected = now_s + max(job.spec.expected_s - job.attained_s(now_s), 0.0)
    return JobInfo(
        id=job.id, name=job.spec.name, tenant=job.tenant, user=job.user, state=job.state, reason=reason,
        gpus=job.spec.gpus, priority=job.spec.priority, submitted_s=job.submitted_s, started_s=job.started_s,
        ended_s=job.ended_s, expected_end_s=expected,
        step=report.step if report else None, total_steps=report.total if report else None,
        step_time_s=report.step_time_s if report else None, metrics=_numbers(report.metrics) if report else {},
        expected_end_low_s=told.low_s if told else None, expected_end_high_s=told.high_s if told else None,
        attempts=tuple(_attempt(job, number) for number in range(len(job.attempts))) if whole else (),
        spec=_spec(job.spec.as_dict()) if whole else {},
        gpu_busy=round(use.busy, 2) if use is not None else None,
        gpu_used_gib=round(use.used_gib, 2) if use is not None else None,
    )  # fmt: skip


def foretold(job: LiveJob, finish: Mapping[str, Foretold | None]) -> dict[str, Any]:
    """A job in the answer to a what-if: when it ends under each policy, and with what certainty."""
    ends = {name: told.end_s if told else None for name, told in finish.items()}
    limits = {
        name: {"expected_end_s": told.end_s, "expected_end_low_s": told.low_s, "expected_end_high_s": told.high_s}
        for name, told in finish.items()
        if told
    }
    return {"id": job.id, "name": job.spec.name, **ends, "forecasts": limits}


def has_length(job: LiveJob, report: Report | None) -> bool:
    """Whether anybody has said how long a job takes."""
    told = report is not None and report.total and report.step_time_s
    return bool(job.spec.expected_s or told) or job.left_s is not None


def _numbers(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """What the journal could not hold was not a number."""
    return {name: nan if value is None else value for name, value in metrics.items()}


def _attempt(job: LiveJob, number: int) -> AttemptInfo:
    attempt = job.attempts[number]
    live = attempt.ended_s is None
    return AttemptInfo(
        number=attempt.number, state=str(job.state) if live else "ended", started_s=attempt.started_s,
        ended_s=attempt.ended_s, exit_code=attempt.exit_code, signal=attempt.signal, why=attempt.why,
        lost_s=attempt.lost_s, nodes=attempt.devices,
    )  # fmt: skip


def _spec(data: dict[str, Any]) -> dict[str, Any]:
    """A spec without what may be secrets: the values of its environment, and what webhooks are asked."""
    if data.get("env"):
        data = {**data, "env": dict.fromkeys(data["env"], "***")}
    if data.get("notify"):
        data = {**data, "notify": [url.partition("?")[0] + "?***" * ("?" in url) for url in data["notify"]]}
    return data


def reason(job: LiveJob, view: BookView, tenant: str, granted: Granted = lambda job: None) -> str:
    """Where a job is, in a few words, for a reader who may see this tenant (empty: all)."""
    if job.id in view.on_gpus:
        return _with_memory(_company(view.company.get(job.id, ()), tenant) or job.message, job, granted)
    if job.state not in WAITING:
        return job.message
    if job.held:
        return "held"
    if job.aside:
        return f"set aside, {job.aside}"
    other = waits_for(job, view.members)
    if other:
        return f"after job {other}"
    if not_needed(job, view):
        count = view.services.count(job)
        return f"not needed now: its service has {count} replica{'s' * (count > 1)}"
    if _full(job, view):
        return f"its array runs {job.spec.array_most} at a time"
    if job.holds:
        return "starting ahead, waits for its GPUs"
    return job.message or "waiting for GPUs"


def _with_memory(text: str, job: LiveJob, granted: Granted) -> str:
    """A reason with what a job is granted of its GPUs' memory, where it gives some."""
    granted_gib = granted(job.id) if job.spec.gpu_mem_min_gib else None
    if granted_gib is None or granted_gib >= job.spec.gpu_mem_gib - 1e-3:
        return text
    said = f"granted {granted_gib:.4g} of {job.spec.gpu_mem_gib:g} GiB per GPU"
    return f"{text}; {said}" if text else said


def cause(job: LiveJob, view: BookView) -> str:
    """What kind of reason that is; empty where only the planner knows."""
    if job.state not in WAITING:
        return str(job.state)
    if job.held or job.stop_why:
        return str(Cause.HELD) if job.held else "stopping"
    if job.aside:
        return str(Cause.ASIDE)
    if waits_for(job, view.members):
        return str(Cause.DEPENDENCY)
    return str(Cause.ARRAY) if _full(job, view) or not_needed(job, view) else ""


def _full(job: LiveJob, view: BookView) -> bool:
    """Whether as many elements of its array are under way as may be."""
    most = job.spec.array_most
    if not most or job.attempts:
        return False
    array = f"{job.id.partition('.')[0]}."
    return sum(other.id.startswith(array) for other in view.begun) >= most


def _company(others: Sequence[LiveJob], tenant: str) -> str:
    """Who else is on its GPUs; empty where it is alone."""
    seen = [other.id for other in others if tenant in ("", other.tenant)]
    parts = [f"job {name}" for name in seen] + ["another tenant's job"] * (len(others) - len(seen))
    return f"shares its GPUs with {' and '.join(parts)}" if parts else ""


def event(record: Record) -> EventInfo:
    """What a record says, without secrets; in words where it is not about something that happened to a job."""
    data = {key: value for key, value in record.data.items() if key != WRITTEN}
    if record.kind == "promise":
        data["text"] = _promise(data["gpus"])
    elif record.kind == "replicas":
        data["text"] = f"its service has {data['count']} replica{'s' * (data['count'] > 1)} from now on: {data['why']}"
    elif record.kind == "barrier":
        data["text"] = f"jobs of kind {data['kind']} can be started ahead and wait at '{data['place']}'"
    elif record.kind == "memory":
        data = {"key": data["key"], "text": _memory(data["key"], data["value"])}
    elif record.kind in ("unhealthy", "healthy"):
        data["text"] = _health(record.kind, data)
    elif record.kind == "tenants":
        data["text"] = f"{data['who']} changed the tenants"
    elif "spec" in data:
        data["spec"] = _spec(data["spec"])
    return EventInfo(record.seq, record.time_s, record.kind, record.job, data)


def _health(kind: str, data: Mapping[str, Any]) -> str:
    where = f"node {data['node']}" + (f" GPU {data['gpu']}" if data["gpu"] >= 0 else "")
    if kind == "unhealthy":
        jobs = "jobs there go elsewhere" if data["leave"] else "jobs there may finish"
        return f"{where} is not well ({data['kind']}): {data['why']}; nothing starts there, {jobs}"
    return f"{where} is well again ({data['kind']})" + (f", says {data['by']}" if data.get("by") else "")


def _promise(gpus: Sequence[tuple[str, Sequence[int]]] | None) -> str:
    places = [f"GPU{'s' * (len(indexes) > 1)} {', '.join(map(str, indexes))} of {node}" for node, indexes in gpus or ()]
    if not places:
        return "it is promised no GPUs any more"
    return f"it starts on {' and '.join(places)} as soon as others have left"


def _memory(key: str, value: Any) -> str:
    if value is None:
        return f"the policy no longer remembers '{key}'"
    text = str(value)
    return f"the policy remembers '{key}': {text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + '…'}"


def node_statuses(
    nodes: Sequence[NodeInfo], book: Book | BookView, now_s: float, usage: Usage | None = None
) -> list[NodeStatus]:
    """Nodes with what is used on them."""
    users: dict[str, Counter[int]] = {}
    jobs: dict[str, list[str]] = {}
    for job in book.on_gpus.values():
        for name, indexes in job.last.gpus:
            users.setdefault(name, Counter()).update(indexes)
            jobs.setdefault(name, []).append(job.id)
    faults: dict[str, list[KnownFault]] = {}
    for fault in (book.faults if isinstance(book, BookView) else book.health.faults).values():
        faults.setdefault(fault.node, []).append(fault)
    found = []
    for node in nodes:
        there = users.get(node.name, Counter())
        used, shared = len(there), sum(count > 1 for count in there.values())
        wrong = faults.get(node.name, ())
        shut = node.name in book.drained or (node.state == "up" and any(one.gpu not in node.out for one in wrong))
        state: str = ("draining" if used else "drained") if shut else node.state
        on = [window.kind for window in book.windows.values() if window.on(now_s) and window.covers(node.name)]
        if on and state == "up":
            state = "maintenance" if MAINTENANCE in on else "reserved"
        seen = usage.on(node.name) if usage is not None else ()
        mark = book.tenants.mark(node.name)
        found.append(NodeStatus(
            node.name, node.gpu_type, node.gpus, used, node.cpus, node.mem_gib, state, tuple(jobs.get(node.name, ())),
            shared, node.gpu_mem_gib, tuple(round(gpu.busy, 2) for gpu in seen),
            tuple(round(gpu.used_gib, 2) for gpu in seen), mark.dedicated, dict(mark.labels), node.ready_s,
            len(node.out), tuple(fault.as_dict() for fault in wrong),
        ))  # fmt: skip
    return found


def metrics(
    view: BookView, nodes: Sequence[NodeInfo], counters: Mapping[str, float], now_s: float, usage: Usage
) -> dict[str, float]:
    """Gauges and counters for Prometheus."""
    by_state = Counter(job.state for job in view.jobs.values())
    waits = [now_s - job.submitted_s for job in view.active if job.state in WAITING]
    used = sum(status.gpus_used for status in node_statuses(nodes, view, now_s))
    rows = {f'cotenant_jobs{{state="{state}"}}': float(by_state[state]) for state in JobState}
    for gpu in usage.gpus:
        where = f'{{node="{gpu.node}",gpu="{gpu.index}"}}'
        rows |= {f"cotenant_gpu_busy{where}": gpu.busy, f"cotenant_gpu_memory_used_gib{where}": gpu.used_gib}
    for fault in view.faults.values():
        rows[f'cotenant_unhealthy{{node="{fault.node}",gpu="{fault.gpu}",kind="{fault.kind}"}}'] = 1.0
    return {
        **rows,
        "cotenant_queue_length": float(len(waits)),
        "cotenant_longest_wait_seconds": max(waits, default=0.0),
        "cotenant_gpus": float(sum(node.gpus for node in nodes)),
        "cotenant_gpus_used": float(used),
        "cotenant_gpus_out": float(sum(len(node.out) for node in nodes)),
        "cotenant_decisions_total": counters["decisions"],
        "cotenant_decision_latency_seconds": counters["decision_s"],
        "cotenant_decision_timeouts_total": counters["decision_timeouts"],
        "cotenant_preemption_cost_seconds": view.preemption_cost_s,
        "cotenant_preemptions_total": counters["preemptions"],
        "cotenant_suspensions_total": counters["suspensions"],
        "cotenant_moves_total": counters["moves"],
        "cotenant_lost_work_seconds_total": counters["lost_work_s"],
    }
