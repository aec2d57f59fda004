"""Server-sent events: output and history as they come."""

from __future__ import annotations

import asyncio
import base64
import codecs
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.responses import StreamingResponse

from cotenant.api.auth import bearer, who
from cotenant.api.door import Door, caller_of, door_of, encode, places_of, shown
from cotenant.api.limits import one_line
from cotenant.api.logs import AttemptOutput, Chunk, Piece, beginning, read_on, start_of
from cotenant.api.news import PageAsked
from cotenant.api.shares import Seat
from cotenant.backends.base import Stream
from cotenant.core.errors import CotenantError
from cotenant.core.lifecycle import FINAL
from cotenant.service.facade import Caller, EventInfo, JobInfo, NotFound

if TYPE_CHECKING:
    from cotenant.service.desk.desk import Desk

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
    seat = places_of(request).enter_context(door_of(request).shares.streams.taken(caller_of(request)))

    async def counted() -> AsyncIterator[str]:
        try:
            yield ": open\n\n"
            async for text in make(Listener(request, seat)):
                yield text
        except CotenantError as error:
            yield event("error", {"error": one_line(str(error))})

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


@dataclass(frozen=True, slots=True)
class AskedLog:
    """Which output somebody wants: which streams, of one attempt or (0) from the newest on, with times or not."""

    desk: Desk
    caller: Caller
    job: str
    streams: tuple[Stream, ...]
    attempt: int = 0
    stamped: bool = False

    def info(self) -> JobInfo:
        """How the job stands. An attempt that it never had is not there."""
        info = self.desk.job(self.caller, self.job)
        if self.attempt > len(info.attempts):
            raise NotFound(f"job '{self.job}' has no attempt {self.attempt}: it has had {len(info.attempts)}")
        return info

    def read(self, info: JobInfo, offset: str, most: int) -> Chunk:
        """Some of it, given how the job stood before."""
        return read_on(self._open, len(info.attempts), self.attempt, offset, most, self.stamped)

    def start(self, tail: int | None, since_s: float | None) -> str:
        """Where to begin: the last lines, or a time, or the oldest that is kept."""
        had = len(self.info().attempts)
        newest = self.attempt or had
        if newest and (tail is not None or since_s is not None):
            return start_of(self._open(newest), tail, since_s)
        return "0" if newest else beginning(1, len(self.streams))

    def _open(self, attempt: int) -> AttemptOutput:
        opened = [self.desk.open_log(self.caller, self.job, stream, attempt) for stream in self.streams]
        logs = tuple(log for log in opened if log is not None)
        times = self.desk.open_times(self.caller, self.job, attempt)
        return AttemptOutput(attempt, self.streams, logs, times)


class LogFollower:
    """The output of a job (of one attempt, or of each in turn) until there will be no more."""

    def __init__(self, listener: Listener, asked: AskedLog, cursor: str, exact: bool) -> None:
        self.listener, self.asked, self.cursor = listener, asked, cursor
        self._say = _exact if exact else _ReplacedText(len(asked.streams))

    async def run(self) -> AsyncIterator[str]:
        """Events `log`, `gap` where output was rotated away before it was read, `end` with the state."""
        while await self.listener.may_go_on():
            state, over, chunk = await self.listener.door.call_for_stream(self._read)
            if chunk.gap:
                yield event("gap", {})
            self.cursor = chunk.cursor
            if (chunk.pieces or over) and (said := self._say(chunk.pieces)):
                yield event("log", said, self.cursor)
            if over and not chunk.pieces:
                yield event("end", {"state": state})
                return
            if not chunk.pieces:
                if beat := self.listener.heartbeat(False):
                    yield beat
                await asyncio.sleep(self.listener.pause_s())

    def _read(self) -> tuple[str, bool, Chunk]:
        """The state is taken before the bytes: output is complete when a job has ended, not the other way round."""
        info, attempt = self.asked.info(), self.asked.attempt
        over = info.state in FINAL
        if attempt:
            mine = [item for item in info.attempts if item.number == attempt]
            over = over or any(item.ended_s is not None for item in mine)
        return info.state, over, self.asked.read(info, self.cursor, CHUNK_BYTES)


def _exact(pieces: Sequence[Piece]) -> dict[str, str]:
    data = b"".join(piece.data for piece in pieces)
    return {"base64": base64.b64encode(data).decode()} if data else {}


class _ReplacedText:
    """Bytes as text: what is none is replaced, half a character waits for its rest, or for the end: no pieces."""

    def __init__(self, streams: int) -> None:
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(streams)]

    def __call__(self, pieces: Sequence[Piece]) -> dict[str, str]:
        parts = [self._decoders[piece.stream].decode(piece.data) for piece in pieces]
        if not pieces:
            parts = [decoder.decode(b"", final=True) for decoder in self._decoders]
        return {"text": text} if (text := "".join(parts)) else {}
