"""How the service talks with its agents on nodes: messages over TCP, between two who know one secret.

TCP and not files on the shared home: those would be seen seconds late (attribute caches), and could not carry ways into
jobs. The secret lies on the home, for its owner only, and never goes over the wire: both sides prove by HMAC-SHA256
over fresh random numbers that they know it, and every message carries such a proof with its number, so nothing can be
changed, replayed or slipped in. What is said can be read by whoever listens on the cluster's network, as on the
shared home's.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cotenant.backends import base, channels
from cotenant.core.errors import CotenantError

_KINDS = {
    kind.__name__: kind
    for kind in (
        base.CallHome, base.Capabilities, base.GpuUse, base.JobUse, base.LaunchSpec, base.LogMark, base.LogPart,
        base.NodeInfo, base.Observed, channels.ChannelPart, channels.ChannelSpec,
    )
}  # fmt: skip
_MOST_BYTES = 64 << 20
_NONCE, _PROOF = 32, 32


class WrongSecret(CotenantError):
    """The other side does not know the secret, or something came in between."""


def secret_of(path: Path) -> bytes:
    """The secret in a file that only its owner can read; made where there is none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return bytes.fromhex(path.read_text())
    with os.fdopen(handle, "w") as file:
        file.write(os.urandom(32).hex())
    return bytes.fromhex(path.read_text())


def _packed(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        return {"kind": name, "of": {f.name: _packed(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, bytes):
        return {"kind": "bytes", "of": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"kind": "tuple", "of": [_packed(one) for one in value]}
    if isinstance(value, Mapping):
        return {"kind": "dict", "of": [[key, _packed(one)] for key, one in value.items()]}
    return [_packed(one) for one in value] if isinstance(value, list) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind, of = value["kind"], value["of"]
    if kind == "bytes":
        return base64.b64decode(of)
    if kind == "tuple":
        return tuple(_unpacked(one) for one in of)
    if kind == "dict":
        return {key: _unpacked(one) for key, one in of}
    return _KINDS[kind](**{name: _unpacked(one) for name, one in of.items()})


def pack(value: Any) -> bytes:
    """Plain data and values of the backends' boundary, as bytes."""
    return json.dumps(_packed(value)).encode()


def unpack(data: bytes) -> Any:
    """The inverse. It makes values of the boundary only."""
    return _unpacked(json.loads(data))


class Wire:
    """One connection, once both sides have proved themselves. One thread receives, any may send."""

    def __init__(self, sock: socket.socket, secret: bytes, caller: bool) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock, self._sending = sock, threading.Lock()
        mine = os.urandom(_NONCE)
        sock.sendall(mine)
        theirs = self._exactly(_NONCE)
        both = mine + theirs if caller else theirs + mine
        keys = [hmac.digest(secret, side + both, hashlib.sha256) for side in (b"cotenant caller", b"cotenant agent")]
        self._out, self._in = keys if caller else keys[::-1]
        self._sent = self._got = 0
        if caller:
            self.send("hello")
        if self.receive() != "hello":
            raise WrongSecret("no greeting came")
        if not caller:
            self.send("hello")

    def send(self, value: Any) -> None:
        """One message, whole."""
        data = pack(value)
        with self._sending:
            proof = hmac.digest(self._out, struct.pack(">Q", self._sent) + data, hashlib.sha256)
            self._sent += 1
            self._sock.sendall(struct.pack(">I", len(data)) + proof + data)

    def receive(self) -> Any:
        """The next one; `WrongSecret` where it is not the other side's, an `OSError` at the end."""
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > _MOST_BYTES:
            raise WrongSecret("a message of that size is none of ours")
        proof, data = self._exactly(_PROOF), self._exactly(size)
        wanted = hmac.digest(self._in, struct.pack(">Q", self._got) + data, hashlib.sha256)
        if not hmac.compare_digest(proof, wanted):
            raise WrongSecret("the other side does not know the secret")
        self._got += 1
        return unpack(data)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._sock.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the other side hung up")
            data += part
        return data

    def patience(self, timeout_s: float | None) -> None:
        """How long to wait for bytes."""
        self._sock.settimeout(timeout_s)

    def close(self) -> None:
        """Hang up; whoever receives is told."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
