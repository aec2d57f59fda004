"""The gate: runs before routing, so that a path or method nobody thought of is as closed as the rest."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cotenant.api.door import NOBODY, Door, asking
from cotenant.api.limits import one_line, send_error
from cotenant.api.sessions import cookie_of, is_ours
from cotenant.core.errors import CotenantError
from cotenant.service.facade import SCOPES, Caller, Role, TooMany

SESSION, LINK = "/v1/session", "/v1/session/link"
OPEN = frozenset({"/", "/favicon.svg", "/healthz", "/readyz", "/v1/proof", "/v1/signon"})
READS = frozenset({"GET", "HEAD"})
_MOST_SECRET = 8192  # tokens of a provider are long
_PENALTY_S = 0.5  # before strangers hear that they are too many
_MOST_WAITING = 64
_REFUSED_S = 1.0
_MOST_REFUSED = 1000
_SAFE = ((b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin"))


class Gate:
    """Who asks, and whether he may: 401 without a token, 403 beyond his role or scopes, 429 beyond his share.

    What a role may do in particular is for the routes and the service.
    """

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door
        self._waiting = 0
        self._refused: dict[tuple[Caller, str], float] = {}

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
        began, status, caller = time.perf_counter(), 500, None

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._audit(scope, scope.get("cotenant.caller", caller), status)
                message = {**message, "headers": [*message["headers"], *_SAFE]}
                if status == 429:
                    message["headers"].append((b"connection", b"close"))
                    self._had_enough(caller, scope["path"])
            await send(message)

        try:
            if is_open(scope["method"], scope["path"]):
                await self.app(scope, receive, note)
                return
            caller = await self._caller(scope, note)
            if caller is not None and await self._admit(scope, note, caller):
                scope["cotenant.caller"] = caller
                asking.set(caller)
                with ExitStack() as scope["cotenant.places"]:
                    await self.app(scope, receive, note)
        finally:
            self.door.metrics.note(scope, status, time.perf_counter() - began)

    async def _caller(self, scope: Scope, send: Send) -> Caller | None:
        """By token, else by what the kernel says of the other end of a Unix socket; nobody else gets further."""
        secret = bearer(scope)
        try:
            caller = await who(self.door, scope, secret)
        except CotenantError as error:
            await send_error(send, 503, one_line(str(error)))
            return None
        if caller is None and _asks_who(scope) and self.door.shares.strangers.take():
            return NOBODY
        if caller is None:
            await self._refuse(send)
        elif by_cookie(scope) and not is_ours(scope, scope["method"] not in READS):
            await send_error(send, 403, "a cookie is good for requests of the service's own page only")
            return None
        return caller

    async def _refuse(self, send: Send) -> None:
        """Strangers have one budget together; beyond it they wait, so that trying costs them more than us."""
        if self.door.shares.strangers.take():
            await send_error(send, 401, "a valid token is needed: send 'Authorization: Bearer TOKEN'")
            return
        if self._waiting < _MOST_WAITING:
            self._waiting += 1
            try:
                await asyncio.sleep(_PENALTY_S)
            finally:
                self._waiting -= 1
        await send_error(send, 429, "too many requests without a valid token")

    async def _admit(self, scope: Scope, send: Send, caller: Caller) -> bool:
        if caller.role is Role.VIEWER and scope["method"] not in READS and scope["path"] not in (SESSION, LINK):
            await send_error(send, 403, "a token of role viewer only reads")
            return False
        if caller.scopes and not needed(scope["method"], scope["path"]) & {*caller.scopes}:
            await send_error(send, 403, f"this token is for {', '.join(caller.scopes)} only")
            return False
        try:
            self.door.shares.count(caller)
        except TooMany as error:
            await send_error(send, 429, str(error))
            return False
        if time.monotonic() < self._refused.get((caller, scope["path"]), 0.0):
            await send_error(send, 429, "this was refused just now: try again in a second")
            return False
        return True

    def _had_enough(self, caller: Caller | None, path: str) -> None:
        """Who asks again at once for what he has no share left of is answered without much ado."""
        if caller is None:
            return
        if len(self._refused) > _MOST_REFUSED:
            self._refused.clear()
        now_s = time.monotonic()
        if now_s >= self._refused.get((caller, path), 0.0):
            self._refused[caller, path] = now_s + _REFUSED_S

    def _audit(self, scope: Scope, caller: Caller | None, status: int) -> None:
        """Every write, and every refusal of one."""
        audit = self.door.settings.audit
        typed = status < 400 and scope["path"].startswith("/v1/channels/")  # that it was opened is there
        if audit is None or scope["method"] in READS or typed:
            return
        peer = scope.get("client")
        uid = scope.get("state", {}).get("cotenant.uid")
        row = {
            "time_s": round(time.time(), 3),
            "who": caller.name if caller else "",
            "role": str(caller.role) if caller else "",
            "tenant": caller.tenant if caller else "",
            "token": caller.token if caller else "",
            "from": f"uid {uid}" if uid is not None else peer[0] if peer else "",
            "method": scope["method"][:16],
            "path": scope["path"][:256],
            "status": status,
        }
        if "cotenant.note" in scope:
            row["note"] = scope["cotenant.note"]
        audit.note(row, stranger=caller is None)


async def who(door: Door, scope: Scope, secret: str) -> Caller | None:
    """The caller of a request with this secret, and which tenants he administers; None for a stranger."""
    caller = await _known(door, scope, secret)
    return None if caller is None else door.tenants.known(caller)


async def _known(door: Door, scope: Scope, secret: str) -> Caller | None:
    if not secret:
        if cookie := by_cookie(scope):
            return _signed_in(door, cookie)
        given = any(name == b"authorization" for name, _ in scope["headers"])
        return None if given else door.settings.peers.get(scope.get("state", {}).get("cotenant.uid", -1))
    if door.settings.sign_on is not None and door.settings.sign_on.is_one(secret):
        return await door.settings.sign_on.caller(secret)
    return door.admin.authenticate(secret)


def is_open(method: str, path: str) -> bool:
    """What anybody may ask: health, proof, the files of the page, and to be signed in."""
    if method in READS:
        return path in OPEN or path.startswith("/assets/")
    return method == "POST" and path == SESSION


def _asks_who(scope: Scope) -> bool:
    """Whether somebody who shows no token asks who he is: a page that does not know yet whether to ask for one."""
    given = any(name == b"authorization" for name, _ in scope["headers"])
    return scope["path"] == SESSION and scope["method"] in READS and not given


def by_cookie(scope: Scope) -> str:
    """The cookie by which a request is known: one that shows a token, right or wrong, is known by that."""
    return "" if any(name == b"authorization" for name, _ in scope["headers"]) else cookie_of(scope)


def _signed_in(door: Door, cookie: str) -> Caller | None:
    """Who a browser is now: what it signed in with must still be good."""
    session = door.settings.sessions.find(cookie)
    if session is None or session.by_provider:
        return None if session is None else session.caller
    return door.settings.peers.get(session.uid) if session.uid >= 0 else door.admin.holder(session.caller.token)


def needed(method: str, path: str) -> set[str]:
    """Scopes of which one opens this."""
    if path in (SESSION, LINK):
        return {*SCOPES}
    if path.startswith("/v1/channels/"):
        return {"manage"}
    if method in READS:
        if path in ("/v1/tokens", "/v1/audit"):
            return {"admin"}
        return {"read", "metrics"} if path == "/metrics" else {"read"}
    if path in ("/v1/jobs", "/v1/resubmit") or path.startswith("/v1/simulations"):
        return {"submit"}
    if path in ("/v1/whatif", "/v1/trials", "/v1/jobs/check"):
        return {"read"}
    return {"manage"} if path.startswith(("/v1/jobs/", "/v1/changes/")) else {"admin"}


def bearer(scope: Scope) -> str:
    """The secret of a request, '' where there is none or one that cannot be."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").partition(" ")
            secret = secret.strip()
            good = scheme.lower() == "bearer" and secret.isascii() and secret.isprintable()
            return secret if good and len(secret) <= _MOST_SECRET else ""
    return ""
