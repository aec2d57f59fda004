"""`cotenant serve`: API and scheduler in one process, until asked to end. Jobs outlive it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cotenant.backends import BackendError, open_backend
from cotenant.journal import Journal, JournalBusy, JournalError, JournalUnavailable, open_journal
from cotenant.service import home as homes
from cotenant.service import logs
from cotenant.service.backups import Backups
from cotenant.service.core import CoreService
from cotenant.service.facade import Caller, Role, Unavailable
from cotenant.service.garbage_collection import LongLived
from cotenant.service.observer.usage import Sampler
from cotenant.service.options import Options
from cotenant.workload.profiles import as_shared

VERIFY_S = 5.0  # the longest that looking for damage may hold up a start
TAKEOVER_VERIFY_S = 1.0  # the same while everybody waits for a new leader
STANDBY_S = 0.3  # between two tries to lead
_log = logging.getLogger(__name__)
_LOCAL_ADMIN = Caller("local", Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a service keeps its journal and runs its jobs.

    `backend`: where jobs run, as in `local:gpus=4`. Some of its options are here: how many GPUs, or the type of each
    one, which makes them virtual; how jobs share one; how tenants are kept apart, what network their jobs have, and
    which users they are. The journal is copied every `backup_every_s` seconds (0: never), and the newest `backup_keep`
    such copies stay.
    """

    db: str | None = None
    backend: str = "local"
    gpus: int | Sequence[str] | None = None
    share: str = "time"
    backup_every_s: float = 0.0
    backup_keep: int = 8
    log_level: str = "info"
    log_format: str = "text"
    isolation: str = "none"
    network: str = "host"
    user_map: str = ""

    def backend_options(self) -> dict[str, Any]:
        """Options of the backend that have options of `serve` of their own: those that differ from the usual."""
        names = ("gpus", "share", "isolation", "network", "user_map")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(_HERE, name)}


_HERE = Site()


def open_service(options: Options, site: Site = _HERE, verify_s: float = VERIFY_S) -> CoreService:
    """Open the journal, look for damage, rebuild the book, reconcile with what really runs.

    Of profile h200, or a profile file, the pairs are taken that were measured as jobs share GPUs here.
    """
    home = homes.prepare(options.home)
    with ExitStack() as undo:
        held = homes.hold(home)
        undo.callback(held.release)
        journal = undo.enter_context(open_journal(site.db or str(home / "journal.db"), options.clock))
        if not journal.verify(verify_s):
            _log.info("the journal is long: only its newest records were looked through for damage")
        service = _over(journal, replace(options, home=home), site)
        undo.callback(service.backend.close)
        service.reconcile()
        service.at_close.callback(held.release)
        undo.pop_all()
    return service


def _when_free(options: Options, site: Site, standby: MakeStandby) -> CoreService:
    """Open the service as soon as no other has its home or journal; say meanwhile who leads."""
    leader = [""]
    with standby(lambda: leader[0]):
        import cotenant.service.planner.planner  # noqa: F401 (what takes long is done before it matters)

        while True:
            try:
                return open_service(options, site, TAKEOVER_VERIFY_S)
            except (JournalBusy, JournalUnavailable) as error:
                found = getattr(error, "leader", "") or _told_at(options.home)
                if found != leader[0]:
                    _log.info("standing by: %s", f"{found} leads" if found else error)
                leader[0] = found
            time.sleep(STANDBY_S)


def _told_at(home: Path) -> str:
    """Where the service of a home has said that it answers."""
    try:
        return (home / "url").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _over(journal: Journal, options: Options, site: Site) -> CoreService:
    """The service over an open journal."""
    backend = open_backend(site.backend, options.home, **site.backend_options())
    profile = as_shared(options.profile, backend.capabilities().share)
    return CoreService(journal, backend, replace(options, profile=profile))


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

    def __init__(self, service: CoreService, ends_deposed: bool = False) -> None:
        self._service, self._ends_deposed = service, ends_deposed
        self._ending = threading.Event()
        self._lives = LongLived()
        self._sampler = Sampler(service.usage)
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._sampler.start()
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                wait_s = self._service.tick()
                self._tell("")
            except (Unavailable, JournalError, BackendError) as error:
                self._tell(str(error))
                wait_s = 1.0
                if self._ends_deposed and self._service.store.journal.deposed:
                    self._service.shut_down("keep")
            except Exception:  # the loop must go on; the next tick starts from the journal's truth
                _log.exception("the scheduler failed and goes on")
                wait_s = 1.0
            self._lives.settle(len(self._service.store.book.jobs))
            self._service.backend.wait_change(wait_s)

    def _tell(self, trouble: str) -> None:
        """Say once that nothing can be decided, and once that it can be again."""
        if trouble and not self._trouble:
            _log.error("nothing is decided, running jobs go on: %s", trouble)
        elif self._trouble and not trouble:
            _log.warning("it can be decided again: everything goes on")
        self._trouble = trouble

    def stop(self) -> None:
        """End after the present tick."""
        self._ending.set()
        self._service.backend.wake()
        self._thread.join(timeout=10)
        self._sampler.stop()
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
MakeStandby = Callable[[Callable[[], str]], AbstractContextManager[object]]
"""What answers while another service leads; it is told where that one is."""


def serve(make_front: MakeFront, options: Options, site: Site, standby: MakeStandby | None = None) -> None:
    """Run until SIGINT or SIGTERM. Running jobs are left alone and adopted by the next start.

    With `standby` another service may lead: this one waits for its end, and itself ends when it is deposed.
    """
    logs.set_up(site.log_level, site.log_format)
    service = _when_free(options, site, standby) if standby else open_service(options, site)
    home = service.options.home
    backups = Backups(service.store.journal, home / "backups", site.backup_every_s, site.backup_keep)
    try:
        front = make_front(service)
        known = (home / "token").exists()
        secret = first_token(service, home)
        backups.start()
        asyncio.run(_serve(service, front, None if known else secret, ends_deposed=standby is not None))
    finally:
        backups.stop()
        service.close()


async def _serve(service: CoreService, front: HttpSide, new_secret: str | None, ends_deposed: bool) -> None:
    ending = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        ending.add_signal_handler(number, front.stop)
    service.on_over(partial(ending.call_soon_threadsafe, front.stop))
    url = await front.start()
    await service.reports.start()
    if ends_deposed:
        service.store.journal.introduce(_seen_from_afar(url))
    scheduler = Loop(service, ends_deposed)
    scheduler.start()
    service.forecasts.start()
    _greet(service, url, new_secret)
    await front.ended()
    scheduler.stop()
    await service.reports.stop()
    if ends_deposed and service.store.journal.deposed:
        raise JournalError("another service has taken the journal over: this one has ended; start it again to stand by")


def _seen_from_afar(url: str) -> str:
    """Who listens everywhere is found by the name of the machine."""
    return url.replace("//0.0.0.0:", f"//{socket.gethostname()}:").replace("//[::]:", f"//{socket.gethostname()}:")


def _greet(service: CoreService, url: str, new_secret: str | None) -> None:
    """Say where it listens. The token is shown once, when it is made; later only where it is kept."""
    home = service.options.home
    fresh = home / "url.new"
    fresh.write_text(url + "\n", encoding="utf-8")
    fresh.replace(home / "url")  # whoever waits for it never reads half of it
    gpus = sum(node.gpus for node in service.observer.nodes)
    sys.stdout.write(f"cotenant serves {gpus} GPUs under policy {service.store.book.policy} at {url}\n")
    for line in service.backend.capabilities().unprotected:
        sys.stdout.write(f"{line} (docs/threat-model.md)\n")
    sys.stdout.write(f"token: {new_secret}\n" if new_secret else f"token: kept in {home / 'token'}\n")
    sys.stdout.flush()
