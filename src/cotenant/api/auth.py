"""The gate: runs before routing, so that a path or method nobody thought of is as closed as the rest."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cotenant.api.door import Door
from cotenant.api.limits import one_line, send_error
from cotenant.core.errors import CotenantError
from cotenant.service.facade import Caller, Role

OPEN = frozenset({"/healthz", "/readyz"})
READS = frozenset({"GET", "HEAD"})
_MOST_SECRET = 512


class Gate:
    """Bearer token or 401; a viewer reads, or 403. What a role may do beyond that is for the routes and the service."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["path"] in OPEN and scope["method"] in READS:
                await self.app(scope, receive, note)
            elif (caller := await self._admit(scope, note)) is not None:
                scope["cotenant.caller"] = caller
                await self.app(scope, receive, note)
        finally:
            self.door.metrics.note(scope, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, send: Send) -> Caller | None:
        secret = bearer(scope)
        try:
            caller = await self.door.call(self.door.admin.authenticate, secret) if secret else None
        except CotenantError as error:
            await send_error(send, 503, one_line(str(error)))
            return None
        if caller is None:
            await send_error(send, 401, "a valid token is needed: send 'Authorization: Bearer TOKEN'")
        elif caller.role not in (Role.ADMIN, Role.USER) and scope["method"] not in READS:
            await send_error(send, 403, "a token of role viewer only reads")
        else:
            return caller
        return None


def bearer(scope: Scope) -> str:
    """The secret of a request, '' where there is none or one that cannot be."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            secret = secret.strip()
            good = scheme.lower() == "bearer" and secret.isascii() and secret.isprintable()
            return secret if good and len(secret) <= _MOST_SECRET else ""
    return ""
