"""The job's end of the connection: one daemon thread that connects, sends and receives.

The training thread only appends to a queue. When the service is away the thread tries again with back-off and the
job goes on; when the queue is full the oldest progress is dropped. Nothing here raises into the training loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from ._address import connect
from .protocol import (
    MAX_LINE,
    Built,
    Checkpoint,
    Go,
    Hello,
    JobMessage,
    Pause,
    Progress,
    ProtocolError,
    Refused,
    Restored,
    ServiceMessage,
    Set,
    Stop,
    TakeTurns,
    Welcome,
    decode,
    encode,
)

log = logging.getLogger("cotenant.runtime")

QUEUE_LIMIT = 256
CONNECT_TIMEOUT_S = 2.0
FIRST_DELAY_S = 0.05
LAST_DELAY_S = 5.0


class _RefusedError(Exception):
    """The service does not want to talk to this job."""


class Link:
    """A connection to the service that mends itself."""

    def __init__(self, address: str, hello: Hello, receive: Callable[[ServiceMessage], None]) -> None:
        self._address = address
        self._hello = hello
        self._receive = receive
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._outbox: deque[JobMessage] = deque()
        self._repeat: dict[type[JobMessage], JobMessage] = {}  # told before, told again after a reconnection
        self._welcomed = threading.Event()
        self._refused = self._connected = False
        self._deadline: float | None = None  # set by close: when to give up sending the rest
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)
        self._jitter = random.Random(self._pid)  # its own, so that the script's random numbers stay as they are
        self._thread = threading.Thread(target=self._run, name="cotenant-runtime", daemon=True)

    def start(self, wait_s: float) -> None:
        """Begin, and give the service a moment to say with which settings to start."""
        self._thread.start()
        self._welcomed.wait(wait_s)

    @property
    def welcomed(self) -> bool:
        """Whether the service has ever answered."""
        return self._welcomed.is_set()

    @property
    def connected(self) -> bool:
        """Whether it can be talked to just now."""
        return self._connected

    def send(self, message: JobMessage) -> None:
        """Queue a message. Returns at once."""
        if os.getpid() != self._pid:  # a forked child, e.g. a data loader's worker, has no say
            return
        with self._lock:
            self._outbox.append(message)
            if len(self._outbox) > QUEUE_LIMIT:
                self._drop_oldest()
        self._wake()

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for at most so long, and end the thread."""
        if os.getpid() != self._pid:
            return
        self._deadline = time.monotonic() + timeout_s
        self._wake()
        self._thread.join(timeout_s + 0.5)

    def _drop_oldest(self) -> None:
        """Oldest progress first; then the oldest checkpoint, which a newer one has replaced by now."""
        for kind in (Progress, Checkpoint):
            for message in self._outbox:
                if isinstance(message, kind):
                    self._outbox.remove(message)
                    return

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full is as good as woken; closed means that nobody sleeps
            self._wake_w.send(b"w")

    def _run(self) -> None:
        delay = FIRST_DELAY_S
        while not self._finished():
            reached, delay = self._session(), min(2 * delay, LAST_DELAY_S)
            if reached is not None:
                delay = FIRST_DELAY_S if reached else LAST_DELAY_S
            if self._finished():
                break
            self._sleep(delay * self._jitter.uniform(0.5, 1.0))
        self._wake_r.close()
        self._wake_w.close()

    def _finished(self) -> bool:
        return self._deadline is not None and (not self._outbox or time.monotonic() >= self._deadline)

    def _sleep(self, delay_s: float) -> None:
        """Back off; once closing, hurry."""
        until = time.monotonic() + delay_s
        while (left := until - time.monotonic()) > 0:
            if self._deadline is not None:
                left = min(left, FIRST_DELAY_S)
                until = 0.0
            select.select([self._wake_r], [], [], left)
            self._drain_wakes()

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_r.recv(4096):
                pass

    def _session(self) -> bool | None:
        """One connection, from hello to its end: True when welcomed, False when refused, None when not reached."""
        welcomed = False
        try:
            with connect(self._address, CONNECT_TIMEOUT_S) as sock:
                sock.sendall(encode(self._hello))
                sock.setblocking(False)
                received = bytearray()
                while not welcomed:
                    if not self._wait(sock, writing=False) and self._finished():
                        return None
                    welcomed = self._read(sock, received)
                self._queue_repeats()
                self._connected = True
                self._welcomed.set()
                self._talk(sock, received)
        except _RefusedError as error:
            if not self._refused:
                log.warning("the service refused this job: %s; training goes on without it", error)
            self._refused = True
            return False
        except Exception as error:  # whatever is wrong with the connection, training goes on
            log.debug("connection to the service ended: %s", error)
        finally:
            self._connected = False
        return True if welcomed else None

    def _queue_repeats(self) -> None:
        with self._lock:
            self._outbox.extendleft(reversed(self._repeat.values()))
            self._repeat.clear()

    def _talk(self, sock: socket.socket, received: bytearray) -> None:
        """Send from the queue and read what comes, until the end."""
        current: JobMessage | None = None
        rest = b""
        while True:
            if not rest:
                if current is not None:
                    self._sent(current)
                current = self._next()
                rest = encode(current) if current is not None else b""
            if self._finished():
                return
            if self._wait(sock, writing=bool(rest)):
                self._read(sock, received)
            if rest:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[sock.send(rest) :]

    def _next(self) -> JobMessage | None:
        with self._lock:
            return self._outbox[0] if self._outbox else None

    def _sent(self, message: JobMessage) -> None:
        """A message leaves the queue only when the last byte of it has gone out."""
        with self._lock:
            if self._outbox and self._outbox[0] is message:
                self._outbox.popleft()
            if isinstance(message, Restored | Checkpoint | Progress | Built):
                self._repeat.pop(type(message), None)
                self._repeat[type(message)] = message

    def _wait(self, sock: socket.socket, *, writing: bool) -> bool:
        """Wait for something to do; True when there is something to read."""
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        readable, _, _ = select.select([sock, self._wake_r], [sock] if writing else [], [], left)
        if self._wake_r in readable:
            self._drain_wakes()
        return sock in readable

    def _read(self, sock: socket.socket, received: bytearray) -> bool:
        """Handle every whole line; True when one of them was the welcome."""
        try:
            data = sock.recv(MAX_LINE)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionError("closed by the service")
        received += data
        *lines, rest = received.split(b"\n")
        received[:] = rest
        if len(received) > MAX_LINE:
            raise ProtocolError("line too long")
        welcomed = False
        for line in lines:
            message = decode(bytes(line))
            if isinstance(message, Refused):
                raise _RefusedError(message.reason)
            if isinstance(message, Welcome | Set | Stop | Pause | Go | TakeTurns):
                self._receive(message)
            welcomed = welcomed or isinstance(message, Welcome)
        return welcomed
