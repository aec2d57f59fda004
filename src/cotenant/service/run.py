"""`cotenant serve`: API and scheduler in one process, until asked to end. Jobs outlive it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotenant.backends import open_backend
from cotenant.journal import Entry, open_journal
from cotenant.service.desk import CoreService
from cotenant.service.facade import Caller, Role
from cotenant.service.garbage import LongLived
from cotenant.service.options import MOST_SUSPENDED, ROUND_S

_LOCAL_ADMIN = Caller("local", Role.ADMIN)


def open_service(
    *, home: Path, policy: str, db: str | None, gpus: int | Sequence[str] | None, grace_s: float,
    max_suspended: int = MOST_SUSPENDED, round_s: float = ROUND_S, profile: str = "none", share: str = "time",
    allocator: str = "", curves: str = "", backend: str = "local",
    hook: Callable[[str], None] = lambda point: None,
) -> CoreService:  # fmt: skip
    """Open the journal, rebuild the book, reconcile with what really runs.

    `backend`: where jobs run, as in `local:gpus=4`. `gpus` and `share` are two of its options: how many GPUs, or the
    type of each one, which makes them virtual; and how jobs share one. Of profile h200 the pairs are taken that were
    measured so.
    """
    home.mkdir(parents=True, exist_ok=True)
    os.chmod(home, 0o700)
    journal = open_journal(db or str(home / "journal.db"))
    given = ({} if gpus is None else {"gpus": gpus}) | ({} if share == "time" else {"share": share})
    world = open_backend(backend, home, **given)
    if profile == "h200":
        profile = f"h200:sharing={'mps' if world.capabilities().share == 'mps' else 'time-sliced'}"
    service = CoreService(
        journal, world, home=home, policy=policy, grace_s=grace_s, max_suspended=max_suspended, round_s=round_s,
        profile=profile, hook=hook, allocator=allocator, curves=curves,
    )  # fmt: skip
    service.reconcile()
    return service


def first_token(service: CoreService, home: Path) -> str:
    """The administrator's token: made at the first start, kept in a file that only its owner can read."""
    path = home / "token"
    if path.exists():
        secret = path.read_text(encoding="utf-8").strip()
        if service.authenticate(secret) is not None:
            return secret
    data, secret = service.tokens_of.new("admin", Role.ADMIN, "")
    service.write([Entry("token", data=data)])
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
            self._lives.settle(len(self._service.book.jobs))
            self._service.backend.wait_change(wait_s)

    def stop(self) -> None:
        """End after the present tick."""
        self._ending.set()
        self._service.backend.wake()
        self._thread.join(timeout=10)
        self._lives.release()


MakeApp = Callable[[CoreService], Any]


def serve(
    make_app: MakeApp,
    *,
    home: Path,
    policy: str,
    db: str | None,
    gpus: int | Sequence[str] | None,
    host: str,
    port: int,
    grace_s: float,
    max_suspended: int = MOST_SUSPENDED,
    round_s: float = ROUND_S,
    profile: str = "none",
    share: str = "time",
    allocator: str = "",
    curves: str = "",
    backend: str = "local",
) -> None:
    """Run until SIGINT or SIGTERM. Running jobs are left alone and adopted by the next start.

    `make_app` builds the HTTP side from the service, which itself knows nothing of HTTP.
    """
    service = open_service(
        home=home, policy=policy, db=db, gpus=gpus, grace_s=grace_s, max_suspended=max_suspended, round_s=round_s,
        profile=profile, share=share, allocator=allocator, curves=curves, backend=backend,
    )  # fmt: skip
    known = (home / "token").exists()
    secret = first_token(service, home)
    try:
        asyncio.run(_serve(service, make_app(service), home, host, port, None if known else secret))
    finally:
        service.snapshot()
        service.journal.close()
        service.backend.close()


async def _serve(service: CoreService, app: Any, home: Path, host: str, port: int, new_secret: str | None) -> None:
    import uvicorn

    await service.reports.start()
    scheduler = Loop(service)
    scheduler.start()
    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=3
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
        _greet(service, home, f"http://{host}:{actual}", new_secret)
    await task
    scheduler.stop()
    await service.reports.stop()


def _greet(service: CoreService, home: Path, url: str, new_secret: str | None) -> None:
    """Say where it listens. The token is shown once, when it is made; later only where it is kept."""
    (home / "url").write_text(url + "\n", encoding="utf-8")
    gpus = sum(node.gpus for node in service.nodes(_LOCAL_ADMIN))
    sys.stdout.write(f"cotenant serves {gpus} GPUs under policy {service.policy()} at {url}\n")
    sys.stdout.write(f"token: {new_secret}\n" if new_secret else f"token: kept in {home / 'token'}\n")
    sys.stdout.flush()
