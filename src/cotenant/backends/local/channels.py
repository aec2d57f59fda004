"""Ways into a job of this machine: the socket of its keeper, and ports at which its own processes listen."""

from __future__ import annotations

import ctypes
import os
import re
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from cotenant.backends.base import BackendError
from cotenant.backends.channels import ChannelPart, ChannelSpec
from cotenant.backends.local.records import KeeperRecord
from cotenant.core.frames import FrameReader, frame

_NAME = "door"
_PART = 64 << 10
_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp
_CONNECT_S = 5.0
_AGAIN_S = 0.05  # between two tries to say what was not taken
_NEWNET = 0x40000000
_INODE = re.compile(r"socket:\[(\d+)\]")


@contextmanager
def _short(record: KeeperRecord) -> Iterator[str]:
    """The path of a record's socket by a handle of its folder: a socket's path has at most 107 bytes."""
    handle = os.open(record.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{_NAME}"
    finally:
        os.close(handle)


@contextmanager
def listening(record: KeeperRecord) -> Iterator[int]:
    """A socket for the keeper to listen at, or, where there can be none, something that is no socket."""
    with socket.socket(socket.AF_UNIX) as made, open(os.devnull) as nothing:
        try:
            os.fchmod(made.fileno(), 0o600)
            with _short(record) as path:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                made.bind(path)
            made.listen(16)
        except OSError:
            yield nothing.fileno()
        else:
            yield made.fileno()


class _Connected:
    """A socket, read and written without ever waiting longer than allowed."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock, self._writing = sock, threading.Lock()
        self._reading = threading.Lock()
        self._end: ChannelPart | None = None

    def _receive(self, timeout_s: float) -> bytes | None:
        """Bytes, none of them at the end; None if nothing came in time."""
        try:
            if not _ready(self._sock, select.POLLIN, timeout_s):
                return None
            return self._sock.recv(_PART)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return b""

    def _send(self, data: bytes, timeout_s: float) -> int:
        """How many bytes were taken in time; all of them where nobody takes any more."""
        try:
            if not _ready(self._sock, select.POLLOUT, timeout_s):
                return 0
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except (OSError, ValueError):
            return len(data)

    def close(self) -> None:
        """Hang up; a read that is in progress ends."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._reading, self._writing:
            self._sock.close()


def _ready(sock: socket.socket, events: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(sock, events)
    return bool(poller.poll(max(0.0, timeout_s) * 1000))


class KeeperChannel(_Connected):
    """A visit at a keeper (see `visits`)."""

    def __init__(self, sock: socket.socket, first: bytes) -> None:
        super().__init__(sock)
        self._frames, self._came = FrameReader(), deque[ChannelPart]()
        self._left = first  # of what has been begun to be said: a frame is sent whole or not at all
        self._drain(_CONNECT_S)

    def read(self, timeout_s: float) -> ChannelPart | None:
        """See the protocol."""
        until = time.monotonic() + timeout_s
        with self._reading:
            while self._end is None and not self._came:
                wait_s = until - time.monotonic()
                data = self._receive(wait_s if self._said() else min(wait_s, _AGAIN_S))
                if data is not None:
                    self._take(data)
                elif time.monotonic() >= until:
                    return None
            return self._came.popleft() if self._came else self._end

    def _said(self) -> bool:
        """Whether nothing is left to say. Whoever reads sends the rest: the end of the input has no successor."""
        if self._left and self._writing.acquire(blocking=False):
            try:
                self._drain(0.0)
            finally:
                self._writing.release()
        return not self._left

    def _take(self, data: bytes) -> None:
        if not data:
            self._end = ChannelPart("end")  # the keeper is gone, and nobody saw how it ended
        for letter, payload in self._frames.feed(data):
            if letter in "OE":
                self._came.append(ChannelPart("stdout" if letter == "O" else "stderr", payload))
            elif letter == "Q":
                how, _, number = payload.decode().partition(" ")
                self._end = ChannelPart("end", b"", *((int(number), None) if how == "code" else (None, int(number))))
            elif letter == "F":
                raise BackendError(payload.decode(errors="replace"))

    def write(self, data: bytes, timeout_s: float) -> int:
        """See the protocol."""
        with self._writing:
            if not self._drain(timeout_s):
                return 0
            part = data[:_PART]
            self._left = frame("I", part)
            self._drain(0.0)
            return len(part)

    def end_input(self) -> None:
        """See the protocol."""
        self._say(frame("I", b""))

    def resize(self, rows: int, cols: int) -> None:
        """See the protocol."""
        self._say(frame("W", rows.to_bytes(2, "big") + cols.to_bytes(2, "big")))

    def _say(self, text: bytes) -> None:
        with self._writing:
            self._left += text
            self._drain(0.0)

    def _drain(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while self._left:
            sent = self._send(self._left, until - time.monotonic())
            if not sent:
                return False
            self._left = self._left[sent:]
        return True


class PortChannel(_Connected):
    """A connection to a port of the job."""

    def read(self, timeout_s: float) -> ChannelPart | None:
        """See the protocol."""
        with self._reading:
            if self._end is None:
                data = self._receive(timeout_s)
                if data is None:
                    return None
                if data:
                    return ChannelPart("stdout", data)
                self._end = ChannelPart("end")
            return self._end

    def write(self, data: bytes, timeout_s: float) -> int:
        """See the protocol."""
        with self._writing:
            return self._send(data, timeout_s)

    def end_input(self) -> None:
        """See the protocol."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, cols: int) -> None:
        """It has no size."""


def visit(record: KeeperRecord, asked: ChannelSpec) -> KeeperChannel:
    """Knock at the keeper's door."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        with _short(record) as path:
            sock.connect(path)
    except OSError:
        sock.close()
        raise BackendError("nothing of it runs that could be joined, or an older version started it") from None
    if asked.kind == "attach":
        return KeeperChannel(sock, frame("A", b""))
    entries = [("argv", word) for word in asked.argv] + [("env", f"{name}={value}") for name, value in asked.env]
    entries += [("tty", "yes")] * asked.tty
    text = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in entries)
    return KeeperChannel(sock, frame("X", text))


def connect(pids: Iterable[int], port: int) -> PortChannel:
    """To a port at which one of these processes listens. Others' ports are refused, whoever may ask for them."""
    own = _sockets(pids)
    found = [(host, number, pid) for pid in pids for host, number in _listeners(pid, own)]
    chosen = min((place for place in found if place[1] == port), default=None)
    if chosen is None:
        ports = ", ".join(map(str, sorted({number for _, number, _ in found}))) or "none"
        raise BackendError(f"it does not listen at port {port} (at which it does: {ports})")
    try:
        return PortChannel(_connected(*chosen))
    except OSError as error:
        raise BackendError(f"port {port} cannot be reached from the service: {error.strerror or error}") from None


def _connected(host: str, port: int, pid: int) -> socket.socket:
    """From the network that the process has: a socket belongs to that of the thread that made it (setns(2))."""
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.path.samestat(os.fstat(handle), os.stat("/proc/self/ns/net")):
            return socket.create_connection((host, port), _CONNECT_S)
        with ThreadPoolExecutor(1) as apart:  # a thread of its own, which ends there
            return apart.submit(_connect_inside, handle, host, port).result()
    finally:
        os.close(handle)


def _connect_inside(network: int, host: str, port: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(network, _NEWNET) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return socket.create_connection((host, port), _CONNECT_S)


def _sockets(pids: Iterable[int]) -> set[str]:
    """The numbers of all sockets that these processes have open."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if match := _INODE.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}")):
                        found.add(match[1])
    return found


def _listeners(pid: int, own: set[str]) -> Iterator[tuple[str, int]]:
    """Host and port of each listening socket among these numbers, as this process sees the network (proc(5))."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and words[9] in own:
                    text, _, port = words[1].partition(":")
                    yield _host(text, family), int(port, 16)


def _host(text: str, family: int) -> str:
    """An address of /proc/net/tcp: words of four bytes, each in the machine's order. Any address is this machine's."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    if not any(raw):
        return "127.0.0.1" if family == socket.AF_INET else "::1"
    return socket.inet_ntop(family, raw)
