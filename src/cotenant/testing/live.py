"""A live service inside a test or a measurement: its loop, its socket for reports, and nothing left over afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cotenant.backends.base import Unreachable
from cotenant.service.core import CoreService
from cotenant.service.run import Loop


@contextmanager
def running(service: CoreService) -> Iterator[CoreService]:
    """The service as `cotenant serve` runs it, less the web server; jobs that still run at the end are killed."""
    events = asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.reports.start(), events).result(10)
    loop = Loop(service)
    loop.start()
    service.forecasts.start()
    try:
        yield service
    finally:
        loop.stop()
        service.executor.close()
        for item in service.backend.observe():  # only after an error or Ctrl-C: nothing may outlive its folder
            with suppress(Unreachable):  # its node goes away just now, and the job with it
                service.backend.kill(item.key)
        asyncio.run_coroutine_threadsafe(service.reports.stop(), events).result(10)
        events.call_soon_threadsafe(events.stop)
        thread.join()
        service.close()
