"""`cotenant serve`: API and scheduler in one process, until asked to end. Jobs outlive it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cotenant.backends import open_backend
from cotenant.journal import open_journal
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.garbage import LongLived
from cotenant.service.options import Options

_LOCAL_ADMIN = Caller("local", Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a service keeps its journal, runs its jobs and listens.

    `backend`: where jobs run, as in `local:gpus=4`. Some of its options are here: how many GPUs, or the type of each
    one, which makes them virtual; how jobs share one; how tenants are kept apart, what network their jobs have, and
    which users they are.
    """

    db: str | None = None
    backend: str = "local"
    gpus: int | Sequence[str] | None = None
    share: str = "time"
    host: str = "127.0.0.1"
    port: int = 8470
    isolation: str = "none"
    network: str = "host"
    user_map: str = ""

    def backend_options(self) -> dict[str, Any]:
        """Options of the backend that have options of `serve` of their own: those that differ from the usual."""
        names = ("gpus", "share", "isolation", "network", "user_map")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(_HERE, name)}


_HERE = Site()


def open_service(options: Options, site: Site = _HERE) -> CoreService:
    """Open the journal, rebuild the book, reconcile with what really runs.

    Of profile h200 the pairs are taken that were measured as jobs share GPUs here.
    """
    home = options.home
    home.mkdir(parents=True, exist_ok=True)
    os.chmod(home, 0o700)
    journal = open_journal(site.db or str(home / "journal.db"))
    backend = open_backend(site.backend, home, **site.backend_options())
    if options.profile == "h200":
        sharing = "mps" if backend.capabilities().share == "mps" else "time-sliced"
        options = replace(options, profile=f"h200:sharing={sharing}")
    service = CoreService(journal, backend, options)
    service.reconcile()
    return service


def first_token(service: CoreService, home: Path) -> str:
    """The administrator's token: made at the first start, kept in a file that only its owner can read."""
    path = home / "token"
    if path.exists():
        secret = path.read_text(encoding="utf-8").strip()
        if service.admin.authenticate(secret) is not None:
            return secret
    _, secret = service.admin.create_token(_LOCAL_ADMIN, "admin", Role.ADMIN, "")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(secret + "\n")
    return secret


class Loop:
    """The scheduler's thread: a tick after every change, and now and then without one."""

    def __init__(self, service: CoreService) -> None:
        self._service = service
        self._ending = threading.Event()
        self._lives = LongLived()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                wait_s = self._service.tick()
            except Exception as error:  # the loop must go on; the next tick starts from the journal's truth
                sys.stderr.write(f"cotenant: scheduler: {type(error).__name__}: {error}\n")
                wait_s = 1.0
            self._lives.settle(len(self._service.store.book.jobs))
            self._service.backend.wait_change(wait_s)

    def stop(self) -> None:
        """End after the present tick."""
        self._ending.set()
        self._service.backend.wake()
        self._thread.join(timeout=10)
        self._lives.release()


MakeApp = Callable[[CoreService], Any]


def serve(make_app: MakeApp, options: Options, site: Site) -> None:
    """Run until SIGINT or SIGTERM. Running jobs are left alone and adopted by the next start.

    `make_app` builds the HTTP side from the service, which itself knows nothing of HTTP.
    """
    service = open_service(options, site)
    known = (options.home / "token").exists()
    secret = first_token(service, options.home)
    try:
        asyncio.run(_serve(service, make_app(service), site, None if known else secret))
    finally:
        service.close()


async def _serve(service: CoreService, app: Any, site: Site, new_secret: str | None) -> None:
    import uvicorn

    await service.reports.start()
    scheduler = Loop(service)
    scheduler.start()
    config = uvicorn.Config(
        app, host=site.host, port=site.port, log_level="warning", access_log=False, timeout_graceful_shutdown=3
    )
    server: Any = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    ending = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        ending.add_signal_handler(number, lambda: setattr(server, "should_exit", True))
    task = asyncio.create_task(server.serve())
    while not server.started and not task.done():
        await asyncio.sleep(0.02)
    if server.started:
        actual = server.servers[0].sockets[0].getsockname()[1]
        _greet(service, f"http://{site.host}:{actual}", new_secret)
    await task
    scheduler.stop()
    await service.reports.stop()


def _greet(service: CoreService, url: str, new_secret: str | None) -> None:
    """Say where it listens. The token is shown once, when it is made; later only where it is kept."""
    home = service.options.home
    (home / "url").write_text(url + "\n", encoding="utf-8")
    gpus = sum(node.gpus for node in service.observer.nodes)
    sys.stdout.write(f"cotenant serves {gpus} GPUs under policy {service.store.book.policy} at {url}\n")
    for line in service.backend.capabilities().unprotected:
        sys.stdout.write(f"{line} (docs/threat-model.md)\n")
    sys.stdout.write(f"token: {new_secret}\n" if new_secret else f"token: kept in {home / 'token'}\n")
    sys.stdout.flush()
