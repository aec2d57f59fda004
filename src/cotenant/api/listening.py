"""Connections: accepted one by one, never more than there are descriptors for, and closed when they dawdle.

A connection that waits for a request, or for the rest of its header, can be given up for a newcomer; one whose
request is being answered cannot. So however many are opened by somebody who says nothing, others get in.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from cotenant.api.shares import CallerLimits
from cotenant.core.proof import peer_uid

_ACCEPT_AT_ONCE = 32
_SWEEP_S = 0.5
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.2


class Connection(H11Protocol):
    """HTTP/1.1 with a clock: since when it waits for a request, and since when nobody reads its answer."""

    def __init__(self, peer: str, uid: int | None, gone: Callable[[Connection], None], **more: Any) -> None:
        super().__init__(**more)
        self.peer, self._gone = peer, gone
        self.waits_since_s: float | None = time.monotonic()
        self.stuck_since_s: float | None = None
        self._heard = False
        self.app_state = {**self.app_state, "cotenant.uid": uid}

    @property
    def silence(self) -> int:
        """Who is the first to be given up: who had an answer already, who began to ask; last, who has just come."""
        return 0 if self.cycle is not None else 1 if self._heard else 2

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        self._heard = True
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """An answer is out; the next request may be there already."""
        self.waits_since_s = time.monotonic()
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.waits_since_s = None

    def pause_writing(self) -> None:
        """The other side does not read."""
        self.stuck_since_s = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It reads."""
        self.stuck_since_s = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._gone(self)
        super().connection_lost(exc)

    def hang_up(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()


class Listening:
    """Listening sockets on the running loop. `make` builds a connection from what `Connection` takes."""

    def __init__(self, limits: CallerLimits, make: Callable[..., Connection]) -> None:
        self._limits, self._make = limits, make
        self._open: dict[Connection, None] = {}
        self._of: Counter[str] = Counter()
        self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def add(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept from a bound and listening socket."""
        sock.setblocking(False)
        self._sockets.append(sock)
        self._loop.add_reader(sock, self._accept, sock, tls)

    def close(self) -> None:
        """Accept no more; open connections go on."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self._sweeper.cancel()
        os.close(self._spare)

    def _accept(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                conn, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._spill(sock, tls)
                return
            conn.setblocking(False)
            uid = peer_uid(conn)
            peer = f"uid {uid}" if uid is not None else str(address[0])
            if not self._room(peer):
                conn.close()
                continue
            self._welcome(conn, peer, uid, tls)

    def _spill(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """No descriptor is left: drop one newcomer by the spare, and look again in a moment instead of at once."""
        os.close(self._spare)
        with contextlib.suppress(OSError):
            sock.accept()[0].close()
        self._spare = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        self._loop.remove_reader(sock)
        self._loop.call_later(_PAUSE_S, self._again, sock, tls)

    def _again(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        if sock.fileno() >= 0:
            self._loop.add_reader(sock, self._accept, sock, tls)

    def _room(self, peer: str) -> bool:
        """Whether one more can come; who waits longest without a request makes room, first of the peer's own."""
        if self._of[peer] >= self._limits.all_connections * 3 // 4:
            return self._give_up(lambda one: one.peer == peer)
        return len(self._open) < self._limits.all_connections or self._give_up(lambda one: True)

    def _give_up(self, may: Callable[[Connection], bool]) -> bool:
        waiting = [one for one in self._open if one.waits_since_s is not None and one.transport is not None]
        found = min(filter(may, waiting), key=lambda one: (one.silence, one.waits_since_s), default=None)
        if found is None:
            return False
        self._leave(found)
        found.hang_up()
        return True

    def _welcome(self, conn: socket.socket, peer: str, uid: int | None, tls: ssl.SSLContext | None) -> None:
        made = self._make(peer=peer, uid=uid, gone=self._leave)
        self._open[made] = None
        self._of[peer] += 1
        task = self._loop.create_task(self._attach(made, conn, tls))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attach(self, made: Connection, conn: socket.socket, tls: ssl.SSLContext | None) -> None:
        more = {"ssl": tls, "ssl_handshake_timeout": self._limits.header_s} if tls else {}
        try:
            await self._loop.connect_accepted_socket(lambda: made, conn, **more)  # type: ignore[arg-type]
        except (TimeoutError, OSError):  # a handshake that failed
            self._leave(made)
            conn.close()

    def _leave(self, one: Connection) -> None:
        if one in self._open:
            del self._open[one]
            self._of[one.peer] -= 1
            if not self._of[one.peer]:
                del self._of[one.peer]

    def _sweep(self) -> None:
        """Hang up on those who take too long to ask, or to read."""
        now_s = time.monotonic()
        for one in list(self._open):
            waits = one.waits_since_s is not None and now_s - one.waits_since_s > self._limits.header_s
            stuck = one.stuck_since_s is not None and now_s - one.stuck_since_s > self._limits.unread_s
            if waits or stuck:
                one.hang_up()
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)


def descriptors() -> int:
    """How many files this process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def tcp_socket(host: str, port: int) -> socket.socket:
    """A listening socket. What it accepts sends at once: else each answer waits 40 ms for the other side's word."""
    made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
