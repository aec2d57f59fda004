"""How an inference service stands: its replicas, its requests, and how many of them were within its target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant.service.observer.report import Report
from cotenant.service.store.job import LiveJob
from cotenant.service.store.replicas import P99_MS, REQUESTS, REQUESTS_PER_S, WITHIN, is_scaled, let_in, service_of
from cotenant.service.store.view import BookView


def standing(job: LiveJob, view: BookView, report_of: Callable[[str], Report | None]) -> dict[str, Any]:
    """Of the whole service that a replica is of.

    `replicas` answer, `wanted` should; rate and latency (the worst replica) are of the last seconds, `requests` and
    `within_target` (their share) of all its time, as far as replicas have reported.
    """
    name, said = service_of(job.id), job.spec.service
    members = [one for one in view.members(name) if not one.finished] or [job]
    requests, within = view.services.served.get(name, (0.0, 0.0))
    answering, rate, p99_ms = 0, 0.0, 0.0
    for one in members:
        report = report_of(one.id) if one.id in view.on_gpus else None
        if report is None or P99_MS not in report.metrics:
            continue
        answering += 1
        rate += report.metrics.get(REQUESTS_PER_S, 0.0)
        p99_ms = max(p99_ms, report.metrics[P99_MS])
        count = report.metrics.get(REQUESTS, 0.0)
        requests, within = requests + count, within + count * report.metrics.get(WITHIN, 0.0)
    wanted = view.services.count(job) if is_scaled(job) else len(members)
    return {
        "replicas": answering, "wanted": wanted, "least": said.get("least", wanted), "most": said.get("most", wanted),
        "requests_per_s": round(rate, 3), "p99_ms": round(p99_ms, 3), "target_ms": round(1000 * said["target_s"], 3),
        "requests": round(requests), "within_target": round(within / requests, 6) if requests else None,
    }  # fmt: skip


def not_needed(job: LiveJob, view: BookView) -> bool:
    """Whether it waits because its service needs fewer replicas than there may be."""
    if not is_scaled(job) or job.id in view.on_gpus:
        return False
    return job.id not in let_in(view.members(service_of(job.id)), view.services.count(job))
