"""A real service with real processes on virtual GPUs, behind a real web server, and a client of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_server import Server

from cotenant.client import Client
from cotenant.service.core import CoreService
from cotenant.service.options import Options
from cotenant.service.run import Site, first_token, open_service
from cotenant.testing.live import running

PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Live:
    """The three of them, and the admin's secret."""

    service: CoreService
    client: Client
    url: str
    secret: str

    def submit(self, run: str, **fields: Any) -> str:
        """One job."""
        ((job,),) = self.client.submit([{"run": run, **fields}])
        return job

    def until(self, done: Callable[[], bool]) -> None:
        """Wait, event by event."""
        deadline, seq = time.monotonic() + PATIENCE_S, 0
        while not done():
            assert time.monotonic() < deadline
            seq = self.service.desk.wait_events(seq, 0.05)

    def runs(self, job: str) -> None:
        """Wait until a job runs."""
        self.until(lambda: self.client.job(job).state == "running")


@contextmanager
def live(home: Path, policy: str = "fifo", gpus: int = 4, grace_s: float = 5.0) -> Iterator[Live]:
    """All of it, until left."""
    opened = open_service(Options(home, grace_s, policy=policy), Site(gpus=gpus))
    with running(opened) as service:
        secret = first_token(service, home)
        with Server(service) as server, Client(server.url, secret) as client:
            yield Live(service, client, server.url, secret)
