"""Run by a test in a process of its own: a service with 3,001 jobs and a cache that has no machine code yet."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from cotenant.backends.base import NodeInfo
from cotenant.backends.fake import FakeBackend, Script
from cotenant.core.jit_later import LATER
from cotenant.core.jobspec import JobSpec
from cotenant.journal.memory import MemoryJournal
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role

ME = Caller("test", Role.ADMIN)
DEADLINE_S = 1800.0
PAUSE = threading.Event()


def main() -> None:
    """Decisions before and after the compiled kernels came, and whether the compiler was here."""
    backend = FakeBackend([NodeInfo("n", "gpu", 2, 8, 64.0)], behave=_script)
    with tempfile.TemporaryDirectory() as home:
        service = CoreService(
            MemoryJournal(), backend, home=Path(home), policy="srtf", clock=lambda: backend.now_s, inline=True
        )
        service.reconcile()
        service.desk.submit(ME, [JobSpec(run="true", expected_s=100.0 + k) for k in range(3001)])
        began = time.monotonic()
        while not LATER.ready and time.monotonic() - began < DEADLINE_S:
            _tick(service, backend)
        before = service.counters["decisions"]
        for _ in range(5):
            _tick(service, backend)
        found = {
            "ready": LATER.ready, "compiled here": "cotenant.core.native.emit" in sys.modules, "before": before,
            "after": service.counters["decisions"] - before, "running": len(service.store.book.on_gpus),
        }  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


def _script(spec: object) -> Script:
    return Script(duration_s=10.0)


def _tick(service: CoreService, backend: FakeBackend) -> None:
    """Two jobs end and two begin; there are always more than 3,000."""
    if len(service.store.book.active) < 3001:
        service.desk.submit(ME, [JobSpec(run="true", expected_s=5000.0)] * 10)
    service.tick()
    backend.advance(10.0)
    PAUSE.wait(0.05)  # the child process needs the core


if __name__ == "__main__":
    main()
