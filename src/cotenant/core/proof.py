"""How two ends of a connection know each other before a secret is sent.

Over a Unix socket the kernel says who is there. Over TCP the service proves that it knows the digest of the caller's
token, by a keyed hash of the caller's nonce and of the address at which it was reached: so nobody can listen where the
service should be, nor pass the question on to the real one from another port.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct

_CREDENTIALS = struct.Struct("3i")


def digest(secret: str) -> str:
    """What is kept of a token. Secrets are long and random, so a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def hint(token_digest: str) -> str:
    """By this a caller says which token he means, without saying anything about it."""
    return hashlib.sha256(b"cotenant hint " + token_digest.encode()).hexdigest()[:24]


def proof(token_digest: str, nonce: str, address: str) -> str:
    """What only somebody who knows the digest can answer to a nonce."""
    return hmac.new(token_digest.encode(), f"cotenant proof {nonce} {address}".encode(), hashlib.sha256).hexdigest()


def address_of(name: object) -> str:
    """`host:port` of a socket's name; '' for a Unix socket."""
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else ""


def peer_uid(sock: socket.socket) -> int | None:
    """The user at the other end of a Unix socket, by word of the kernel; None for other sockets."""
    if sock.family != socket.AF_UNIX:
        return None
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])
