"""The door of a service that waits for its turn: it says who leads, on the very socket that it will serve later.

`/healthz` is well and `/readyz` is not, so that whoever balances load sends nobody here. Everything else is sent on to
the leader (307) if that one is known, else refused (503); both with a header by which our client knows to ask another.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from cotenant.api import certificate
from cotenant.api.front import Doors
from cotenant.client.errors import STANDBY

_LOOK_S = 0.1
_PATIENCE_S = 3.0
_MOST_HEADER = 16384
_MOST_AT_ONCE = 32


class StandbyDoor:
    """Answers from entering to leaving. Connections that come afterwards wait on the socket for the real service."""

    def __init__(self, doors: Doors, tcp: socket.socket, leader: Callable[[], str]) -> None:
        self._tcp, self._leader = tcp, leader
        self._tls = certificate.load(doors.tls, doors.home, doors.host)[0] if doors.tls else None
        self._ending = threading.Event()
        self._places = threading.Semaphore(_MOST_AT_ONCE)
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            if not select.select([self._tcp], [], [], _LOOK_S)[0]:
                continue
            with suppress(OSError):
                connection, _ = self._tcp.accept()
                connection.settimeout(_PATIENCE_S)
                if self._places.acquire(blocking=False):
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, ssl.SSLError, ValueError), connection:
                spoken = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
                head = b""
                while b"\r\n\r\n" not in head and len(head) < _MOST_HEADER and (data := spoken.recv(4096)):
                    head += data
                _, path, *_ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
                spoken.sendall(self._said(path))
                spoken.shutdown(socket.SHUT_WR)
        finally:
            self._places.release()

    def _said(self, path: str) -> bytes:
        leader = self._leader()
        text = f"this service stands by; {f'{leader} leads' if leader else 'nobody leads just now'}"
        if path == "/healthz":
            status, body = "200 OK", {"status": "standby"}
        elif leader and path != "/readyz":
            status, body = "307 Temporary Redirect", {"error": text}
        else:
            status, body = "503 Service Unavailable", {"error": text}
        data = json.dumps(body).encode()
        lines = [
            f"HTTP/1.1 {status}",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            f"{STANDBY}: 1",
        ]
        if status.startswith("307"):
            lines.append(f"Location: {leader}{path}")
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + data
