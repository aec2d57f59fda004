"""How much one request may ask for."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cotenant.core.errors import InputError
from cotenant.core.jobspec import MOST_ARRAY_TASKS, JobSpec, parse_job

MOST_BODY_BYTES = 1 << 20
MOST_JOBS = 1000
MOST_TASKS = MOST_ARRAY_TASKS
MOST_ERROR_CHARS = 400
_MOST_FLOAT = 1e12


class BodyLimit:
    """Reads a body whole before anything else sees it; one that is too long is answered with 413, too slow with 408.

    Routes at `but` bound theirs by themselves.
    """

    def __init__(
        self, app: ASGIApp, most: int = MOST_BODY_BYTES, most_s: float = 30.0, but: Collection[str] = ()
    ) -> None:
        self.app, self.most, self.most_s, self.but = app, most, most_s, but

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in self.but:
            await self.app(scope, receive, send)
            return
        try:
            _check_length(scope, 2 * self.most)
            async with asyncio.timeout(self.most_s):
                body = await self._read(receive)
        except TimeoutError:
            await send_error(send, 408, f"the body took longer than {self.most_s:g} s", close=True)
            return
        except ValueError:
            await send_error(send, 413, f"the body is larger than {self.most} bytes", close=True)
            return
        if body is None:
            return

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            ready, body = body, None
            return {"type": "http.request", "body": ready, "more_body": False}

        await self.app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body; None where the other side has gone. A ValueError says that it is too long."""
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(part)
            if size <= self.most:
                parts.append(part)
            elif size > 2 * self.most:
                break  # a little is read and dropped, so that an honest client gets to see the answer
        if size > self.most:
            raise ValueError("too long")
        return b"".join(parts)


def _check_length(scope: Scope, most: int) -> None:
    """A ValueError where a request says itself that its body is much too long."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            raise ValueError("too long")


async def send_error(send: Send, status: int, text: str, close: bool = False) -> None:
    """An error from below the routes, in the same form as theirs."""
    body = json.dumps({"error": text}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def one_line(text: str) -> str:
    """An error for people: one line, and not the megabyte that they sent."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_ERROR_CHARS else line[: MOST_ERROR_CHARS - 1] + "…"


def read_jobs(jobs: list[dict[str, Any]]) -> list[JobSpec]:
    """Job mappings as specs, bounded together: an array of 100,000 tasks takes a few bytes to ask for."""
    specs: list[JobSpec] = []
    tasks = 0
    for number, data in enumerate(jobs):
        where = "job" if len(jobs) == 1 else f"job {number + 1}"
        spec = read_job(data, where)
        tasks += max(1, len(spec.array))
        if tasks > MOST_TASKS:
            raise InputError(f"{where}: one request may hold {MOST_TASKS} tasks in all: send the rest in another")
        specs.append(spec)
    return specs


def read_job(data: dict[str, Any], where: str) -> JobSpec:
    """One mapping; whatever is in it, the complaint is an `InputError`."""
    try:
        check_text(data, where)
        spec = parse_job(data, where)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{where}: a value cannot be read") from None
    for key, value in asdict(spec).items():
        if isinstance(value, float) and not (math.isfinite(value) and abs(value) <= _MOST_FLOAT):
            raise InputError(f"{where}: field '{key}' is too large")
    return spec


def check_text(data: Any, where: str) -> None:
    """NUL and half surrogate pairs are legal in JSON, and in no database, environment or file name."""
    todo = [data]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise InputError(f"{where}: a text is not valid Unicode") from None
            if "\x00" in item:
                raise InputError(f"{where}: a text holds a NUL character")
