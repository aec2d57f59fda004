"""What every route shares: the service behind it, threads for its blocking calls, and how answers are written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import partial
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute

from cotenant.api.metrics import HttpMetrics
from cotenant.core.errors import unknown
from cotenant.service.facade import Caller, Role, Service

CALL_THREADS = 96  # group commit lives from concurrent callers
STREAM_THREADS = 64
MOST_STREAMS = 256

T = TypeVar("T")


class Forbidden(Exception):
    """The token is good, but not for this."""


class Door:
    """One per application. Threads of streams are apart, so that listeners never hold up requests."""

    def __init__(self, service: Service, poll_s: float, heartbeat_s: float) -> None:
        self.desk, self.admin, self.poll_s, self.heartbeat_s = service.desk, service.admin, poll_s, heartbeat_s
        self.metrics = HttpMetrics()
        self.open_streams = 0
        self._calls = CapacityLimiter(CALL_THREADS)
        self._streams = CapacityLimiter(STREAM_THREADS)
        self._whatifs = CapacityLimiter(2)

    async def call(self, function: Callable[..., T], *args: Any, **named: Any) -> T:
        """Run a blocking call in a thread."""
        return await to_thread.run_sync(partial(function, *args, **named), limiter=self._calls)

    async def call_for_stream(self, function: Callable[..., T], *args: Any) -> T:
        """As `call`, from the threads of streams."""
        return await to_thread.run_sync(partial(function, *args), limiter=self._streams)

    async def call_slow(self, function: Callable[..., T], *args: Any) -> T:
        """As `call`, two at a time: for simulations."""
        return await to_thread.run_sync(partial(function, *args), limiter=self._whatifs)


def door_of(request: Request) -> Door:
    """The door that a request came through."""
    return cast(Door, request.app.state.door)


def caller_of(request: Request) -> Caller:
    """Who asks: put there by the gate, without which nothing gets here."""
    return cast(Caller, request.scope["cotenant.caller"])


def admin_of(request: Request) -> Caller:
    """Who asks, if an admin."""
    caller = caller_of(request)
    if caller.role is not Role.ADMIN:
        raise Forbidden("this needs a token of role admin")
    return caller


def known_query(request: Request) -> None:
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
