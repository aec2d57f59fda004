"""A service over some backend, of which a node becomes unhealthy: what all of them owe then, shown with real jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from cotenant.backends.base import Backend
from cotenant.core.jobspec import parse_job
from cotenant.journal.memory import MemoryJournal, MemoryStore
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.testing.backend_kit import PATIENCE_S

_ADMIN = Caller("root", Role.ADMIN)
_JOB = "trap 'exit 75' TERM; sleep 600 & wait"


def jobs_leave_an_ailing_node(
    backend: Backend, home: Path, ailing: Callable[[str], AbstractContextManager[str]]
) -> None:
    """A job runs, its node falls ill, it goes on at another; the node is drained with its reason until it is well."""
    journal = MemoryJournal(MemoryStore(), clock=time.time)
    service = CoreService(journal, backend, home=home, grace_s=3.0, inline=True)
    service.reconcile()
    ((job,),) = service.desk.submit(_ADMIN, [parse_job({"run": _JOB})])

    def until(happens: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not happens():
            assert time.monotonic() < deadline, service.desk.job(_ADMIN, job)
            backend.wait_change(min(service.tick(), 0.2))

    def node(name: str) -> tuple[str, str]:
        (found,) = [one for one in service.admin.nodes(_ADMIN) if one.name == name]
        return found.state, " ".join(fault["why"] for fault in found.faults)

    try:
        until(lambda: service.desk.job(_ADMIN, job).state == "running")
        ((sick, _),) = service.desk.job(_ADMIN, job).attempts[0].nodes
        with ailing(sick) as words:
            until(lambda: len(service.desk.job(_ADMIN, job).attempts) == 2)
            first, second = service.desk.job(_ADMIN, job).attempts
            assert words in first.why
            assert second.nodes[0][0] != sick
            until(lambda: service.desk.job(_ADMIN, job).state == "running")
            state, why = node(sick)
            assert state in ("down", "drained")
            assert words in why
        until(lambda: node(sick) == ("up", ""))
        assert len(service.desk.job(_ADMIN, job).attempts) == 2
    finally:
        service.desk.cancel(_ADMIN, job)
        until(lambda: service.desk.job(_ADMIN, job).state == "cancelled")
        journal.close()
