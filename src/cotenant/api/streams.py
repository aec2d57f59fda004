"""Server-sent events: output and history as they come."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from fastapi import Request
from fastapi.responses import StreamingResponse

from cotenant.api.auth import bearer, who
from cotenant.api.door import Door, caller_of, door_of, encode, shown
from cotenant.api.limits import one_line
from cotenant.api.logs import Chunk, read_chunk
from cotenant.api.news import PageAsked
from cotenant.api.shares import Seat
from cotenant.backends.base import LogReader, Stream
from cotenant.core.errors import CotenantError
from cotenant.core.lifecycle import FINAL
from cotenant.service.facade import Caller, EventInfo

CHUNK_BYTES = 64 << 10
WAIT_S = 1.0


class Listener:
    """One open stream: whose it is, and whether it may go on."""

    def __init__(self, request: Request, seat: Seat) -> None:
        self.door: Door = door_of(request)
        self.caller: Caller = caller_of(request)
        self._secret = bearer(request.scope)
        self._checked = self._heard = time.monotonic()
        self._scope, self.seat = request.scope, seat

    async def may_go_on(self) -> bool:
        """False once the token is revoked, the service shuts down or somebody needs the place; about every second."""
        now = time.monotonic()
        if now - self._checked < WAIT_S:
            return not self.seat.lost
        self._checked = now
        caller = await who(self.door, self._scope, self._secret)
        return not self.seat.lost and caller == self.caller and await self.door.ready()

    def pause_s(self) -> float:
        """How long to wait before looking again: longer for who has many streams."""
        mine = self.door.shares.streams.of(self.caller)
        return self.door.settings.poll_s * max(1.0, mine / 8)

    def heartbeat(self, sent: bool) -> str:
        """A comment from time to time, so that a dead connection is noticed."""
        now = time.monotonic()
        if sent:
            self._heard = now
        elif now - self._heard >= self.door.settings.heartbeat_s:
            self._heard = now
            return ": still here\n\n"
        return ""


def event(kind: str, data: object, id_: str = "") -> str:
    """One event as text; JSON holds no line ends, so one data line is enough."""
    return (f"id: {id_}\n" if id_ else "") + f"event: {kind}\ndata: {encode(data).decode()}\n\n"


def respond(request: Request, make: Callable[[Listener], AsyncIterator[str]]) -> StreamingResponse:
    """A bounded number of streams per caller; each gives its place back however it ends."""
    places = ExitStack()
    seat = places.enter_context(door_of(request).shares.streams.taken(caller_of(request)))

    async def counted() -> AsyncIterator[str]:
        try:
            yield ": open\n\n"
            async for text in make(Listener(request, seat)):
                yield text
        except CotenantError as error:
            yield event("error", {"error": one_line(str(error))})
        finally:
            places.close()

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), headers=headers, media_type="text/event-stream")


async def follow_events(listener: Listener, job: str, after: int) -> AsyncIterator[str]:
    """History from a number on, without end."""
    while await listener.may_go_on():
        page = await listener.door.news.page(listener.caller, PageAsked(job, after, 1000, _sent), WAIT_S)
        after = page.next
        if page.count:
            yield page.content.decode()
        if beat := listener.heartbeat(bool(page.count)):
            yield beat


def _sent(found: list[EventInfo], caller: Caller, _: int) -> bytes:
    kinds = (item.kind if item.kind.isidentifier() else "event" for item in found)
    texts = (event(kind, shown(item, caller), str(item.seq)) for kind, item in zip(kinds, found, strict=True))
    return "".join(texts).encode()


class LogFollower:
    """The output of a job (of one attempt, or of each in turn) until there will be no more."""

    def __init__(self, listener: Listener, job: str, stream: Stream, attempt: int, cursor: str) -> None:
        self.listener, self.job, self.stream, self.attempt, self.cursor = listener, job, stream, attempt, cursor
        self._log: LogReader | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def run(self) -> AsyncIterator[str]:
        """Events `log` with text, `gap` where output was rotated away before it was read, `end` with the state."""
        while await self.listener.may_go_on():
            state, over, chunk = await self.listener.door.call_for_stream(self._read)
            if chunk.gap:
                yield event("gap", {})
            text = self._decoder.decode(chunk.data, final=over and not chunk.data)
            self.cursor = chunk.cursor
            if text:
                # Half a character stays in the decoder; who comes back with this id would lose it, so it has none.
                yield event("log", {"text": text}, "" if self._decoder.getstate()[0] else self.cursor)
            if over and not chunk.data:
                yield event("end", {"state": state})
                return
            if not chunk.data:
                if beat := self.listener.heartbeat(False):
                    yield beat
                await asyncio.sleep(self.listener.pause_s())

    def _read(self) -> tuple[str, bool, Chunk]:
        """The state is taken before the bytes: output is complete when a job has ended, not the other way round."""
        desk, caller = self.listener.door.desk, self.listener.caller
        info = desk.job(caller, self.job)
        over = info.state in FINAL
        if self.attempt:
            mine = [item for item in info.attempts if item.number == self.attempt]
            over = over or any(item.ended_s is not None for item in mine)
        newest = desk.open_log(caller, self.job, self.stream, self.attempt)
        log = self._log or newest
        chunk = read_chunk(log, self.cursor, CHUNK_BYTES)
        if not chunk.data and newest is not None and log is not None and newest.key != log.key:
            chunk, log = read_chunk(newest, "0", CHUNK_BYTES), newest
        self._log = log
        return info.state, over, chunk
