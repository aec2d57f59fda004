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
from typing import Protocol

from cotenant.backends import open_backend
from cotenant.journal import open_journal
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.garbage import LongLived
from cotenant.service.options import Options

_LOCAL_ADMIN = Caller("local", Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a service keeps its journal and runs its jobs.

    `backend`: where jobs run, as in `local:gpus=4`. `gpus` and `share` are two of its options: how many GPUs, or the
    type of each one, which makes them virtual; and how jobs share one.
    """

    db: str | None = None
    backend: str = "local"
    gpus: int | Sequence[str] | None = None
    share: str = "time"


_HERE = Site()


def open_service(options: Options, site: Site = _HERE) -> CoreService:
    """Open the journal, rebuild the book, reconcile with what really runs.

    Of profile h200 the pairs are taken that were measured as jobs share GPUs here.
    """
    home = options.home
    home.mkdir(parents=True, exist_ok=True)
    os.chmod(home, 0o700)
    journal = open_journal(site.db or str(home / "journal.db"))
    given = ({} if site.gpus is None else {"gpus": site.gpus}) | ({} if site.share == "time" else {"share": site.share})
    backend = open_backend(site.backend, home, **given)
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


class HttpSide(Protocol):
    """What the service asks of its doors, of which it knows nothing else."""

    async def start(self) -> str:
        """Listen; the URL."""

    def stop(self) -> None:
        """Ask it to end."""

    async def ended(self) -> None:
        """Serve until asked to end."""


MakeFront = Callable[[CoreService], HttpSide]


def serve(make_front: MakeFront, options: Options, site: Site) -> None:
    """Run until SIGINT or SIGTERM. Running jobs are left alone and adopted by the next start."""
    service = open_service(options, site)
    try:
        front = make_front(service)
        known = (options.home / "token").exists()
        secret = first_token(service, options.home)
        asyncio.run(_serve(service, front, None if known else secret))
    finally:
        service.close()


async def _serve(service: CoreService, front: HttpSide, new_secret: str | None) -> None:
    ending = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        ending.add_signal_handler(number, front.stop)
    url = await front.start()
    await service.reports.start()
    scheduler = Loop(service)
    scheduler.start()
    _greet(service, url, new_secret)
    await front.ended()
    scheduler.stop()
    await service.reports.stop()


def _greet(service: CoreService, url: str, new_secret: str | None) -> None:
    """Say where it listens. The token is shown once, when it is made; later only where it is kept."""
    home = service.options.home
    (home / "url").write_text(url + "\n", encoding="utf-8")
    gpus = sum(node.gpus for node in service.observer.nodes)
    sys.stdout.write(f"cotenant serves {gpus} GPUs under policy {service.store.book.policy} at {url}\n")
    sys.stdout.write(f"token: {new_secret}\n" if new_secret else f"token: kept in {home / 'token'}\n")
    sys.stdout.flush()
