"""Server-sent events: output and history as they come."""

from __future__ import annotations

import asyncio
import base64
import codecs
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import StreamingResponse

from cotenant.api.auth import bearer
from cotenant.api.door import MOST_STREAMS, Door, caller_of, door_of, encode, shown
from cotenant.api.limits import one_line
from cotenant.api.logs import AttemptOutput, Chunk, Piece, beginning, read_on, start_of
from cotenant.backends.base import Stream
from cotenant.core.errors import CotenantError
from cotenant.core.lifecycle import FINAL
from cotenant.service.facade import Caller, EventInfo, JobDesk, JobInfo, NotFound, Unavailable

CHUNK_BYTES = 64 << 10
WAIT_S = 1.0


class Listener:
    """One open stream: whose it is, and whether it may go on."""

    def __init__(self, request: Request) -> None:
        self.door: Door = door_of(request)
        self.caller: Caller = caller_of(request)
        self._secret = bearer(request.scope)
        self._checked = self._heard = time.monotonic()

    async def may_go_on(self) -> bool:
        """False once the token is revoked or the service shuts down; asked about every second."""
        now = time.monotonic()
        if now - self._checked < WAIT_S:
            return True
        self._checked = now
        admin = self.door.admin
        caller = await self.door.call_for_stream(admin.authenticate, self._secret)
        return caller == self.caller and await self.door.call_for_stream(admin.ready)

    def heartbeat(self, sent: bool) -> str:
        """A comment from time to time, so that a dead connection is noticed."""
        now = time.monotonic()
        if sent:
            self._heard = now
        elif now - self._heard >= self.door.heartbeat_s:
            self._heard = now
            return ": still here\n\n"
        return ""


def event(kind: str, data: object, id_: str = "") -> str:
    """One event as text; JSON holds no line ends, so one data line is enough."""
    return (f"id: {id_}\n" if id_ else "") + f"event: {kind}\ndata: {encode(data).decode()}\n\n"


def respond(request: Request, make: Callable[[Listener], AsyncIterator[str]]) -> StreamingResponse:
    """A bounded number of streams; each gives its place back however it ends."""
    door = door_of(request)
    if door.open_streams >= MOST_STREAMS:
        raise Unavailable(f"{MOST_STREAMS} streams are open, which is the most: close one")

    async def counted() -> AsyncIterator[str]:
        door.open_streams += 1
        try:
            yield ": open\n\n"
            async for text in make(Listener(request)):
                yield text
        except CotenantError as error:
            yield event("error", {"error": one_line(str(error))})
        finally:
            door.open_streams -= 1

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(counted(), headers=headers, media_type="text/event-stream")


async def follow_events(listener: Listener, job: str, after: int) -> AsyncIterator[str]:
    """History from a number on, without end."""
    door = listener.door
    while await listener.may_go_on():
        after, found = await door.call_for_stream(next_events, door, listener.caller, job, after, 1000, WAIT_S)
        for item in found:
            yield event(item.kind if item.kind.isidentifier() else "event", shown(item, listener.caller), str(item.seq))
        if beat := listener.heartbeat(bool(found)):
            yield beat


def next_events(
    door: Door, caller: Caller, job: str, after: int, limit: int, wait_s: float
) -> tuple[int, list[EventInfo]]:
    """Events after a number, waiting for the first; and the number to go on from, past what is not the caller's."""
    desk = door.desk
    if after < 0:
        after = desk.wait_events(0, 0.0)
    end = time.monotonic() + wait_s
    while True:
        last = desk.wait_events(after, max(0.0, min(WAIT_S, end - time.monotonic())))
        found = desk.events(caller, job, after, limit)
        if len(found) >= limit:
            return found[-1].seq, found
        after = max([after, last, *(item.seq for item in found[-1:])])
        if found or time.monotonic() >= end:
            return after, found


@dataclass(frozen=True, slots=True)
class AskedLog:
    """Which output somebody wants: which streams, of one attempt or (0) from the newest on, with times or not."""

    desk: JobDesk
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
        self._say = _exact if exact else _Text(len(asked.streams))

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
                await asyncio.sleep(self.listener.door.poll_s)

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


class _Text:
    """Bytes as text: what is none is replaced, half a character waits for its rest, or for the end: no pieces."""

    def __init__(self, streams: int) -> None:
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in range(streams)]

    def __call__(self, pieces: Sequence[Piece]) -> dict[str, str]:
        parts = [self._decoders[piece.stream].decode(piece.data) for piece in pieces]
        if not pieces:
            parts = [decoder.decode(b"", final=True) for decoder in self._decoders]
        return {"text": text} if (text := "".join(parts)) else {}
