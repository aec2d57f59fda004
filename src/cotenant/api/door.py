"""What every route shares: the service behind it, threads for its blocking calls, and how answers are written."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute

from cotenant.api.audit import AuditLog
from cotenant.api.limits import MOST_BODY_BYTES
from cotenant.api.metrics import HttpMetrics
from cotenant.api.news import News
from cotenant.api.sessions import Sessions
from cotenant.api.shares import CallerLimits, CallerShares
from cotenant.core.errors import unknown
from cotenant.service.facade import Caller, Role

if TYPE_CHECKING:
    from cotenant.api.signon import SignOn
    from cotenant.service.core import CoreService

CALL_THREADS = 96  # group commit lives from concurrent callers
STREAM_THREADS = 64
OPEN_THREADS = 2
READY_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """How the HTTP side behaves.

    `poll_s`: how often a followed log is looked at. `peers`: who the users of this machine are that come over the Unix
    socket, by their number. `audit` keeps who did what, `sign_on` knows the tokens of a provider, `fingerprint` is
    that of the service's certificate, `sessions` are browsers that have signed in, `simulations` is the
    folder for uploaded logs and reports.
    """

    limits: CallerLimits = CallerLimits()  # noqa: RUF009
    poll_s: float = 0.2
    heartbeat_s: float = 10.0
    most_body_bytes: int = MOST_BODY_BYTES
    peers: Mapping[int, Caller] = field(default_factory=dict)
    audit: AuditLog | None = None
    sign_on: SignOn | None = None
    fingerprint: str = ""
    sessions: Sessions = field(default_factory=Sessions)
    simulations: Path | None = None


NOBODY = Caller("", Role.VIEWER, "-")
asking: ContextVar[Caller] = ContextVar("asking", default=NOBODY)


class Forbidden(Exception):
    """The token is good, but not for this."""


class Door:
    """One per application. Threads of streams are apart, so that listeners never hold up requests.

    Of either kind a caller gets his share: the calls of one do not make another's wait.
    """

    def __init__(self, service: CoreService, settings: DoorSettings) -> None:
        self.desk, self.admin, self.tenants = service.desk, service.admin, service.tenants
        self.accounts, self.pictures, self.settings = service.accounts, service.pictures, settings
        self.metrics = HttpMetrics()
        self.shares = CallerShares(settings.limits)
        self.news = News(service.desk, self.read_news)
        self._calls = CapacityLimiter(CALL_THREADS)
        self._streams = CapacityLimiter(STREAM_THREADS)
        self._whatifs = CapacityLimiter(2)
        self._opens = CapacityLimiter(OPEN_THREADS)
        self._ready_s, self._is_ready = float("-inf"), True

    async def call(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Run a blocking call in a thread."""
        async with self.shares.calls.taken(asking.get()):
            return await to_thread.run_sync(partial(function, *args, **named), limiter=self._calls)

    async def call_for_stream(self, function: Callable[..., T], *args: Any) -> T:
        """As `call`, from the threads of streams."""
        async with self.shares.reads.taken(asking.get()):
            return await to_thread.run_sync(partial(function, *args), limiter=self._streams)

    async def call_slow(self, function: Callable[..., T], *args: Any) -> T:
        """As `call`, two at a time: for simulations."""
        async with self.shares.calls.taken(asking.get()):
            return await to_thread.run_sync(partial(function, *args), limiter=self._whatifs)

    async def ready(self) -> bool:
        """Whether the service takes requests: asked once a second, for all streams together."""
        now_s = time.monotonic()
        if now_s - self._ready_s >= READY_S:
            self._ready_s = now_s
            self._is_ready = await self.call_open(self.admin.ready)
        return self._is_ready

    async def call_open(self, function: Callable[[], T]) -> T:
        """As `call`, for what anybody may ask."""
        return await to_thread.run_sync(function, limiter=self._opens)

    async def read_news(self, function: Callable[..., T], *args: Any) -> T:
        """As `call_for_stream`, in nobody's name: for what several wait for."""
        return await to_thread.run_sync(partial(function, *args), limiter=self._streams)


def door_of(request: Request) -> Door:
    """The door that a request came through."""
    return cast(Door, request.app.state.door)


def caller_of(request: Request) -> Caller:
    """Who asks: put there by the gate, without which nothing gets here."""
    return cast(Caller, request.scope["cotenant.caller"])


def places_of(request: Request) -> ExitStack:
    """What a request has taken and gives back when it is over, however it ends: closed by the gate."""
    return cast(ExitStack, request.scope["cotenant.places"])


def admin_of(request: Request) -> Caller:
    """Who asks, if an admin."""
    caller = caller_of(request)
    if caller.role is not Role.ADMIN:
        raise Forbidden("this needs a token of role admin")
    return caller


async def known_query(request: Request) -> None:
    """Refuse a query parameter that a route does not have: a typing error must not read as 'no filter'."""
    route = request.scope.get("route")
    if request.query_params and isinstance(route, APIRoute):
        known = [field.alias for field in route.dependant.query_params]
        for name in request.query_params:
            if name not in known:
                raise unknown("query parameter", name, known or ["(none)"])


def encode(data: Any) -> bytes:
    """JSON. Numbers that are not finite (a loss may well be NaN) become null, which JSON can say."""
    try:
        return json.dumps(data, default=_default, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(data), default=_default, separators=(",", ":")).encode()


def answer(content: bytes, status: int = 200) -> Response:
    """A JSON answer, already encoded; never kept by caches."""
    headers = {"Cache-Control": "no-store"}
    return Response(content, status, headers, media_type="application/json")


def shown(data: Any, caller: Caller) -> Any:
    """A dataclass as plain data. A viewer, who cannot run code, does not see the values of environments either."""
    plain = asdict(data)
    return _without_env(plain) if caller.role is Role.VIEWER else plain


def _without_env(data: Any) -> Any:
    if isinstance(data, dict):
        hidden = dict.fromkeys(data["env"], "***") if isinstance(data.get("env"), dict) else None
        return {key: hidden if key == "env" and hidden is not None else _without_env(v) for key, v in data.items()}
    return [_without_env(item) for item in data] if isinstance(data, list | tuple) else data


def _default(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value.item() if hasattr(value, "item") else str(value)


def _finite(data: Any) -> Any:
    if is_dataclass(data) and not isinstance(data, type):
        data = asdict(data)
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
