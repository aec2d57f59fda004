"""Connections that know their other end before a token goes over them.

A Unix socket must be served by ourselves, root, or the user named by COTENANT_SERVICE_USER. Over plain TCP on this
machine, and to the service of our own home, the service has to prove that it knows our token
(`cotenant.core.proof`). Over TLS its certificate must have the fingerprint that we know, where we know one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import secrets
import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import h11
import httpcore

from cotenant.client.errors import STANDBY, Denied, NotThere, Unreachable
from cotenant.client.home import Target
from cotenant.client.slim import httpx
from cotenant.core.errors import InputError
from cotenant.core.proof import address_of, digest, hint, peer_uid, proof
from cotenant.runtime._address import short_name

CONNECT_S = 5.0
READ_S = 30.0
SEVERAL_S = 3.0  # how long one of several addresses may hang before the next one is asked
_STANDS_BY = -1  # instead of a status
_LOOPBACK = ("127.", "localhost", "::1")
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=2.0)


def open_http(target: Target, read_s: float) -> httpx.Client:
    """An HTTP client for a service; whoever it meets is checked when a connection is made."""
    headers = {"User-Agent": "cotenant-client"}
    if target.secret:
        headers["Authorization"] = f"Bearer {target.secret}"
    base = "http://localhost" if target.socket else target.url
    host = urlsplit(base).hostname or ""
    local = host.startswith(_LOOPBACK)
    if target.signed_on and not target.socket and base.startswith("http://"):
        raise Denied(f"a sign-on token is not sent to {target.url}, which anybody could be: use TLS or a Unix socket")
    checked = bool(target.socket or target.pin or (base.startswith("http://") and (local or target.own)))
    return httpx.Client(
        base_url=base,
        headers=headers,
        timeout=timeout(read_s),
        limits=_LIMITS,
        transport=_Checked(target) if checked else None,
        trust_env=not local,
    )


def timeout(read_s: float) -> httpx.Timeout:
    """Nobody waits long for a connection; for an answer as long as it may take."""
    return httpx.Timeout(read_s, connect=CONNECT_S)


class _Checked(httpx.HTTPTransport):
    """As httpx's own, with connections made by us."""

    def __init__(self, target: Target) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # used with a pin only, which says more than any authority
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        super().__init__(verify=context, trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=_LIMITS.max_connections,
            max_keepalive_connections=_LIMITS.max_keepalive_connections,
            keepalive_expiry=_LIMITS.keepalive_expiry,
            network_backend=_Network(target),
        )


class _Network(httpcore.NetworkBackend):
    """Connects, and looks who is there."""

    def __init__(self, target: Target) -> None:
        self._target, self._real = target, httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:  # fmt: skip
        """To the socket where there is one, else as asked."""
        target = self._target
        if target.socket:
            with short_name(target.socket) as name:
                stream = self._real.connect_unix_socket(name, timeout)
            _check_peer(stream, target)
            return stream
        stream = self._real.connect_tcp(host, port, timeout, local_address, socket_options)
        if target.url.startswith("https://"):
            return _Pinned(stream, target)
        if target.secret:
            _challenge(stream, target)
        return stream


class _Pinned(httpcore.NetworkStream):
    """A stream that checks the certificate as soon as there is one."""

    def __init__(self, stream: httpcore.NetworkStream, target: Target) -> None:
        self._stream, self._target = stream, target

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Encrypted from here on, with the one whom we know."""
        secured = self._stream.start_tls(ssl_context, server_hostname, timeout)
        shown = secured.get_extra_info("ssl_object").getpeercert(True)
        if not hmac.compare_digest(hashlib.sha256(shown or b"").hexdigest(), self._target.pin):
            secured.close()
            raise Denied(f"{self._target.url} shows another certificate than the service's: no token was sent")
        return secured

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore."""
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """See httpcore."""
        self._stream.close()


def _check_peer(stream: httpcore.NetworkStream, target: Target) -> None:
    uid, trusted = peer_uid(stream.get_extra_info("socket")), {0, os.geteuid()}
    if name := os.environ.get("COTENANT_SERVICE_USER"):
        try:
            trusted.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            stream.close()
            raise InputError(f"COTENANT_SERVICE_USER={name}: this machine has no such user") from None
    if uid not in trusted:
        stream.close()
        raise Denied(
            f"{target.socket} is served by user {uid}, not by you or root: if so it be, set COTENANT_SERVICE_USER"
        )


def _challenge(stream: httpcore.NetworkStream, target: Target) -> None:
    """Have the other end prove that it knows our token's digest, and that we reach it without somebody between."""
    nonce, known = secrets.token_hex(16), digest(target.secret)
    try:
        wait_s = SEVERAL_S if target.others else READ_S
        status, answer = _get(stream, f"/v1/proof?nonce={nonce}&token={hint(known)}", wait_s)
        at, given = str(answer["at"]), str(answer["proof"])
    except httpcore.TimeoutException:
        stream.close()
        raise NotThere(f"the service at {target.url} has not answered for {wait_s:g} s: it hangs") from None
    except (h11.ProtocolError, KeyError, TypeError, ValueError):
        status, at, given = 0, "", ""
    except BaseException:
        stream.close()
        raise
    here = address_of(stream.get_extra_info("server_addr"))
    same = at == here if target.own else at.rpartition(":")[2] == here.rpartition(":")[2]
    if status == 200 and same and hmac.compare_digest(given, proof(known, nonce, at)):
        return
    stream.close()
    if status == _STANDS_BY:
        raise NotThere(f"the service at {target.url} stands by while another one leads: give the addresses of both")
    if status == 404:
        raise Denied(f"the token is not valid for {target.url}, which does not know it: set COTENANT_TOKEN")
    if status == 429:
        raise Unreachable(f"the service at {target.url} is busy with strangers: try again, or use its Unix socket")
    raise Denied(f"{target.url} did not prove that it is your service, no token was sent: is COTENANT_URL right?")


def _get(stream: httpcore.NetworkStream, path: str, wait_s: float) -> tuple[int, Any]:
    """One request by hand, on a connection that goes on to be used."""
    conn = h11.Connection(h11.CLIENT)
    request = h11.Request(method="GET", target=path, headers=[("Host", "localhost"), ("User-Agent", "cotenant-client")])
    stream.write(conn.send(request) + conn.send(h11.EndOfMessage()), wait_s)
    status, body = 0, b""
    while True:
        event = conn.next_event()
        if event is h11.NEED_DATA:
            if not (data := stream.read(65536, wait_s)):
                raise httpcore.RemoteProtocolError("closed without an answer")
            conn.receive_data(data)
        elif isinstance(event, h11.Response):
            standby = any(name.lower() == STANDBY.lower().encode() for name, _ in event.headers)
            status = _STANDS_BY if standby else event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
            if len(body) > 65536:
                raise ValueError("too long")
        elif isinstance(event, h11.EndOfMessage):
            return status, json.loads(body) if status == 200 else {"at": "", "proof": ""}
