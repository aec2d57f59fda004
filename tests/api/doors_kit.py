"""A front at work, in a home as `cotenant serve` leaves it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fake_service import FakeService

from cotenant.api.front import Doors, Front


class Served:
    """A front at work in a thread, in a home as `cotenant serve` leaves it."""

    def __init__(self, doors: Doors, service: FakeService) -> None:
        self.home, self._front, self._ready = doors.home, Front(service, doors), threading.Event()
        self.url = ""
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self.url = await self._front.start()
        (self.home / "url").write_text(self.url)
        self._ready.set()
        await self._front.ended()

    @contextmanager
    def running(self) -> Iterator[Served]:
        self.thread.start()
        assert self._ready.wait(20)
        try:
            yield self
        finally:
            self._front.stop()
            self.thread.join()

    def connect(self) -> socket.socket:
        host, port = self.url.split("//")[1].split(":")
        return socket.create_connection((host, int(port)), timeout=10)


@contextmanager
def served(home: Path, service: FakeService, **more: object) -> Iterator[Served]:
    with Served(Doors(home, port=0, **more), service).running() as found:  # type: ignore[arg-type]
        yield found
