"""The HTTP side at work: sockets, TLS, who is who on this machine, and the server behind them."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from cotenant.api import certificate
from cotenant.api.app import make_app
from cotenant.api.audit import AuditLog
from cotenant.api.door import DoorSettings
from cotenant.api.listening import Connection, Listening, descriptors, tcp_socket
from cotenant.api.quiet import bound_logs
from cotenant.api.sessions import Sessions
from cotenant.api.shares import CallerLimits
from cotenant.api.signon import Provider, SignOn
from cotenant.core.errors import InputError
from cotenant.runtime.server import unix_socket
from cotenant.service.facade import Caller, Role

if TYPE_CHECKING:
    from cotenant.service.core import CoreService

SOCKET = "api.sock"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where a service listens, and whom it knows without a token of its own.

    `socket`: the Unix socket, a path, `auto` for `api.sock` at home, or `none`; `group`: who besides the owner may
    connect to it. `tls`: `auto`, or files CERT,KEY. `peers`: users of this machine by name.
    """

    home: Path
    host: str = "127.0.0.1"
    port: int = 8470
    socket: str = "auto"
    group: str = ""
    tls: str = ""
    provider: Provider | None = None
    peers: Mapping[str, Caller] = field(default_factory=dict)
    limits: CallerLimits = CallerLimits()  # noqa: RUF009


class Front:
    """One service's doors. `start` on the loop that serves; `ended` is over when somebody has asked it to stop."""

    def __init__(self, service: CoreService, doors: Doors, tcp: socket.socket | None = None) -> None:
        self._doors, self._tcp = doors, tcp
        limits = doors.limits.within(descriptors())
        self._tls: ssl.SSLContext | None = None
        pin = ""
        if doors.tls:
            self._tls, pin = certificate.load(doors.tls, doors.home, doors.host)
        sign_on = SignOn(doors.provider) if doors.provider else None
        self._audit = AuditLog(doors.home)
        settings = DoorSettings(
            limits, peers=_peers(doors), audit=self._audit, sign_on=sign_on, fingerprint=pin,
            sessions=Sessions(doors.home / "sessions.json"), simulations=doors.home / "simulations",
        )  # fmt: skip
        keep = doors.home / "fingerprint"
        keep.write_text(pin + "\n", encoding="ascii") if pin else keep.unlink(missing_ok=True)
        config = uvicorn.Config(
            make_app(service, settings), http=Connection, ws="none", log_level="warning", access_log=False,
            timeout_graceful_shutdown=3,
        )  # fmt: skip
        self._server, self._limits = uvicorn.Server(config), limits
        self._config = config
        self._path = "" if doors.socket == "none" else str(self._socket_path())
        self._inode = 0

    def _socket_path(self) -> Path:
        given = self._doors.socket
        return self._doors.home / SOCKET if given == "auto" else Path(given).expanduser().absolute()

    async def start(self) -> str:
        """Listen; the URL."""
        bound_logs()
        tcp = self._tcp or listen(self._doors)
        self._task = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)
        make = partial(Connection, config=self._config, server_state=self._server.server_state, app_state={})
        self._listening = Listening(self._limits, make)
        self._listening.add(tcp, self._tls)
        if self._path:
            self._listening.add(self._unix())
        host = f"[{self._doors.host}]" if ":" in self._doors.host else self._doors.host
        return f"{'https' if self._tls else 'http'}://{host}:{tcp.getsockname()[1]}"

    def stop(self) -> None:
        """Ask it to end; `ended` tells when it has."""
        self._server.should_exit = True

    async def ended(self) -> None:
        """Serve until asked to stop, or by a signal."""
        try:
            while not self._server.should_exit and not self._task.done():
                await asyncio.sleep(0.1)
            self._listening.close()
            await self._task
        finally:
            if self._path and self._inode and os.path.exists(self._path) and os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
            self._audit.close()

    def _unix(self) -> socket.socket:
        try:
            group = grp.getgrnam(self._doors.group).gr_gid if self._doors.group else -1
            made, self._inode = unix_socket(self._path, 0o660 if self._doors.group else 0o600, group)
            return made
        except KeyError:
            raise InputError(f"--socket-group {self._doors.group}: there is no such group") from None
        except OSError as error:
            raise InputError(f"cannot listen at {self._path}: {error.strerror or error}: see --socket") from None


def listen(doors: Doors) -> socket.socket:
    """Take the address, before anything else is touched."""
    try:
        return tcp_socket(doors.host, doors.port)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen at {doors.host} port {doors.port}: {why}: take another --port (0: any that is free)"
        ) from None


def _peers(doors: Doors) -> dict[int, Caller]:
    """The service's own user and root are admins: they can read its files anyway."""
    own = {uid: Caller(_user(uid), Role.ADMIN) for uid in (0, os.geteuid())}
    for name, caller in doors.peers.items():
        try:
            own[pwd.getpwnam(name).pw_uid] = caller
        except KeyError:
            raise InputError(f"--peer {name}: this machine has no such user") from None
    return own


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def read_peer(text: str) -> tuple[str, Caller]:
    """`alice=user:team-a`, `bob=viewer`, `carol=admin`."""
    name, equals, what = text.partition("=")
    role, _, tenant = what.partition(":")
    if not name or not equals or role not in list(Role):
        raise InputError(f"--peer {text}: write NAME=ROLE[:TENANT], with role admin, user or viewer")
    if (role == Role.USER) != bool(tenant) and role != Role.VIEWER:
        raise InputError(f"--peer {text}: a user has a tenant, an admin has none")
    return name, Caller(name, Role(role), tenant)


def open_front(doors: Doors, tcp: socket.socket, service: Any) -> Front:
    """As `Front`, for `functools.partial`."""
    return Front(service, doors, tcp)
