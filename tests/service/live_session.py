"""What the session at work has agreed and promised; nothing before the first decision."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.core.plan import ALONE, Terms
from cotenant.service.core import CoreService
from cotenant.service.store.job import Gpus


def terms_of(service: CoreService, job: str) -> Terms:
    """On what terms a job has its GPUs, or will have them."""
    live = service.planner.live  # type: ignore[attr-defined]
    return ALONE if live is None else live.agreed(job)


def promises_of(service: CoreService) -> Mapping[str, Gpus]:
    """Who will have which GPUs as soon as others have left them, suspended jobs included."""
    live = service.planner.live  # type: ignore[attr-defined]
    return {} if live is None else live.promised(still=True)
