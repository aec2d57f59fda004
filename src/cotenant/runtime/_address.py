"""Where jobs call the service: `unix:/path/of/socket` or `tcp:host:port` (an IPv6 host in brackets).

Over TCP the same lines travel as over the socket, and are not encrypted: whoever can listen in between sees the token
of an attempt, which lets him speak for that attempt and nothing else. Use it on loopback or a network that you trust.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_MAX_NAME = 100  # sun_path holds 104 bytes on the smallest system, with the final zero
_TCP = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s]+):([0-9]{1,5})")


def parse(address: str) -> str | tuple[str, int]:
    """The path of a unix socket, or host and port; ValueError says what is wrong."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix" and rest:
        return rest
    match = _TCP.fullmatch(rest) if scheme == "tcp" else None
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"'{address}' is no address: write unix:/path or tcp:host:port")
    return match[1].strip("[]"), int(match[2])


def of_environment() -> str:
    """The address that a job was given; '' outside Cotenant. Services of before there were addresses name a socket."""
    path = os.environ.get("COTENANT_SOCKET")
    return os.environ.get("COTENANT_ADDRESS") or (f"unix:{path}" if path else "")


def turns_folder(address: str) -> Path | None:
    """Where jobs that share GPUs take turns: beside the socket that they call, if they call one."""
    where = parse(address) if address else ()
    return Path(where).parent / "turns" if isinstance(where, str) else None


def connect(address: str, timeout_s: float) -> socket.socket:
    """A connected stream socket. One whose other machine has vanished is found dead in the end."""
    where = parse(address)
    if isinstance(where, tuple):
        sock = socket.create_connection(where, timeout_s)
        keep_alive(sock)
        return sock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        with short_name(where) as name:
            sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Ask a silent other side now and then whether it is there, and send small messages at once."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@contextlib.contextmanager
def short_name(path: str) -> Iterator[str]:
    """A name of the socket that fits a socket address, however deep its folder lies (Linux)."""
    if len(os.fsencode(path)) <= _MAX_NAME or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
